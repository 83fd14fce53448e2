package protocol

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/posttrain/posttrain/federated"
)

// Quadratic is the smallest workload: the return is −½(θ−best)ᵀQ(θ−best). Tests of servers and networks use it, and
// measurements of time, where an agent's work is a pause. All agents of a run have the same, but for Pause.
type Quadratic struct {
	Curvature []float64 // Q: [d] its diagonal, or [d·d] row by row, symmetric and positive semi-definite
	Best      []float64 // [d]
	Begin     []float64 // [d]
	Noise     float64   // standard deviation of what is added to each number of a gradient
	Pause     time.Duration

	agent int
	seed  uint64
}

// RandomQuadratic has d parameters, drawn from seed, without noise or pause.
func RandomQuadratic(d int, seed uint64) Quadratic {
	r := rand.New(rand.NewPCG(seed, 0x71756164))
	q := Quadratic{Curvature: make([]float64, d), Best: make([]float64, d), Begin: make([]float64, d)}
	for i := range d {
		q.Curvature[i], q.Best[i], q.Begin[i] = 0.5+r.Float64(), r.NormFloat64(), r.NormFloat64()
	}
	return q
}

// Of is the workload of an agent.
func (q Quadratic) Of(agent int, seed uint64) Workload {
	q.agent, q.seed = agent, seed
	return &q
}

// Identity has one tensor.
func (q *Quadratic) Identity() Identity {
	return Identity{Protocol: Version, Task: "quadratic",
		Tensors: []Tensor{{Name: "theta", Shape: []int{len(q.Best)}, Type: "float64"}}}
}

// Start is Begin.
func (q *Quadratic) Start() []float64 { return slices.Clone(q.Begin) }

// Collect pauses and draws the noise.
func (q *Quadratic) Collect(ctx context.Context, params []float64, version int) (Batch, error) {
	if err := CheckParams(params, len(q.Best), math.MaxFloat64); err != nil {
		return nil, err
	}
	if q.Pause > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(q.Pause):
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	b := &quadraticBatch{q, slices.Clone(params), make([]float64, len(params))}
	r := rand.New(rand.NewPCG(q.seed+uint64(q.agent)<<32, uint64(version)))
	for i := range b.noise {
		b.noise[i] = q.Noise * r.NormFloat64()
	}
	return b, nil
}

// quadraticBatch is the return around theta, with a slope of noise.
type quadraticBatch struct {
	*Quadratic
	theta []float64
	noise []float64
}

func (b *quadraticBatch) Stats() Stats {
	return Stats{Steps: 1, Episodes: 1, Return: b.Return(b.theta)}
}

// Return is −½(θ−best)ᵀQ(θ−best).
func (q *Quadratic) Return(theta []float64) float64 {
	off := federated.Difference(theta, q.Best)
	return -federated.Dot(off, q.times(off)) / 2
}

// times is Q·v.
func (q *Quadratic) times(v []float64) []float64 {
	d, out := len(v), make([]float64, len(v))
	for i := range out {
		if len(q.Curvature) == d {
			out[i] = q.Curvature[i] * v[i]
		} else {
			out[i] = federated.Dot(q.Curvature[i*d:(i+1)*d], v)
		}
	}
	return out
}

func (b *quadraticBatch) slope(theta []float64) []float64 {
	g := b.times(federated.Difference(b.Best, theta))
	for i, e := range b.noise {
		g[i] += e
	}
	return g
}

func (b *quadraticBatch) Gradient() ([]float64, error) { return b.slope(b.theta), nil }

// Product takes Q for the Fisher matrix, as if KL were ½(θ'−θ)ᵀQ(θ'−θ).
func (b *quadraticBatch) Product(v []float64) ([]float64, error) {
	if err := CheckLength(v, len(b.theta)); err != nil {
		return nil, err
	}
	return b.times(v), nil
}

// Search has finite numbers only: what overflows is cut.
func (b *quadraticBatch) Search(direction []float64, scales []float64) (kl, gain []float64, err error) {
	if err := CheckLength(direction, len(b.theta)); err != nil {
		return nil, nil, err
	}
	curvature, slope := federated.Dot(direction, b.times(direction)), federated.Dot(direction, b.slope(b.theta))
	for _, s := range scales {
		half := s * s * curvature / 2
		kl = append(kl, min(half, math.MaxFloat64))
		gain = append(gain, max(s*slope-half, -math.MaxFloat64))
	}
	return kl, gain, nil
}

// Train makes Epochs steps of rate LR along the gradient.
func (b *quadraticBatch) Train(ctx context.Context, how Local) ([]float64, error) {
	theta := slices.Clone(b.theta)
	for range how.Epochs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for i, g := range b.slope(theta) {
			theta[i] += how.LR * g
		}
	}
	return federated.Difference(theta, b.theta), nil
}
