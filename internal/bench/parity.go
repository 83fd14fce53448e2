package main

import (
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/train"
)

// parityTolerance is the largest relative difference of losses and log-probs in float32 between engines.
const parityTolerance = 1e-4

// newParity compares two engines by training on both.
func newParity() *cobra.Command {
	var engine, against, preset string
	var steps int
	cmd := newCommand("parity", "The same steps on two engines in float32: losses and log-probs must agree",
		"  go run ./internal/bench parity --backend xla:/path/plugin.so,tf32=false --against go\n"+
			"  go run ./internal/bench parity --backend onnx",
		func(out io.Writer) error {
			return parity(out, preset, steps, form{backend: engine}, form{backend: against})
		})
	flags := cmd.Flags()
	flags.StringVar(&engine, "backend", "onnx", "the engine to check")
	flags.StringVar(&against, "against", "go", "the engine to trust")
	flags.StringVar(&preset, "preset", "5.4M", "model")
	flags.IntVar(&steps, "steps", 4, "steps of training")
	return cmd
}

// parity trains a few steps, first with two rows a pair, then with a shared prompt. It compares the loss of every step
// and the answers' log-probs after the last.
func parity(out io.Writer, preset string, steps int, forms ...form) error {
	c, err := config(preset)
	if err != nil {
		return err
	}
	m, p := model.Init(c, 1), randomProblem(shape{2, 48, 24}, c.VocabSize, 1e-5)
	for _, share := range []bool{false, true} {
		var ran []trace
		for _, f := range forms {
			f.share = share
			t, err := follow(m, p, f, steps)
			if err != nil {
				return err
			}
			ran = append(ran, t)
		}
		for _, r := range ran[1:] {
			worst := max(furthest(ran[0].losses, r.losses), furthest(ran[0].sums, r.sums))
			fmt.Fprintf(out, "%s against %s, shared prompts %v: losses %.6f to %.6f, "+
				"largest relative difference of losses and log-probs %.1e\n",
				ran[0].engine, r.engine, share, ran[0].losses[0], ran[0].losses[steps-1], worst)
			if !(worst <= parityTolerance) {
				return fmt.Errorf("engines %s and %s differ by %.1e: want at most %.0e",
					ran[0].engine, r.engine, worst, parityTolerance)
			}
		}
	}
	return nil
}

// trace is the result of a run of steps.
type trace struct {
	engine       string
	losses, sums []float64
}

func follow(m *model.Model, p *problem, f form, steps int) (r trace, err error) {
	t, err := openTrainer(m, p, f)
	if err != nil {
		return r, err
	}
	defer t.close()
	r.engine = t.engine.Name
	for range steps {
		loss, err := t.step()
		if err != nil {
			return r, err
		}
		r.losses = append(r.losses, loss)
	}
	sums, err := train.PairSums(t.learner, p.groups(), t.learner.Layout(p.groups(), f.share, p.pairs()), nil)
	for _, s := range sums {
		r.sums = append(r.sums, float64(s[0]), float64(s[1]))
	}
	return r, err
}

// furthest is the largest relative difference.
func furthest(a, b []float64) float64 {
	worst := 0.0
	for i := range a {
		d := math.Abs(a[i]-b[i]) / max(1, math.Abs(a[i]))
		if !(d <= worst) {
			worst = d
		}
	}
	return worst
}
