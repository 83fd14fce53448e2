package recipe

import (
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/train"
)

// Outcome is what a run has come to, for summary.json.
type Outcome struct {
	Data string  // names the training data; "": the config does
	Loss *Change // nil: rewards drive the run
	Test Tests
}

// Tests are what was measured before and after training, each an object with the measures in "all"; nil without a test.
type Tests struct {
	Temperature *float64 `json:"temperature,omitempty"` // of answers; nil: none are drawn
	Before      any      `json:"before"`
	After       any      `json:"after"`
}

// writeSummary writes summary.json. best is nil where nothing was evaluated.
func (r *Run) writeSummary(t *train.Trainer, best *run.Best, o Outcome) error {
	if o.Data == "" {
		values, err := config.ValuesOf(r.resolved)
		if err != nil {
			return err
		}
		o.Data = strings.Join(values["data.train"], ",")
	}
	return r.Folder.WriteSummaryJSON(struct {
		Command string    `json:"command"`
		Model   string    `json:"model"`
		Data    string    `json:"data"`
		Engine  string    `json:"engine"`
		Seed    uint64    `json:"seed"`
		Steps   int       `json:"steps"`
		Best    *run.Best `json:"best"`
		Loss    *Change   `json:"loss,omitempty"`
		Test    Tests     `json:"test"`
	}{r.Command, r.Base.Model, o.Data, r.Engine.Name, r.Seed, t.Step(), best, o.Loss, o.Test})
}

// outcomeOf reads from the lines of a run how its loss changed, and the first and the last evaluation of n held-out
// examples: metrics.jsonl's eval_ values under their names without eval_.
func outcomeOf(records []run.Record, n int) (o Outcome) {
	if c, known := ChangeOf(records, "loss"); known {
		o.Loss = &c
	}
	records = slices.DeleteFunc(slices.Clone(records), func(r run.Record) bool {
		_, evaluated := r.Values["eval_loss"]
		return !evaluated
	})
	if len(records) < 2 {
		return o
	}
	o.Test.Before, o.Test.After = heldOut(records[0], n), heldOut(records[len(records)-1], n)
	return o
}

// heldOut are the measures of an evaluation. Accuracies are shares of the n examples.
func heldOut(r run.Record, n int) any {
	all := map[string]any{}
	for name, x := range r.Values {
		clock := run.OfClock(name)
		name, is := strings.CutPrefix(name, "eval_")
		switch {
		case !is || clock:
		case !float.IsFinite(x): // which JSON has not
			all[name] = measured{}
		case name == "rewards/accuracies" || name == train.MetricAccuracy:
			all[name] = ShareOf(x, n)
		default:
			all[name] = map[string]float64{"value": x}
		}
	}
	return map[string]any{"all": all}
}
