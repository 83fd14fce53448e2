package control

import (
	"math"
	"math/rand/v2"
	"slices"
)

// learned are parameters with their optimiser, Adam of Kingma and Ba with its usual constants (0.9, 0.999, 1e-8).
type learned struct {
	Theta         []float64 `json:"-"`
	First, Second []float64 `json:"-"` // means of the gradient and of its square
	Steps         int
}

func newLearned(theta []float64) learned {
	return learned{theta, make([]float64, len(theta)), make([]float64, len(theta)), 0}
}

func (l learned) clone() learned {
	return learned{slices.Clone(l.Theta), slices.Clone(l.First), slices.Clone(l.Second), l.Steps}
}

// step moves the parameters against gradient.
func (l *learned) step(gradient []float64, lr float64) {
	l.Steps++
	first, second := 1-math.Pow(0.9, float64(l.Steps)), 1-math.Pow(0.999, float64(l.Steps))
	for i, g := range gradient {
		l.First[i] = 0.9*l.First[i] + 0.1*g
		l.Second[i] = 0.999*l.Second[i] + 0.001*g*g
		l.Theta[i] -= lr * l.First[i] / first / (math.Sqrt(l.Second[i]/second) + 1e-8)
	}
}

// critic estimates the discounted return that follows an observation. An agent never sends it.
type critic struct {
	one *mlp    // of a single observation
	net network // of batches
	learned
	tape []float64 // of one
}

func newCritic(net *mlp, r *rand.Rand) *critic {
	c := &critic{one: net, net: rows{net}, learned: newLearned(make([]float64, net.parameters())),
		tape: make([]float64, net.tape())}
	net.start(r, c.Theta, 1)
	return c
}

func (c *critic) value(observation []float64) float64 {
	c.one.forward(c.Theta, observation, c.tape)
	return c.tape[len(c.tape)-1]
}

// values are those of n observations, with the tapes.
func (c *critic) values(observations []float64, n int) (values, tapes []float64, err error) {
	tapes = make([]float64, n*c.net.tape())
	err = c.net.forward(c.Theta, observations, tapes)
	for i := range n {
		tape := rowOf(tapes, n, i)
		values = append(values, tape[len(tape)-1])
	}
	return values, tapes, err
}

// fit lowers the mean squared error to the targets.
func (c *critic) fit(s *samples, targets []float64, o CriticOptions, r *rand.Rand) error {
	gradient := make([]float64, len(c.Theta))
	for range o.Epochs {
		for part := range slices.Chunk(r.Perm(s.n), o.Minibatch) {
			clear(gradient)
			if err := c.slope(s, targets, part, gradient); err != nil {
				return err
			}
			c.step(gradient, o.LR)
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
	return c.net.backward(c.Theta, x, tapes, slopes, gradient)
}
