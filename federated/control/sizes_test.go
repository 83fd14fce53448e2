package control

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
)

// TestSizes: at the papers' sizes gradients and Fisher products are what differences of the gain and of the KL say, and
// the Fisher matrix is symmetric. No environment is opened.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		environment          string
		layers, width, count int
	}{{"swimmer", 2, 64, 4868}, {"hopper", 2, 128, 18438}, {"hopper", 2, 256, 69638}, {"walker2d", 2, 512, 274956},
		{"humanoid", 3, 512, 727074}} {
		t.Run(fmt.Sprint(c.environment, " ", c.width), func(t *testing.T) {
			o := DefaultOptions()
			o.Environment, o.Hidden = c.environment, slices.Repeat([]int{c.width}, c.layers)
			o.OutputTanh, o.LogStd = true, -0.3
			task := NewTask(o, 1)
			theta := task.Start()
			if len(theta) != c.count {
				t.Fatalf("%d parameters, want %d", len(theta), c.count)
			}
			r := rand.New(rand.NewPCG(3, 4))
			s := task.invent(theta, r)
			u, v := normals(r, len(theta)), normals(r, len(theta))
			p := task.policy
			fu, fv, g := p.product(theta, s, u), p.product(theta, s, v), p.gradient(theta, s, 0, float64(s.n))
			near(t, "uᵀFv against vᵀFu", floats.Dot(u, fv), floats.Dot(v, fu), 1e-9)
			const step = 1e-5
			klUp, up := p.compare(theta, moved(theta, step, v), s)
			klDown, down := p.compare(theta, moved(theta, -step, v), s)
			near(t, "gᵀv", floats.Dot(g, v), (up-down)/(2*step), 1e-4)
			near(t, "vᵀFv", floats.Dot(v, fv), (klUp+klDown)/(step*step), 1e-3)
		})
	}
}

// invent are samples of random observations, actions and advantages.
func (t *Task) invent(theta []float64, r *rand.Rand) *samples {
	const n = 10
	s := &samples{n: n, trajectories: 1, observations: normals(r, n*t.space.observations),
		actions: normals(r, n*t.space.actions()), advantages: normals(r, n), logp: make([]float64, n),
		tapes: make([]float64, n*t.policy.net.tape())}
	t.policy.record(theta, s)
	return s
}

func normals(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	return x
}

func moved(theta []float64, step float64, v []float64) []float64 {
	x := append([]float64(nil), theta...)
	floats.AddScaled(x, step, v)
	return x
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance*math.Abs(want)) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
