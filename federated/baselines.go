package federated

import (
	"math"
	"slices"
)

// A3C is the server of asynchronous advantage actor-critic (arXiv 1602.01783): each gradient passes through an RMSProp
// that all agents share, s ← 0.99·s + 0.01·g², θ ← θ + rate·g/(sqrt(s) + ε). Departure: ε = 1e-5 outside the root, as
// in PyTorch, whose implementations this value comes from. No step is normalised and nothing is averaged.
type A3C struct {
	Theta  []float64 // [d]
	Square []float64 // [d] s, at first 0
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
// change is the mean of the Δ_i, [d]. FedPPO and FedProx share it.
func FedAvg(theta, change []float64) []float64 { return Ahead(theta, 1, change) }

// FedProx is the gradient of the loss plus μ/2·‖w − θ‖² (arXiv 1812.06127), for a gradient g of the loss at an agent's
// weights w, and θ those it started from.
func FedProx(g, w, theta []float64, mu float64) []float64 {
	return Ahead(g, mu, Difference(w, theta))
}

// FedBuff is a server that steps on every Size changes of the weights (arXiv 2106.06639):
// θ ← θ + rate·(1/Size)·Σ Δ/sqrt(1 + staleness), where the staleness counts the steps since the weights were sent; a
// change at the newest weights has 0.
type FedBuff struct {
	Theta []float64 // [d]
	Sum   []float64 // [d] of the changes since the last step
	Count int       // of these
	K     int       // steps

	Size int
	Rate float64
}

// NewFedBuff starts at theta, which it copies.
func NewFedBuff(theta []float64, size int, rate float64) *FedBuff {
	return &FedBuff{slices.Clone(theta), make([]float64, len(theta)), 0, 0, size, rate}
}

// Add takes a change of the weights that was made at version, and reports whether it made the server step.
func (s *FedBuff) Add(change []float64, version int) (stepped bool) {
	s.Sum = Ahead(s.Sum, 1/math.Sqrt(float64(1+s.K-version)), change)
	if s.Count++; s.Count < s.Size {
		return false
	}
	s.Theta = Ahead(s.Theta, s.Rate/float64(s.Size), s.Sum)
	s.Sum, s.Count, s.K = make([]float64, len(s.Theta)), 0, s.K+1
	return true
}

// DiLoCo is the outer step of DiLoCo (arXiv 2311.08105): Nesterov's momentum, as PyTorch's SGD has it, on the outer
// gradient o = θ − mean of the agents' weights. b ← m·b + o, θ ← θ − rate·(o + m·b). The paper has m = 0.9, rate = 0.7.
type DiLoCo struct {
	Theta  []float64 // [d]
	Buffer []float64 // [d] b, at first 0
	K      int       // rounds

	Momentum, Rate float64
}

// NewDiLoCo starts at theta, which it copies.
func NewDiLoCo(theta []float64, momentum, rate float64) *DiLoCo {
	return &DiLoCo{slices.Clone(theta), make([]float64, len(theta)), 0, momentum, rate}
}

// Step closes a round with the mean change of the agents' weights, [d].
func (s *DiLoCo) Step(change []float64) {
	s.K++
	outer := Scaled(-1, change)
	s.Buffer = Ahead(outer, s.Momentum, s.Buffer)
	s.Theta = Ahead(s.Theta, -s.Rate, Ahead(outer, s.Momentum, s.Buffer))
}
