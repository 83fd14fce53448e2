package control

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
)

// calculators tests with every engine.
func calculators(t *testing.T, test func(t *testing.T, c *Calculator)) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		test(t, &Calculator{Engine: e, programs: map[string]*backend.Program{}})
	})
}

// TestCalculator: outputs, gradients and derivatives are the host's.
func TestCalculator(t *testing.T) {
	calculators(t, func(t *testing.T, c *Calculator) {
		for _, kinds := range [][2]activation{{relu, tanh}, {tanh, linear}} {
			net, r := newMLP(5, []int{8, 6}, 3, kinds[0], kinds[1]), rand.New(rand.NewPCG(1, 2))
			fast, slow := dense{net, c}, rows{net}
			theta, v, x := normals(r, net.parameters()+2), normals(r, net.parameters()+2), normals(r, 7*5)
			tapes, outputs := make([]float64, 7*slow.tape()), make([]float64, 7*fast.tape())
			ok(t, slow.forward(theta, x, tapes))
			ok(t, fast.forward(theta, x, outputs))
			var want []float64
			for i := range 7 {
				want = append(want, rowOf(tapes, 7, i)[slow.tape()-3:]...)
			}
			nearAll(t, "outputs", outputs, want, 1e-12)
			slopes, sum := normals(r, 7*3), normals(r, net.parameters())
			got, want := slices.Clone(sum), slices.Clone(sum)
			ok(t, fast.backward(theta, x, outputs, slices.Clone(slopes), got))
			ok(t, slow.backward(theta, x, tapes, slopes, want))
			nearAll(t, "gradient", got, want, 1e-12)
			got, want = make([]float64, 7*3), make([]float64, 7*3)
			ok(t, fast.derivative(theta, x, outputs, v, got))
			ok(t, slow.derivative(theta, x, tapes, v, want))
			nearAll(t, "derivative", got, want, 1e-12)
		}
	})
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestCalculatorOfAgent: what an agent computes in two batches is the same with an engine as on the host, and has the
// same bits again.
func TestCalculatorOfAgent(t *testing.T) {
	for _, environment := range []string{"cartpole", "pendulum"} {
		o := small(environment)
		host := twoBatches(t, o, nil)
		calculators(t, func(t *testing.T, c *Calculator) {
			got := twoBatches(t, o, c)
			for i := range got {
				nearAll(t, fmt.Sprintf("%s, result %d", environment, i), got[i], host[i], 1e-7)
			}
			if !slices.EqualFunc(got, twoBatches(t, o, c), slices.Equal) {
				t.Errorf("%s: other bits the second time", environment)
			}
		})
	}
}

// twoBatches are the gradients, products, searches and changes of PPO of an agent whose critic learns between.
func twoBatches(t *testing.T, o Options, c *Calculator) (all [][]float64) {
	w, err := New(o, 0, 1)
	ok(t, err)
	if c != nil {
		w.Use(c)
	}
	theta := w.Start()
	for version := range 2 {
		b, err := w.Collect(t.Context(), theta, version)
		ok(t, err)
		g, err := b.Gradient()
		ok(t, err)
		product, err := b.Product(g)
		ok(t, err)
		kl, gain, err := b.Search(g, []float64{0.1, 0.01})
		ok(t, err)
		change, err := b.Train(t.Context(), protocol.Local{Epochs: 2, Minibatch: 48, LR: 1e-3, Clip: 0.2})
		ok(t, err)
		all = append(all, g, product, kl, gain, change, slices.Clone(w.critic.Theta))
	}
	return all
}

// TestOracleGaussianByEngine holds the engines to the reference, as TestOracleGaussian holds the host.
func TestOracleGaussianByEngine(t *testing.T) {
	calculators(t, func(t *testing.T, c *Calculator) {
		gaussianCases(t, func(net *mlp) network { return dense{net, c} })
	})
}
