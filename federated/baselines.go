package federated

import (
	"math"
	"slices"
)

// A3C is the server of asynchronous advantage actor-critic (arXiv 1602.01783): each gradient passes through an RMSProp
// that all agents share, s ← 0.99·s + 0.01·g², θ ← θ + rate·g/(sqrt(s) + ε). Departure: ε = 1e-5 outside the root, as
// in PyTorch, whose implementations this value comes from. No step is normalised and nothing is averaged.
type A3C struct {
	Theta  []float64 `json:"-"` // [d]
	Square []float64 `json:"-"` // [d] s, at first 0
	K      int       // updates applied
	Rate   float64
}

// NewA3C starts at theta, which it copies.
func NewA3C(theta []float64, rate float64) *A3C {
	return &A3C{slices.Clone(theta), make([]float64, len(theta)), 0, rate}
}

// Step applies the gradient g, [d]. It replaces the slices and does not write to the old ones.
func (s *A3C) Step(g []float64) {
	s.K++
	s.Theta, s.Square = slices.Clone(s.Theta), Scaled(0.99, s.Square)
	for j, x := range g {
		s.Square[j] += 0.01 * x * x
		s.Theta[j] += s.Rate * x / (math.Sqrt(s.Square[j]) + 1e-5)
	}
}

// FedAvg is the mean of the agents' weights (arXiv 1602.05629): θ + Σp_iΔ_i/Σp_i, Δ_i agent i's change of the weights.
// change is the mean of the Δ_i, [d]. FedPPO shares it.
func FedAvg(theta, change []float64) []float64 { return Ahead(theta, 1, change) }
