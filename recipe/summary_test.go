package recipe

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/posttrain/posttrain/internal/run"
)

// TestOutcome: the first and the last evaluation, accuracies with their counts; nothing of batches, and nothing where
// there was one evaluation.
func TestOutcome(t *testing.T) {
	records := []run.Record{{Values: map[string]float64{"eval_loss": 0.7, "eval_accuracy": 0.25}},
		{Step: 1, Values: map[string]float64{"loss": 9}},
		{Step: 2, Values: map[string]float64{"loss": 8, "eval_loss": 0.6}},
		{Step: 3, Values: map[string]float64{"eval_loss": 0.5, "eval_accuracy": 0.75, "eval_runtime": 1,
			"eval_x": math.Inf(1)}}}
	share := func(text string) string { return `{"all":{"accuracy":{` + text + `},"loss":{"value":` }
	for want, records := range map[string][]run.Record{
		`{"before":` + share(`"value":0.25,"count":1,"total":4,"low":0.045587260809700575,"high":0.6993581574175981`) +
			`0.7}}},"after":` + share(`"value":0.75,"count":3,"total":4,"low":0.3006418425824019,"high":0.9544127391902995`) +
			`0.5},"x":{"value":null,"low":null,"high":null}}}}`: records,
		`{"before":null,"after":null}`: records[:2],
	} {
		o := outcomeOf(records, 4)
		got, err := json.Marshal(o.Test)
		if err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	if o := outcomeOf(records, 4); *o.Loss != (Change{0.7, 0.5, true}) {
		t.Errorf("%+v", o.Loss)
	}
}
