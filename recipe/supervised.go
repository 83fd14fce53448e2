package recipe

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/run"
)

// This file is what the recipes that learn from examples (preference, sft) share.

// Limit applies the limits to the groups of a data set, and reports what it drops. drift counts the completions that
// merge with their prompt.
func (r *Run) Limit(path string, groups []batch.Group, o batch.Options, drift int) ([]int, error) {
	positions := r.Model.Config.MaxPositions
	l := batch.Limit(groups, o, positions, r.Tokenizer.Begin())
	r.Say("%s: %s", path, l)
	if drift > 0 {
		r.Say("%s: %d completions merge with their prompt when tokenised together; they were tokenised apart", path,
			drift)
	}
	if len(l.Keep) == 0 {
		return nil, fmt.Errorf("%s: no row is left: %d are too long, %d have an empty answer, %d two equal ones "+
			"(data.max_prompt_tokens %d, data.max_completion_tokens %d, data.max_tokens %d, where 0 is no limit; the model "+
			"takes %d tokens)", path, l.Dropped, l.Empty, l.Equal, o.MaxPromptTokens, o.MaxCompletionTokens, o.MaxTokens, positions)
	}
	return l.Keep, nil
}

// Encode encodes rows on all cores with a method of the Encoder. Where the context has ended, the error is
// ErrInterrupted.
func Encode[R, T any](ctx context.Context, e *batch.Encoder, rows []R, encode func(*batch.Encoder, R) (T, error)) (
	[]T, error) {
	all, err := batch.EncodeAll(ctx, e, rows, encode)
	if err != nil && err == ctx.Err() {
		return nil, fmt.Errorf("%w while the data was tokenised", ErrInterrupted)
	}
	return all, err
}

// Split holds a share of n examples out; unit names them in the error.
func (s Source) Split(n int, unit string, seed uint64) (kept, heldOut []int, err error) {
	kept, heldOut = data.Split(n, s.EvalFraction, seed)
	if len(kept) == 0 || len(heldOut) == 0 {
		return nil, nil, fmt.Errorf("data.eval_fraction %v: of %d %s it leaves %d to train on and %d to evaluate on: "+
			"want at least one of each", s.EvalFraction, n, unit, len(kept), len(heldOut))
	}
	return kept, heldOut, nil
}

// SharesPrompts decides whether the answers to a prompt share it in one row.
func (r *Run) SharesPrompts(groups []batch.Group) bool {
	return SharesPrompts(r.Train.SharePrefix, groups, r.Train.Micro(), r.Model.Config.HiddenSize)
}

// SharesPrompts is that for an option auto, on or off, and a model of that hidden size.
func SharesPrompts(option string, groups []batch.Group, micro, hidden int) bool {
	switch option {
	case "on":
		return true
	case "off":
		return false
	}
	return batch.SharePays(groups, micro, hidden)
}

// LossChange says how the loss moved over a run.
func LossChange(records []run.Record) string {
	c, known := ChangeOf(records, "loss")
	if !known {
		return ""
	}
	return fmt.Sprintf("The loss went from %.4f to %.4f%s.\n", c.First, c.Last, c.Where())
}

// WhichModel says of which step the model is, or the adapter, after a run of last steps. best is nil where nothing was
// evaluated.
func (r *Run) WhichModel(best *run.Best, last int) string {
	what := r.Kind()
	if best == nil {
		return fmt.Sprintf("%s/ is step %d, the last.\n", what, last)
	}
	name := fmt.Sprintf("step %d, the best by %s (%.4f)", best.Step, best.Metric, best.Value)
	rest := fmt.Sprintf("the last step's weights are in %s/%s", r.Folder.CheckpointDir(last), what)
	switch best.Step {
	case last:
		return fmt.Sprintf("%s/ is %s and the last.\n", what, name)
	case 0:
		return fmt.Sprintf("%s/ is the model before training, %s: no step improved on it. "+
			"Try another train.learning_rate, or more data or steps; %s.\n", what, name, rest)
	}
	return fmt.Sprintf("%s/ is %s; %s.\n", what, name, rest)
}

// Change is how a metric moved over a run: on the held-out examples where there are some, else over the batches at both
// ends of the run.
type Change struct {
	First float64 `json:"first"`
	Last  float64 `json:"last"`
	Held  bool    `json:"held_out"`
}

// Direction is a verb for the change.
func (c Change) Direction() string {
	switch {
	case c.Last > c.First:
		return "rose"
	case c.Last < c.First:
		return "sank"
	}
	return "stayed the same"
}

// Where says on which examples the change was measured.
func (c Change) Where() string {
	if c.Held {
		return " on the held-out examples"
	}
	return " (means of the first and the last tenth of the steps)"
}

// ChangeOf reads the change of a metric from the lines of a run.
func ChangeOf(records []run.Record, name string) (c Change, known bool) {
	if held := run.Series(records, "eval_"+name); len(held) > 1 {
		return Change{held[0], held[len(held)-1], true}, true
	}
	all := run.Series(records, name)
	if len(all) == 0 {
		return Change{}, false
	}
	n := max(1, len(all)/10)
	return Change{mean(all[:n]), mean(all[len(all)-n:]), false}, true
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// Accuracy prints a share of n held-out examples with its counts and interval; n 0: the share of batches alone.
func Accuracy(share float64, n int) string {
	if n == 0 {
		return fmt.Sprintf("%.3f", share)
	}
	return strings.TrimSpace(ShareOf(share, n).String())
}

// ShareOf is a share of n examples with their count.
func ShareOf(share float64, n int) eval.Share {
	return eval.Share{Count: int(math.Round(share * float64(n))), Total: n}
}
