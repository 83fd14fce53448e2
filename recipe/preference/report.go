package preference

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/run"
	"github.com/posttrain/posttrain/train"
)

// sampleSize is how many training pairs are measured before and after training. The batches of a run hold different
// pairs, so that they cannot say how an answer's log-prob changed.
const sampleSize = 32

// sample is the training pairs that are measured, spread over the whole set.
func (t *training) sample() []int {
	n := len(t.pairs.groups)
	indices := make([]int, min(n, sampleSize))
	for i := range indices {
		indices[i] = i * n / len(indices)
	}
	return indices
}

func (t *training) sampleGroups() []batch.Group { return data.Pick(t.pairs.groups, t.sample()) }

// measureBefore gives the log-probs of the sample under the model before training. Where that is the reference, they
// are known.
func (t *training) measureBefore(ctx context.Context) ([][2]float32, error) {
	if t.reference == nil && t.pairs.method.Reference != nil {
		return data.Pick(t.pairs.method.Reference, t.sample()), nil
	}
	return t.sums(ctx, run.BeforeName, t.Learner, t.sampleGroups())
}

// report says how the log-probs of the answers changed, on training pairs and on held-out ones.
func (t *training) report(before [][2]float32, records []run.Record) (string, error) {
	after, err := train.PairSums(t.Learner, t.sampleGroups(), t.layout(), nil)
	if err != nil {
		return "", err
	}
	chosen, rejected := changes(before, after)
	var s strings.Builder
	fmt.Fprintf(&s, "On %d training pairs, measured before and after: log p(chosen) %s by %.2f, log p(rejected) %s by "+
		"%.2f.\n",
		len(before), chosen.Direction(), math.Abs(chosen.Last), rejected.Direction(), math.Abs(rejected.Last))
	fmt.Fprintln(&s, verdict(chosen, rejected))
	if t.heldOut != nil {
		s.WriteString(t.reportHeldOut(records))
	}
	return s.String(), nil
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
	r, _ := recipe.ChangeOf(records, "logps/rejected")
	accuracy, _ := recipe.ChangeOf(records, "rewards/accuracies")
	margin, _ := recipe.ChangeOf(records, "rewards/margins")
	return fmt.Sprintf("On %d held-out pairs: log p(chosen) went from %.2f to %.2f, log p(rejected) from %.2f to "+
		"%.2f.\n%s\n"+
		"Reward accuracy at the end %s, margin %.3f.\n",
		len(t.heldOut.groups), c.First, c.Last, r.First, r.Last, verdict(c, r),
		recipe.Accuracy(accuracy.Last, len(t.heldOut.groups)), margin.Last)
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
