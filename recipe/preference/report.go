package preference

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/train"
)

// sampleSize is how many training pairs are measured before and after training. The batches of a run hold different
// pairs, so that they cannot say how an answer's log-prob changed.
const sampleSize = 32

// sample is the training pairs that are measured, spread over the whole set.
func (t *training) sample() []int {
	if t.o.Loss.Unpaired() {
		return sampleAnswers(t.set.Train)
	}
	return spread(len(t.set.Train), sampleSize)
}

// spread gives the places of at most some of n pairs, spread over all.
func spread(n, most int) []int {
	indices := make([]int, min(n, most))
	for i := range indices {
		indices[i] = i * n / len(indices)
	}
	return indices
}

func (t *training) sampled() []train.Example { return data.Pick(t.set.Train, t.sample()) }

// measureBefore gives the log-probs of the sample under the model before training. Where that is the reference, they
// are known.
func (t *training) measureBefore(ctx context.Context) ([][2]float32, error) {
	if t.reference != nil || t.o.Loss.ReferenceFree() {
		return t.sums(ctx, run.BeforeName, t.Learner, t.sampled())
	}
	var known [][2]float32
	for _, x := range t.sampled() {
		known = append(known, x.Reference)
	}
	return known, nil
}

// measureAfter gives the log-probs of the sample under the model after training.
func (t *training) measureAfter(ctx context.Context, say func(format string, args ...any)) (err error) {
	sample := t.groups(t.sampled())
	say("log-probs of %d training %s after training", len(sample), t.o.unit())
	t.after, err = train.PairSums(t.Learner, sample, t.layout(), func(int) error { return ctx.Err() })
	if errors.Is(err, context.Canceled) {
		return t.StopError("while log-probs were measured after the last step")
	}
	return err
}

// measureLast is measureAfter while the last step is being saved, unless there is an evaluation: then the model of
// another step may be the result.
func (t *training) measureLast() func(ctx context.Context) error {
	if t.set.Eval != nil {
		return nil
	}
	return func(ctx context.Context) error { return t.measureAfter(ctx, t.trainer.Notice) }
}

// report says how the log-probs of the answers changed, on training pairs and on held-out ones.
func (t *training) report(ctx context.Context, before [][2]float32, records []run.Record) (string, error) {
	if t.after == nil {
		if err := t.measureAfter(ctx, t.Say); err != nil {
			return "", err
		}
	}
	after := t.after
	var s strings.Builder
	if t.o.Loss.Unpaired() {
		s.WriteString(t.reportAnswers(before, after))
	} else {
		s.WriteString(reportPairs(before, after))
	}
	if t.set.Eval != nil {
		s.WriteString(t.reportHeldOut(records))
	}
	return s.String(), nil
}

func reportPairs(before, after [][2]float32) string {
	chosen, rejected := changes(before, after)
	return fmt.Sprintf("On %d training pairs, measured before and after: log p(chosen) %s, log p(rejected) %s.\n%s\n",
		len(before), chosen.Amount(), rejected.Amount(), verdict(chosen, rejected))
}

// changes are the mean changes of both answers' log-probs.
func changes(before, after [][2]float32) (chosen, rejected recipe.Change) {
	n := float64(len(before))
	for i := range before {
		chosen.Last += float64(after[i][0]-before[i][0]) / n
		rejected.Last += float64(after[i][1]-before[i][1]) / n
	}
	return chosen, rejected
}

// reportHeldOut compares the first evaluation with the last.
func (t *training) reportHeldOut(records []run.Record) string {
	c, known := recipe.ChangeOf(records, "logps/chosen")
	if !known || !c.Held {
		return ""
	}
	r, both := recipe.ChangeOf(records, "logps/rejected")
	margin, _ := recipe.ChangeOf(records, "rewards/margins")
	if !both {
		return ""
	}
	text := fmt.Sprintf("On %d held-out %s: log p(chosen) went from %.2f to %.2f, log p(rejected) from %.2f to "+
		"%.2f.\n", len(t.set.Eval), t.o.unit(), c.First, c.Last, r.First, r.Last)
	if t.o.Loss.Unpaired() {
		return text + fmt.Sprintf("Chosen are the desirable ones. Reward margin at the end %.3f.\n", margin.Last)
	}
	accuracy, _ := recipe.ChangeOf(records, "rewards/accuracies")
	return text + fmt.Sprintf("%s\nReward accuracy at the end %s, margin %.3f.\n", verdict(c, r),
		recipe.Accuracy(accuracy.Last, len(t.set.Eval)), margin.Last)
}

// verdict reads the two changes.
func verdict(chosen, rejected recipe.Change) string {
	switch up, down := chosen.Last >= chosen.First, rejected.Last < rejected.First; {
	case chosen.Last == chosen.First && rejected.Last == rejected.First:
		return "Neither moved."
	case up && down:
		return "The chosen answers became more likely and the rejected ones less: what preference optimisation is " +
			"meant to do."
	case up:
		return "Both rose: the chosen answers pull similar rejected ones up with them."
	case down:
		return "Both sank: the squeezing effect. The model prefers the chosen answers only by making both unlikely; " +
			"the MaPPO prior is made against this."
	}
	return "The chosen answers sank while the rejected rose: check which answer the labels mean."
}
