package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/run"
	"github.com/posttrain/posttrain/train"
)

// summary says in words what a run did.
func summary(j *job, l *train.Loop, best *run.Best, records []run.Record) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: %s on %d examples, engine %s.\n", j.title, steps(l.Step()), len(l.Train.Groups), j.world.engine.Name)
	s.WriteString(onTraining(records, j.beta))
	if c := changeOf(records, "logps/chosen"); c.known {
		r := changeOf(records, "logps/rejected")
		fmt.Fprintf(&s, "log p(chosen) went from %.2f to %.2f (%s), log p(rejected) from %.2f to %.2f (%s)%s.\n",
			c.first, c.last, c.direction(), r.first, r.last, r.direction(), c.where())
		if c.held || j.beta == 0 && len(values(records, "logps/chosen")) >= fewSteps {
			fmt.Fprintln(&s, verdict(c, r))
		}
		a, m := changeOf(records, "rewards/accuracies"), changeOf(records, "rewards/margins")
		fmt.Fprintf(&s, "Reward accuracy at the end %s, margin %.3f%s.\n", accuracy(a, l.Eval), m.last, m.where())
	}
	if l := changeOf(records, "loss"); l.known {
		fmt.Fprintf(&s, "The loss went from %.4f to %.4f%s.\n", l.first, l.last, l.where())
	}
	s.WriteString(whichModel(j.folder, best, l.Step()))
	fmt.Fprintf(&s, "Model: %s\nCurves: %s\nMetrics: %s\n", j.folder.ModelDir(), j.folder.Path("curves.png"), j.folder.Path("metrics.jsonl"))
	return s.String()
}

// accuracy prints a held-out accuracy, the mean over pairs, with its counts and interval; of batches only the mean.
func accuracy(c change, heldOut *train.Examples) string {
	if !c.held || heldOut == nil {
		return fmt.Sprintf("%.3f", c.last)
	}
	n := len(heldOut.Groups)
	share := eval.Share{Count: int(math.Round(c.last * float64(n))), Total: n}
	return strings.TrimSpace(share.String())
}

// whichModel says of which step the model is, after a run of last steps. best is nil where nothing was evaluated.
func whichModel(f *run.Folder, best *run.Best, last int) string {
	if best == nil {
		return fmt.Sprintf("model/ is step %d, the last.\n", last)
	}
	named := fmt.Sprintf("step %d, the best by %s (%.4f)", best.Step, best.Metric, best.Value)
	lastWeights := fmt.Sprintf("the last step's weights are in %s/model", f.CheckpointDir(last))
	switch best.Step {
	case last:
		return fmt.Sprintf("model/ is %s and the last.\n", named)
	case 0:
		return fmt.Sprintf("model/ is the model before training, %s: no step improved on it. Try another train.learning_rate, "+
			"or more data or steps; %s.\n", named, lastWeights)
	}
	return fmt.Sprintf("model/ is %s; %s.\n", named, lastWeights)
}

func steps(n int) string {
	if n == 1 {
		return "1 step"
	}
	return fmt.Sprintf("%d steps", n)
}

// onTraining says how far the log-probs of the training pairs came from where they started, in the last tenth of the
// steps; "" where beta is 0 (the loss has no reference, or one that is another model) or the steps are few. A pair's
// implicit reward is β times its own distance, so that batches of different pairs can be compared.
func onTraining(records []run.Record, beta float64) string {
	chosen, rejected := values(records, "rewards/chosen"), values(records, "rewards/rejected")
	if beta == 0 || len(chosen) < fewSteps {
		return ""
	}
	last := func(v []float64) change { return change{last: mean(v[len(v)-len(v)/10:]) / beta} }
	c, r := last(chosen), last(rejected)
	return fmt.Sprintf("log p(chosen) %s by %.2f, log p(rejected) %s by %.2f on the training pairs (last tenth of the steps).\n%s\n",
		c.direction(), math.Abs(c.last), r.direction(), math.Abs(r.last), verdict(c, r))
}

// fewSteps: batches of fewer steps differ more by their pairs than by what was learnt.
const fewSteps = 20

// change is how a metric moved over a run: of the held-out examples where they were measured, else of the batches at
// both ends of the run.
type change struct {
	first, last float64
	known, held bool
}

func (c change) direction() string {
	switch {
	case c.last > c.first:
		return "rose"
	case c.last < c.first:
		return "sank"
	}
	return "stayed"
}

func (c change) where() string {
	if c.held {
		return " on the held-out examples"
	}
	return " (means of the first and the last tenth of the steps)"
}

func changeOf(records []run.Record, name string) change {
	if held := values(records, "eval_"+name); len(held) > 1 {
		return change{held[0], held[len(held)-1], true, true}
	}
	all := values(records, name)
	if len(all) == 0 {
		return change{}
	}
	n := max(1, len(all)/10)
	return change{mean(all[:n]), mean(all[len(all)-n:]), true, false}
}

func values(records []run.Record, name string) (v []float64) {
	for _, r := range records {
		if x, ok := r.Values[name]; ok {
			v = append(v, x)
		}
	}
	return v
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// verdict reads the two curves.
func verdict(chosen, rejected change) string {
	switch {
	case chosen.last == chosen.first && rejected.last == rejected.first:
		return "Neither moved."
	case chosen.last < chosen.first && rejected.last < rejected.first:
		return "Both sank: the squeezing effect. The model prefers the chosen answers only by making both unlikely; the MaPPO prior is made against this."
	case chosen.last >= chosen.first && rejected.last < rejected.first:
		return "The chosen answers became more likely and the rejected ones less: what preference optimisation is meant to do."
	case chosen.last >= chosen.first:
		return "Both rose: the chosen answers pull similar rejected ones up with them."
	}
	return "The chosen answers sank while the rejected rose: check which answer the labels mean."
}
