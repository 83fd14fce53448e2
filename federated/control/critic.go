package control

import (
	"math"
	"math/rand/v2"
	"slices"
)

// adam is the optimiser of Kingma and Ba with its usual constants (0.9, 0.999, 1e-8).
type adam struct {
	m, v  []float64 // means of the gradient and of its square
	steps int
}

func newAdam(n int) *adam { return &adam{m: make([]float64, n), v: make([]float64, n)} }

// step moves theta against gradient.
func (a *adam) step(theta, gradient []float64, lr float64) {
	a.steps++
	first, second := 1-math.Pow(0.9, float64(a.steps)), 1-math.Pow(0.999, float64(a.steps))
	for i, g := range gradient {
		a.m[i] = 0.9*a.m[i] + 0.1*g
		a.v[i] = 0.999*a.v[i] + 0.001*g*g
		theta[i] -= lr * a.m[i] / first / (math.Sqrt(a.v[i]/second) + 1e-8)
	}
}

// critic estimates the discounted return that follows an observation. An agent never sends it.
type critic struct {
	one *mlp    // of a single observation
	net network // of batches
	learned
	tape []float64 // of one
}

// learned is what training changes in a critic.
type learned struct {
	theta []float64
	adam  *adam
}

func (l learned) clone() learned {
	return learned{slices.Clone(l.theta), &adam{slices.Clone(l.adam.m), slices.Clone(l.adam.v), l.adam.steps}}
}

func newCritic(net *mlp, r *rand.Rand) *critic {
	n := net.parameters()
	c := &critic{one: net, net: rows{net}, learned: learned{make([]float64, n), newAdam(n)},
		tape: make([]float64, net.tape())}
	net.start(r, c.theta, 1)
	return c
}

func (c *critic) value(observation []float64) float64 {
	c.one.forward(c.theta, observation, c.tape)
	return c.tape[len(c.tape)-1]
}

// values are those of n observations, with the tapes.
func (c *critic) values(observations []float64, n int) (values, tapes []float64, err error) {
	tapes = make([]float64, n*c.net.tape())
	err = c.net.forward(c.theta, observations, tapes)
	for i := range n {
		tape := rowOf(tapes, n, i)
		values = append(values, tape[len(tape)-1])
	}
	return values, tapes, err
}

// fit lowers the mean squared error to the targets.
func (c *critic) fit(s *samples, targets []float64, o CriticOptions, r *rand.Rand) error {
	gradient := make([]float64, len(c.theta))
	for range o.Epochs {
		for part := range slices.Chunk(r.Perm(s.n), o.Minibatch) {
			clear(gradient)
			if err := c.slope(s, targets, part, gradient); err != nil {
				return err
			}
			c.adam.step(c.theta, gradient, o.LR)
		}
	}
	return nil
}

// slope adds the gradient of the mean squared error over some of the samples.
func (c *critic) slope(s *samples, targets []float64, part []int, gradient []float64) error {
	var x []float64
	for _, i := range part {
		x = append(x, s.row(s.observations, i)...)
	}
	slopes, tapes, err := c.values(x, len(part))
	if err != nil {
		return err
	}
	for k, i := range part {
		slopes[k] = 2 * (slopes[k] - targets[i]) / float64(len(part))
	}
	return c.net.backward(c.theta, x, tapes, slopes, gradient)
}
