package preference

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/recipe"
)

// Metrics of a round. They are logged at its first step and, with a change, at its last.
const (
	metricRound    = "online/round" // from 1
	metricPrompts  = "online/prompts"
	metricPairs    = "online/pairs"
	metricTies     = "online/ties"  // share of the prompts whose answers all score the same
	metricEqual    = "online/equal" // share of the prompts whose best and worst answer are equal
	metricUnscored = "online/unscored"
	metricScore    = "online/score" // mean
	metricGap      = "online/gap"   // mean of best and worst
	metricTime     = "time/online"  // seconds of answers, scores and the reference's log-probs

	// of the round's pairs before training on them: share with the higher implicit reward for the chosen answer. Not
	// where the policy is the reference, whose implicit rewards are all 0
	metricFresh    = "online/fresh_accuracy"
	metricChosen   = "online/logps_chosen"
	metricRejected = "online/logps_rejected"

	metricDone           = "online/round_done"
	metricAccuracy       = "online/accuracy"              // after it
	metricChosenChange   = "online/logps_chosen_change"   // over the round
	metricRejectedChange = "online/logps_rejected_change" // over the round
)

// find gives the record of a round, nil if it is not logged yet.
func find(records []run.Record, metric string, number int) *run.Record {
	for i, r := range records {
		if r.Values[metric] == float64(number+1) {
			return &records[i]
		}
	}
	return nil
}

// logBefore logs what a round's pairs are like before the model trains on them, once.
func (o *onlineTraining) logBefore(r *round) error {
	records, err := o.Folder.ReadMetrics()
	if err != nil || find(records, metricRound, r.number) != nil {
		return err
	}
	took := time.Since(r.begun).Seconds()
	measured, err := o.set.Measure(context.Background(), o.watchPairs())
	if err != nil {
		return err
	}
	n := float64(r.tally.Prompts)
	values := map[string]float64{
		metricTime: took, metricRound: float64(r.number + 1), metricPrompts: n,
		metricPairs: float64(len(o.set.Examples)),
		metricTies:  float64(r.tally.Ties) / n, metricEqual: float64(r.tally.Equal) / n,
		metricUnscored: float64(r.tally.Unscored), metricScore: r.tally.Mean, metricGap: r.tally.Gap,
		metricChosen:   measured["eval_"+losses.MetricLogpsChosen],
		metricRejected: measured["eval_"+losses.MetricLogpsRejected],
	}
	if o.o.Loss.ReferenceFree() || !o.isReference(r) {
		values[metricFresh] = measured["eval_"+losses.MetricAccuracies]
	}
	return o.pairTrainer.Log(values)
}

// logAfter logs how a round has changed the log-probs of its pairs, once.
func (o *onlineTraining) logAfter(r *round) error {
	records, err := o.Folder.ReadMetrics()
	if err != nil || find(records, metricDone, r.number) != nil {
		return err
	}
	before := find(records, metricRound, r.number)
	if before == nil {
		return fmt.Errorf("%s has no line of the beginning of round %d", o.Folder.Path("metrics.jsonl"), r.number+1)
	}
	after, err := o.set.Measure(context.Background(), o.watchPairs())
	if err != nil {
		return err
	}
	return o.pairTrainer.Log(map[string]float64{
		metricDone:           float64(r.number + 1),
		metricAccuracy:       after["eval_"+losses.MetricAccuracies],
		metricChosenChange:   after["eval_"+losses.MetricLogpsChosen] - before.Values[metricChosen],
		metricRejectedChange: after["eval_"+losses.MetricLogpsRejected] - before.Values[metricRejected],
	})
}

// report shows the rounds in a table.
func (o *onlineTraining) report(records []run.Record) string {
	var s strings.Builder
	s.WriteString("round  prompts  pairs  ties   equal  score  gap    accuracy on fresh pairs, after  " +
		"log p(chosen), log p(rejected)\n")
	for number := range o.o.Online.Rounds {
		before, after := find(records, metricRound, number), find(records, metricDone, number)
		if before == nil || after == nil {
			continue
		}
		v, w := before.Values, after.Values
		fresh := "-"
		if x, ok := v[metricFresh]; ok {
			fresh = fmt.Sprintf("%.3f", x)
		}
		fmt.Fprintf(&s, "%5d  %7.0f  %5.0f  %.3f  %.3f  %.3f  %.3f  %23s, %.3f  %+13.2f, %+.2f\n", number+1,
			v[metricPrompts], v[metricPairs], v[metricTies], v[metricEqual], v[metricScore], v[metricGap], fresh,
			w[metricAccuracy], w[metricChosenChange], w[metricRejectedChange])
		chosen, rejected := recipe.Change{Last: w[metricChosenChange]}, recipe.Change{Last: w[metricRejectedChange]}
		fmt.Fprintf(&s, "       %s\n", verdict(chosen, rejected, o.o.Loss.Prior))
	}
	if o.set.Held != nil {
		s.WriteString(o.reportHeldOut(records))
	}
	return s.String()
}
