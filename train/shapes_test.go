package train

import (
	"context"
	"math"
	"testing"

	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

// TestStepsDoNotDependOnShapes: every step has the loss and the gradient of the same pairs, however an engine wants
// them cut and padded.
func TestStepsDoNotDependOnShapes(t *testing.T) {
	steps := func(tokens, shapes int) (values []float64, programs int) {
		e := backendtest.Go(t)
		e.Wants.Tokens, e.Wants.Shapes = tokens, shapes
		m := testkit.Model(t, "llama")
		l := expect.Must(NewLearner(e, m, model.GraphOptions{}))(t)
		defer l.Close()
		loop := tinyLoop(l, m)
		loop.Options.MaxSteps, loop.Options.LogEvery, loop.Options.CheckpointEvery = 6, 1, 0
		loop.Options.EvalEvery, loop.Options.EvalMetric, loop.Held = 0, "", nil
		loop.OnStep = func(_, _ int, v map[string]float64) { values = append(values, v["loss"], v["grad_norm"]) }
		expect.OK(t, loop.Run(context.Background()))
		if shapes > 0 && len(loop.Layout().Shapes) > shapes {
			t.Errorf("%d shapes, want %d at most", len(loop.Layout().Shapes), shapes)
		}
		return values, l.programs.Len()
	}
	want, _ := steps(0, 0)
	if len(want) != 12 {
		t.Fatalf("%d values of 6 steps", len(want))
	}
	for _, c := range []struct{ tokens, shapes int }{{48, 1}, {64, 8}, {2048, 1}} {
		got, programs := steps(c.tokens, c.shapes)
		if programs > c.shapes {
			t.Errorf("%d programs, want %d at most", programs, c.shapes)
		}
		for i := range want {
			if math.Abs(got[i]-want[i]) > 1e-4*(1+math.Abs(want[i])) {
				t.Errorf("%d tokens in %d shapes: step %d: %v, want %v", c.tokens, c.shapes, i/2+1, got[i], want[i])
			}
		}
	}
}
