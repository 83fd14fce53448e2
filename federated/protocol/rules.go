package protocol

import (
	"fmt"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/float"
)

// The server's rules of afedpg, fedpg and vanilla.
const (
	Normalized = "normalized" // the papers': momentum, steps of a given length, lookahead
	AdamW      = "adamw"      // the trainer's own
)

// rule is a server's step along one gradient. Its exported fields are in snapshots.
type rule interface {
	theta() []float64
	// sent is what agents work at.
	agentParams() []float64
	// step applies the gradient g, made at version, and returns its metrics.
	step(g []float64, version int) map[string]float64
}

func newRule(o Options, start []float64) rule {
	switch {
	case o.Method == A3C:
		return &a3c{federated.NewA3C(start, *o.LR)}
	case *o.Rule == AdamW:
		return newAdam(o, start)
	}
	s := federated.NewAFedPG(start, o.schedule(len(start)))
	s.Vanilla = o.Method == Vanilla
	return &momentum{s}
}

// momentum is the step of AFedPG, vanilla and FedPG.
type momentum struct{ *federated.AFedPG }

func (m *momentum) theta() []float64       { return m.Theta }
func (m *momentum) agentParams() []float64 { return m.Tilde }

func (m *momentum) step(g []float64, version int) map[string]float64 {
	did := m.Step(g, version)
	return map[string]float64{"delay": float64(did.Delay), "alpha": did.Alpha, "eta": did.Eta,
		"direction_norm": did.Norm}
}

// a3c passes every gradient through RMSProp.
type a3c struct{ *federated.A3C }

func (a *a3c) theta() []float64       { return a.Theta }
func (a *a3c) agentParams() []float64 { return a.Theta }

func (a *a3c) step(g []float64, version int) map[string]float64 {
	a.Step(g)
	return map[string]float64{"delay": float64(a.K - version)}
}

// adam is the trainer's AdamW at the server, in float32. It takes the negative gradient, which is a loss's. With one
// agent a run makes the bits of a training run: the step is made elsewhere, nothing else differs.
type adam struct {
	o       Options
	tensors []Tensor

	Theta         []float64 `json:"-"` // of float32 numbers, as are the moments
	First, Second []float64 `json:"-"`
	Steps         int
}

func newAdam(o Options, start []float64) *adam {
	d, tensors := len(start), o.Tensors
	if tensors == nil {
		tensors = []Tensor{{Shape: []int{d}}}
	}
	return &adam{o, tensors, federated.Widen(federated.Narrow(start)), make([]float64, d), make([]float64, d), 0}
}

func (a *adam) theta() []float64       { return a.Theta }
func (a *adam) agentParams() []float64 { return a.Theta }

// step makes an update with the rate of its number.
func (a *adam) step(g []float64, version int) map[string]float64 {
	rate := a.rate()
	weights, first, second := federated.Narrow(a.Theta), federated.Narrow(a.First), federated.Narrow(a.Second)
	state := adamwState(weights, first, second, a.tensors)
	a.Steps++
	loss := federated.Narrow(federated.Scaled(-1, g))
	state.Update(a.o.AdamW.rule(), Split(loss, a.tensors), a.Steps, rate, float.InOrder)
	a.Theta, a.First, a.Second = federated.Widen(weights), federated.Widen(first), federated.Widen(second)
	return map[string]float64{"delay": float64(a.Steps - version), "eta": rate}
}

// rate rises from 0 to lr over the warm-up, as train.Schedule has it.
func (a *adam) rate() float64 {
	if warmup := *a.o.AdamW.Warmup; a.Steps < warmup {
		return *a.o.LR * float64(a.Steps) / float64(warmup)
	}
	return *a.o.LR
}

// NewAdamW has weights [d], which it shares, and moments of zero.
func NewAdamW(weights []float32, tensors []Tensor) adamw.State {
	return adamwState(weights, make([]float32, len(weights)), make([]float32, len(weights)), tensors)
}

func adamwState(weights, first, second []float32, tensors []Tensor) adamw.State {
	s := adamw.State{Weights: Split(weights, tensors), First: Split(first, tensors), Second: Split(second, tensors)}
	for _, t := range tensors {
		s.NoDecay = append(s.NoDecay, t.NoDecay)
	}
	return s
}

// Split cuts numbers in the order of θ into a part for each tensor, which shares memory with them.
func Split[T any](flat []T, tensors []Tensor) (parts [][]T) {
	for _, t := range tensors {
		n := t.size()
		parts, flat = append(parts, flat[:n:n]), flat[n:]
	}
	return parts
}

// size is the number of its numbers.
func (t Tensor) size() int {
	n := 1
	for _, k := range t.Shape {
		n *= k
	}
	return n
}

// checkTensors wants tensors of d parameters.
func checkTensors(tensors []Tensor, d int) error {
	n := 0
	for _, t := range tensors {
		n += t.size()
	}
	if tensors != nil && n != d {
		return fmt.Errorf("tensors of %d numbers: want %d, as there are parameters", n, d)
	}
	return nil
}
