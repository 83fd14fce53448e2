package federated

import (
	"math"
	"slices"
)

// Schedule gives α_k and η_k for k = 0, 1, …. α_k belongs to the version of the parameters that a gradient was made at,
// η_k to the step that leads to version k+1.
type Schedule struct {
	Kind  ScheduleKind
	Alpha float64 // of Constant, in (0, 1]
	Eta   float64 // η_0: the length of the first step
}

// ScheduleKind names a schedule.
type ScheduleKind string

// The schedules of AFedPG.
const (
	Constant ScheduleKind = "constant" // α, η_0: the paper's experiments
	Global   ScheduleKind = "global"   // α_k = (k+1)^(-4/5), η_k = η_0/(k+1): the theorem of global convergence
	FOSP     ScheduleKind = "fosp"     // α_k = (k+1)^(-4/7), η_k = η_0·(k+1)^(-5/7): first-order stationary points
)

// AlphaAt is α_k.
func (s Schedule) AlphaAt(k int) float64 {
	switch s.Kind {
	case Global:
		return math.Pow(float64(k+1), -4.0/5)
	case FOSP:
		return math.Pow(float64(k+1), -4.0/7)
	}
	return s.Alpha
}

// EtaAt is η_k.
func (s Schedule) EtaAt(k int) float64 {
	switch s.Kind {
	case Global:
		return s.Eta / float64(k+1)
	case FOSP:
		return s.Eta * math.Pow(float64(k+1), -5.0/7)
	}
	return s.Eta
}

// EtaOfRate is the length of a step whose d numbers have the root mean square lr, as a step of Adam at that rate has.
// Departure: the published rates (3e-4 with α = 1e-3) are Adam's, and as η they would move θ by 0.3 in a whole run.
func EtaOfRate(lr float64, d int) float64 { return lr * math.Sqrt(float64(d)) }

// AFedPG is the server of AFedPG, and of its baselines: without lookahead it is vanilla asynchronous policy gradient;
// fed with the mean gradient of all agents it is FedPG, with one agent's alone PG.
//
//	k ← k+1;  α = α_{k′}, k′ the version of the gradient
//	d ← (1−α)·d + α·g
//	θ_k = θ_{k−1} + η_{k−1}·d/‖d‖
//	θ̃_k = θ_k + ((1−α)/α)·(θ_k − θ_{k−1})
//
// The agent whose gradient came is sent θ̃_k and k. (1−α)(θ_{k−1}−θ_k) + α(θ̃_k−θ_k) = 0 removes the Hessian terms of
// the error, and ‖θ_k−θ_{k−1}‖ = η bounds what one late gradient can do.
//
// Departures: d_0, which the paper leaves open, is 0, so the first direction is along g. If ‖d‖ ≤ 1e-12 there is no
// direction: θ stays, θ̃ = θ, and the version counts up. The momentum d is the server's; the paper's sentences of
// agents that send d, and of θ − η·d, contradict its algorithms.
type AFedPG struct {
	Theta []float64 `json:"-"` // [d] θ_k
	Tilde []float64 `json:"-"` // [d] θ̃_k, what agents work at
	D     []float64 `json:"-"` // [d] the direction
	K     int       // the version: updates applied

	Schedule Schedule
	Vanilla  bool // no lookahead: θ̃ = θ
}

// NewAFedPG starts at theta, which it copies.
func NewAFedPG(theta []float64, schedule Schedule) *AFedPG {
	return &AFedPG{slices.Clone(theta), slices.Clone(theta), make([]float64, len(theta)), 0, schedule, false}
}

// AFedPGStep says what a step did.
type AFedPGStep struct {
	Delay int     // k - k′ after the step; 1 is not late
	Alpha float64 // α of the gradient's version
	Eta   float64 // length of the step
	Norm  float64 // ‖d‖; at most 1e-12: θ stayed
}

const noDirection = 1e-12

// Step applies the gradient g, [d], that was made at version. It replaces the slices of the server and never writes to
// the old ones, so those that were sent stay as they were.
func (s *AFedPG) Step(g []float64, version int) AFedPGStep {
	step := AFedPGStep{s.K + 1 - version, s.Schedule.AlphaAt(version), s.Schedule.EtaAt(s.K), 0}
	s.K++
	s.D = Ahead(Scaled(1-step.Alpha, s.D), step.Alpha, g)
	step.Norm = Norm(s.D)
	before := s.Theta
	if step.Norm > noDirection {
		s.Theta = Ahead(before, step.Eta/step.Norm, s.D)
	}
	s.Tilde = slices.Clone(s.Theta)
	if !s.Vanilla {
		AddScaled(s.Tilde, (1-step.Alpha)/step.Alpha, Difference(s.Theta, before))
	}
	return step
}
