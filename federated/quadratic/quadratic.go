// Package quadratic is the smallest workload: the return is −½(θ−best)ᵀQ(θ−best). Tests of servers and networks use it,
// and measurements of time, where an agent's work is a pause.
package quadratic

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
)

// Options are the same for all agents of a run, but for Pause.
type Options struct {
	Curvature []float64 // Q: [d] its diagonal, or [d·d] row by row, symmetric and positive semi-definite
	Best      []float64 // [d]
	Start     []float64 // [d]
	Noise     float64   // standard deviation of what is added to each number of a gradient
	Pause     time.Duration
}

// Random returns options of d parameters, drawn from seed, without noise or pause.
func Random(d int, seed uint64) Options {
	r := rand.New(rand.NewPCG(seed, 0x71756164))
	o := Options{Curvature: make([]float64, d), Best: make([]float64, d), Start: make([]float64, d)}
	for i := range d {
		o.Curvature[i], o.Best[i], o.Start[i] = 0.5+r.Float64(), r.NormFloat64(), r.NormFloat64()
	}
	return o
}

// Workload implements [protocol.Workload].
type Workload struct {
	options Options
	agent   int
	seed    uint64
}

// New makes the workload of an agent.
func New(o Options, agent int, seed uint64) (*Workload, error) {
	d := len(o.Best)
	if n := len(o.Curvature); d == 0 || len(o.Start) != d || n != d && n != d*d {
		return nil, fmt.Errorf("quadratic: best %d, start %d, curvature %d numbers: want d, d, and d or d·d", d,
			len(o.Start), n)
	}
	if !(o.Noise >= 0) || o.Pause < 0 {
		return nil, fmt.Errorf("quadratic: noise %v, pause %v: want 0 or more", o.Noise, o.Pause)
	}
	return &Workload{o, agent, seed}, nil
}

// Identity has one tensor.
func (w *Workload) Identity() protocol.Identity {
	return protocol.Identity{Protocol: protocol.Version, Task: "quadratic",
		Tensors: []protocol.Tensor{{Name: "theta", Shape: []int{len(w.options.Best)}, Type: "float64"}}}
}

// Start is Options.Start.
func (w *Workload) Start() []float64 { return slices.Clone(w.options.Start) }

// Collect pauses and draws the noise.
func (w *Workload) Collect(ctx context.Context, params []float64, version int) (protocol.Batch, error) {
	if len(params) != len(w.options.Best) {
		return nil, fmt.Errorf("%d parameters: want %d", len(params), len(w.options.Best))
	}
	for i, p := range params {
		if math.IsNaN(p) || math.IsInf(p, 0) {
			return nil, fmt.Errorf("parameter %d is %v: want a finite number", i, p)
		}
	}
	if err := wait(ctx, w.options.Pause); err != nil {
		return nil, err
	}
	b := &batch{w.options, slices.Clone(params), make([]float64, len(params))}
	r := rand.New(rand.NewPCG(w.seed+uint64(w.agent)<<32, uint64(version)))
	for i := range b.noise {
		b.noise[i] = w.options.Noise * r.NormFloat64()
	}
	return b, nil
}

func wait(ctx context.Context, pause time.Duration) error {
	if pause == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// State is empty: an agent learns nothing for itself.
func (w *Workload) State() (protocol.State, error) {
	return protocol.State{Head: json.RawMessage("{}")}, nil
}

// Restore takes back an empty state.
func (w *Workload) Restore(s protocol.State) error {
	if err := json.Unmarshal(s.Head, &struct{}{}); err != nil {
		return fmt.Errorf("state of quadratic: %w", err)
	}
	return nil
}

// batch is the return around theta, with a slope of noise.
type batch struct {
	options Options
	theta   []float64
	noise   []float64
}

func (b *batch) Stats() protocol.Stats {
	return protocol.Stats{Steps: 1, Episodes: 1, Return: b.options.Return(b.theta)}
}

// Return is −½(θ−best)ᵀQ(θ−best).
func (o Options) Return(theta []float64) float64 {
	off := federated.Difference(theta, o.Best)
	return -federated.Dot(off, o.times(off)) / 2
}

// times is Q·v.
func (o Options) times(v []float64) []float64 {
	d, out := len(v), make([]float64, len(v))
	for i := range out {
		if len(o.Curvature) == d {
			out[i] = o.Curvature[i] * v[i]
		} else {
			out[i] = federated.Dot(o.Curvature[i*d:(i+1)*d], v)
		}
	}
	return out
}

func (b *batch) slope(theta []float64) []float64 {
	g := b.options.times(federated.Difference(b.options.Best, theta))
	for i, e := range b.noise {
		g[i] += e
	}
	return g
}

func (b *batch) Gradient() ([]float64, error) { return b.slope(b.theta), nil }

// Product takes Q for the Fisher matrix, as if KL were ½(θ'−θ)ᵀQ(θ'−θ).
func (b *batch) Product(v []float64) ([]float64, error) {
	if len(v) != len(b.theta) {
		return nil, fmt.Errorf("vector of %d numbers: want %d", len(v), len(b.theta))
	}
	return b.options.times(v), nil
}

// Search has finite numbers only: what overflows is cut.
func (b *batch) Search(direction []float64, scales []float64) (kl, gain []float64, err error) {
	if len(direction) != len(b.theta) {
		return nil, nil, fmt.Errorf("direction of %d numbers: want %d", len(direction), len(b.theta))
	}
	curvature, slope := federated.Dot(direction, b.options.times(direction)), federated.Dot(direction, b.slope(b.theta))
	for _, s := range scales {
		half := s * s * curvature / 2
		kl = append(kl, min(half, math.MaxFloat64))
		gain = append(gain, max(s*slope-half, -math.MaxFloat64))
	}
	return kl, gain, nil
}

// Train makes Epochs steps of rate LR along the gradient.
func (b *batch) Train(ctx context.Context, how protocol.Local) ([]float64, error) {
	theta := slices.Clone(b.theta)
	for range how.Epochs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for i, g := range b.slope(theta) {
			theta[i] = (theta[i] + how.LR*g + how.LR*how.Proximal*b.theta[i]) / (1 + how.LR*how.Proximal)
		}
	}
	return federated.Difference(theta, b.theta), nil
}
