package protocol

import (
	"fmt"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/internal/adamw"
)

// The server's rules of afedpg, fedpg and vanilla.
const (
	Normalized = "normalized" // the papers': momentum, steps of a given length, lookahead
	AdamW      = "adamw"      // the trainer's own
)

// adam is the trainer's AdamW at the server, in float32 and on less the gradient, which is that of a loss. With one
// agent a run makes the bits of a training run: the step is made elsewhere, nothing else differs.
type adam struct {
	o       Options
	tensors []Tensor
	state   adamw.State
	weights []float32 // [d], which the state shares
	now     []float64 // the same
	steps   int
}

// newRule is the rule of the options.
func newRule(o Options, start []float64) rule {
	if *o.Rule == AdamW {
		return newAdam(o, start)
	}
	return newMomentum(o, start)
}

func newAdam(o Options, start []float64) *adam {
	a := &adam{o: o, tensors: o.Tensors, weights: federated.Narrow(start)}
	if a.tensors == nil {
		a.tensors = []Tensor{{Shape: []int{len(start)}}}
	}
	a.state = NewAdamW(a.weights, a.tensors)
	a.now = federated.Widen(a.weights)
	return a
}

// checkTensors wants those of d parameters.
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

func (a *adam) theta() []float64 { return a.now }
func (a *adam) sent() []float64  { return a.now }

// step makes an update by the mean of the gradients, with the rate of its number.
func (a *adam) step(gradients [][]float64, versions []int) map[string]float64 {
	oldest, equal := versions[0], make([]float64, len(gradients))
	for i, v := range versions {
		oldest, equal[i] = min(oldest, v), 1
	}
	rate, loss := a.rate(), federated.Narrow(federated.Scaled(-1, federated.Mean(equal, gradients)))
	a.steps++
	a.state.Update(a.o.AdamW.rule(), Split(loss, a.tensors), a.steps, rate, adamw.InOrder)
	a.now = federated.Widen(a.weights)
	return map[string]float64{"delay": float64(a.steps - oldest), "eta": rate}
}

// rate rises from 0 to lr over the warm-up, as train.Schedule has it.
func (a *adam) rate() float64 {
	if warmup := *a.o.AdamW.Warmup; a.steps < warmup {
		return *a.o.LR * float64(a.steps) / float64(warmup)
	}
	return *a.o.LR
}

func (a *adam) save() map[string][]float64 {
	vectors := map[string][]float64{"theta": a.now}
	for name, parts := range map[string][][]float32{"first": a.state.First, "second": a.state.Second} {
		for _, p := range parts {
			vectors[name] = append(vectors[name], federated.Widen(p)...)
		}
	}
	return vectors
}

func (a *adam) load(steps int, vectors map[string][]float64) error {
	a.steps = steps
	for name, parts := range map[string][][]float32{"theta": a.state.Weights, "first": a.state.First,
		"second": a.state.Second} {
		v, err := vector(vectors, name)
		if err != nil {
			return err
		}
		for i, p := range Split(federated.Narrow(v), a.tensors) {
			copy(parts[i], p)
		}
	}
	a.now = federated.Widen(a.weights)
	return nil
}
