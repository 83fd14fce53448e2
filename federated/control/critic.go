package control

import (
	"math"
	"math/rand/v2"
	"slices"
)

// adam has parameters with their optimiser, Adam of Kingma and Ba with its usual constants (0.9, 0.999, 1e-8).
type adam struct {
	Theta         []float64 `json:"-"`
	First, Second []float64 `json:"-"` // means of the gradient and of its square
	Steps         int
}

func newAdam(theta []float64) adam {
	return adam{theta, make([]float64, len(theta)), make([]float64, len(theta)), 0}
}

func (l adam) clone() adam {
	return adam{slices.Clone(l.Theta), slices.Clone(l.First), slices.Clone(l.Second), l.Steps}
}

// step moves the parameters against gradient.
func (l *adam) step(gradient []float64, lr float64) {
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
	net *mlp
	adam
	tape []float64
}

func newCritic(net *mlp, r *rand.Rand) *critic {
	c := &critic{net, newAdam(make([]float64, net.parameters())), make([]float64, net.tape())}
	net.start(r, c.Theta, 1)
	return c
}

func (c *critic) value(observation []float64) float64 {
	c.net.forward(c.Theta, observation, c.tape)
	return c.tape[len(c.tape)-1]
}

// fit lowers the mean squared error to the targets.
func (c *critic) fit(s *samples, targets []float64, o CriticOptions, r *rand.Rand) {
	gradient := make([]float64, len(c.Theta))
	for range o.Epochs {
		for part := range slices.Chunk(r.Perm(s.n), o.Minibatch) {
			clear(gradient)
			for _, i := range part {
				x := s.row(s.observations, i)
				slope := 2 * (c.value(x) - targets[i]) / float64(len(part))
				c.net.backward(c.Theta, x, c.tape, []float64{slope}, gradient)
			}
			c.step(gradient, o.LR)
		}
	}
}
