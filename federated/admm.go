package federated

import (
	"math"
	"slices"
)

// Absent says how the server of FedNPG-ADMM counts agents that miss a round.
type Absent string

// Departure: the paper averages the y_i of those present ([Drop]), which loses Σp_iλ_i = 0, leaves a relative error of
// 0.3 to 2.4 on fixed problems and can diverge. [Hold] keeps what each agent sent last and reaches H⁻¹g exactly.
const (
	Hold Absent = "hold"
	Drop Absent = "drop"
)

// Dual is one agent's state in FedNPG-ADMM. The agent keeps it and never sends it. A round makes a new one and leaves
// the old as it was, so an agent can go back to it.
type Dual struct {
	Lambda []float64 `json:"-"` // [d] λ_i
	Y      []float64 `json:"-"` // [d] y_i, its direction of the last round it took part in
}

// NewDual is the state of an agent that starts, joins, or comes back without its state: λ_i = 0, y_i = y. Departure:
// the paper leaves λ open; their weighted sum must be 0.
func NewDual(y []float64) Dual { return Dual{make([]float64, len(y)), slices.Clone(y)} }

// Advance is λ_i ← λ_i + ρ(y_i − y) (line 6) for the server's y, [d]. It comes before the agent's solve.
func (d Dual) Advance(y []float64, rho float64) Dual {
	return Dual{Ahead(d.Lambda, rho, Difference(d.Y, y)), d.Y}
}

// Right is the right side of the agent's system, g_i − λ_i + ρy (line 8).
func (d Dual) Right(g, y []float64, rho float64) []float64 {
	return Ahead(Difference(g, d.Lambda), rho, y)
}

// Solve is y_i ← (H_i + ρI)⁻¹(g_i − λ_i + ρy) by conjugate gradient (line 8), after [Dual.Advance]. It starts at
// start, such as the agent's y_i of before: with ρy on the right side, zero is far away (departure: the paper does not
// say). The product h is H_i·v without ρ. ρ damps a solve, but not H⁻¹g, where the rounds end; a damped h does that.
func (d Dual) Solve(c CG, h Product, g, y []float64, rho float64, start []float64) (Dual, Solution, error) {
	s, err := c.Solve(Damped(h, rho), d.Right(g, y, rho), start)
	return Dual{d.Lambda, s.X}, s, err
}

// Message is what the agent sends: u_i = y_i + λ_i/ρ (line 9), whose mean is the minimiser over y whoever is absent;
// with [Drop] y_i alone, the paper's letter. Departure: the paper sends y_i, since Σλ_i = 0 where everybody takes part.
func (d Dual) Message(rho float64, absent Absent) []float64 {
	if absent == Drop {
		return slices.Clone(d.Y)
	}
	return Ahead(d.Y, 1/rho, d.Lambda)
}

// ADMM is the server's state in FedNPG-ADMM.
type ADMM struct {
	Y       []float64   `json:"-"` // [d] the direction
	U       [][]float64 `json:"-"` // by agent, [d]: what it sent last; nil: the agent does not count
	Away    []int       // by agent: rounds since U
	Refused int         // rounds in a row whose step was refused

	Absent Absent
	Forget int // rounds of absence after which an agent no longer counts; 0: it always counts
}

// NewADMM starts with y = 0 and agents that count from the start, with u_i = 0; one that joins later counts from its
// first message on.
func NewADMM(d, agents int, absent Absent, forget int) *ADMM {
	a := &ADMM{U: make([][]float64, agents), Away: make([]int, agents), Absent: absent, Forget: forget}
	for i := range a.U {
		a.U[i] = make([]float64, d)
	}
	a.Y = make([]float64, d)
	return a
}

// Round closes an inner round: sent has by agent what it sent, nil for those absent, and weights their p_i. It takes
// the mean y ← Σp_iu_i (line 12), with weights that sum to 1 over the agents that count, and returns it.
func (a *ADMM) Round(weights []float64, sent [][]float64) []float64 {
	for len(a.U) < len(sent) {
		a.U, a.Away = append(a.U, nil), append(a.Away, 0)
	}
	for i, u := range sent {
		a.Away[i]++
		if u != nil {
			a.U[i], a.Away[i] = u, 0
		}
		if a.Forget > 0 && a.Away[i] >= a.Forget {
			a.U[i] = nil
		}
	}
	counted := a.U
	if a.Absent == Drop {
		counted = sent
	}
	if y := Mean(weights, counted); y != nil {
		a.Y = y
	}
	return a.Y
}

// restartAfter is the number of refused rounds in a row after which ADMM starts again.
const restartAfter = 3

// Refuse counts a round without a step. After three in a row ADMM restarts: y and all u_i become 0, and it returns
// true; the server then has the agents set y_i and λ_i to 0 too. [ADMM.Accept] ends the row.
func (a *ADMM) Refuse() (restart bool) {
	if a.Refused++; a.Refused < restartAfter {
		return false
	}
	a.Refused, a.Y = 0, make([]float64, len(a.Y))
	for i, u := range a.U {
		if u != nil {
			a.U[i] = make([]float64, len(u))
		}
	}
	return true
}

// Accept notes a round with a step.
func (a *ADMM) Accept() { a.Refused = 0 }

// StepKind says how far the server moves along y.
type StepKind string

// The steps of FedNPG-ADMM and FedNPG.
const (
	Trust StepKind = "trust" // η·sqrt(2δ/(gᵀy)): to the edge of the trust region (line 13)
	Fixed StepKind = "fixed" // η: the step that the paper's theorem is about
)

// TrustScale is η·sqrt(2δ/(gᵀy)) (line 13). It reports false where gᵀy ≤ 0 or is not finite, and so no root exists: y
// is old, or g is noise near the optimum. Departure: the paper does not see this case; here the round is then refused.
// A tiny positive gᵀy gives an unbounded step, which the line search shortens.
func TrustScale(g, y []float64, delta, eta float64) (float64, bool) {
	gain := Dot(g, y)
	scale := eta * math.Sqrt(2*delta/gain)
	return scale, scale > 0 && !math.IsInf(scale, 0)
}

// Theorem are the constants of the paper's theorem about the step [Fixed], for a policy and its return J.
type Theorem struct {
	G       float64 `yaml:"g,omitempty" want:">=0" zero:"not given" help:"bound of the norm of ∇log π; 0: not given"`
	Mu      float64 `yaml:"mu,omitempty" want:">=0" zero:"not given" help:"least eigenvalue of the Fisher matrix, at most g²; 0: not given"`
	L       float64 `yaml:"l,omitempty" want:">=0" zero:"not given" help:"bound of the curvature of the return J; 0: not given"`
	Gap     float64 `yaml:"gap,omitempty" want:">=0" zero:"not given" help:"what J can gain from the start on; 0: not given"`
	Epsilon float64 `yaml:"epsilon,omitempty" want:">=0" zero:"not given" help:"the mean of ‖∇J‖² to reach; 0: not given"`
}

// Eta is the theorem's step, μ²/(4G²(56G² + L)).
func (t Theorem) Eta() float64 { return t.Mu * t.Mu / (4 * t.G * t.G * (56*t.G*t.G + t.L)) }

// Rounds are enough for a mean of ‖∇J‖² over them of Epsilon at most, with the step Eta along exact directions H⁻¹∇J:
// 8G²·Gap/(7·η·Epsilon). For a round gains η(1/G² − Lη/(2μ²))‖∇J‖² at least, as μI ≤ H ≤ G²I, and Lη/(2μ²) ≤ 1/(8G²).
func (t Theorem) Rounds() float64 {
	return math.Ceil(8 * t.G * t.G * t.Gap / (7 * t.Eta() * t.Epsilon))
}

// Published are the rounds of the theorem itself, about directions from samples, which is of the order 1/((1−γ)²ε):
//
//	K = (Gap·(56G² + L)²·16G² + 28G²μ³) / ((56G² + L − 56G²μ)·μ²·Epsilon)
//
// It is infinite where μ is so large that the divisor is not above 0: the theorem then says nothing.
func (t Theorem) Published() float64 {
	g := t.G * t.G
	divisor := (56*g + t.L - 56*g*t.Mu) * t.Mu * t.Mu * t.Epsilon
	if divisor <= 0 {
		return math.Inf(1)
	}
	return ((t.Gap*(56*g+t.L)*(56*g+t.L)*16)*g + 28*g*t.Mu*t.Mu*t.Mu) / divisor
}

// Scale returns the factor of y in the step, or false for a refusal.
func (k StepKind) Scale(g, y []float64, delta, eta float64) (float64, bool) {
	if k == Fixed {
		return eta, Finite(y)
	}
	return TrustScale(g, y, delta, eta)
}
