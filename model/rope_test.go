package model

import (
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
)

// The host's rotations equal the graph's, at any position, with and without scaling.
func TestRotary(t *testing.T) {
	c := &Config{HeadDim: 8, RopeTheta: 10000, RopeScaling: &RopeScaling{Type: "llama3", Factor: 8, LowFreqFactor: 1,
		HighFreqFactor: 4, OriginalMaxPositions: 256}}
	positions := []int32{7, 0, 5000, 7, 31}
	n := len(positions) * c.HeadDim
	cos, sin := make([]float32, n), make([]float32, n)
	c.Rotaries()[0].Rows(positions, cos, sin)
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		program := compile(t, e, "rotation", func(g *graph.Graph) []*graph.Node {
			r := c.newRotations(graph.Parameter(g, "positions", shapes.Make(dtypes.Int32, 1, len(positions)))).ofKeys[0]
			return []*graph.Node{r.cos, r.sin}
		})
		b := must(e.Int32(positions, 1, len(positions)))
		defer backend.FinalizeAll(b)
		out := runOnce(t, program, []compute.Buffer{b})
		near(t, "cos", worst(cos, out[0]), 5e-7)
		near(t, "sin", worst(sin, out[1]), 5e-7)
	})
}

// Masks by hand: o is seen, x is not.
func TestStepMask(t *testing.T) {
	for _, c := range []struct {
		shape                  StepShape
		prompt, suffix, window int
		want                   string
	}{
		{StepShape{Prefix: 4, Suffix: 3}, 3, 1, 0, "ooox" + "oxx" + "o"},
		{StepShape{Prefix: 4, Suffix: 3}, 3, 1, 3, "xxox" + "oxx" + "o"}, // position 4 sees 2, 3 and itself
		{StepShape{Prefix: 4, Suffix: 3}, 4, 3, 3, "xxxx" + "xoo" + "o"},
		{StepShape{Prefix: 4, Suffix: 3}, 4, 0, 9, "oooo" + "xxx" + "o"},
		{StepShape{Suffix: 5}, 0, 4, 0, "oooox" + "o"},
		{StepShape{Suffix: 5}, 0, 4, 1, "xxxxx" + "o"},
		{StepShape{Prefix: 2}, 2, 0, 0, "oo" + "o"},
	} {
		mask := make([]float32, c.shape.MaskLen())
		c.shape.Mask(mask, c.prompt, c.suffix, c.window)
		got := ""
		for _, v := range mask {
			got += map[float32]string{0: "o", maskedScore: "x"}[v]
		}
		if got != c.want {
			t.Errorf("%+v, prompt %d, suffix %d, window %d: %s, want %s", c.shape, c.prompt, c.suffix, c.window, got,
				c.want)
		}
	}
}

// The same batch gives the same bits in each run.
func TestCachedRunsRepeat(t *testing.T) {
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		m := sharpModel(t, "qwen2", "use_sliding_window", true, "sliding_window", 5, "max_window_layers", 1)
		c := texts(3)
		c.shared = true
		first, second := c.decode(t, e, m), c.decode(t, e, m)
		for r := range first {
			for i := range first[r].logits {
				if !slices.Equal(first[r].logits[i], second[r].logits[i]) ||
					!slices.Equal(first[r].sums[i], second[r].sums[i]) {
					t.Fatalf("row %d, token %d differs", r, i)
				}
			}
		}
	})
}
