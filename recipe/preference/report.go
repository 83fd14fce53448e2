package preference

import (
	"fmt"
	"math"

	"github.com/posttrain/posttrain/internal/doctor"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/recipe"
)

// reportHeldOut compares the first evaluation with the last. Batches hold different pairs: they cannot say how an
// answer's log-prob changed.
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
		"%.2f.\n", len(t.set.Held), t.o.unit(), c.First, c.Last, r.First, r.Last)
	if t.o.Loss.Unpaired() {
		return text + fmt.Sprintf("Chosen are the desirable ones. Reward margin at the end %.3f.\n", margin.Last)
	}
	accuracy, _ := recipe.ChangeOf(records, "rewards/accuracies")
	words := verdict(c, r, t.o.Loss.Prior)
	if loss, _ := recipe.ChangeOf(records, "loss"); doctor.Diverged(loss.First, loss.Last) {
		words = fmt.Sprintf("The run diverged: the loss rose from %.3g to %.3g: want a rate below %g (train.learning_rate).",
			loss.First, loss.Last, t.Base.Train.LearningRate)
	}
	if words == still {
		words += fmt.Sprintf(": %s at a rate of %g at most, after a warm-up of %d: want more (train.epochs) or a higher one "+
			"(train.learning_rate).", recipe.Count(t.pairTrainer.Step(), "step"), t.Base.Train.LearningRate, t.Base.Train.WarmupSteps)
	}
	return text + fmt.Sprintf("%s\nReward accuracy at the end %s, margin %.3f.\n%s", words,
		recipe.Accuracy(accuracy.Last, len(t.set.Held)), margin.Last, chance(accuracy.Last, len(t.set.Held)))
}

// chance says that an accuracy may be one half.
func chance(share float64, n int) string {
	low, high := recipe.ShareOf(share, n).Wilson()
	if low > 0.5 || high < 0.5 {
		return ""
	}
	return "Its interval has one half in it: these pairs do not show that the model prefers the chosen answers.\n"
}

// still is the verdict on changes that nobody would see in the figures above.
const still = "Neither moved by 0.01"

// verdict reads the two changes under a prior.
func verdict(chosen, rejected recipe.Change, prior string) string {
	moved := func(c recipe.Change) bool { return math.Abs(c.Last-c.First) >= 0.01 }
	switch up, down := chosen.Last >= chosen.First, rejected.Last < rejected.First; {
	case !moved(chosen) && !moved(rejected):
		return still
	case up && down:
		return "The chosen answers became more likely and the rejected ones less: what preference optimisation is " +
			"meant to do."
	case up:
		return "Both rose: the chosen answers pull similar rejected ones up with them."
	case down:
		words := "Both sank: the squeezing effect. The model prefers the chosen answers only by making both unlikely"
		if prior == losses.None {
			words += "; the MaPPO prior is made against this"
		}
		return words + "."
	}
	return "The chosen answers sank while the rejected rose: check which answer the labels mean."
}
