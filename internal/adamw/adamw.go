// Package adamw is one update of weights in host memory: AdamW (Loshchilov and Hutter 2019), after clipping by the
// global norm as PyTorch does it. The trainer and the server of a federated run share it, so that both make the same
// bits of the same gradients.
package adamw

import "math"

// Options are the constants of an update.
type Options struct {
	Beta1, Beta2, Epsilon float64
	WeightDecay           float64
	MaxNorm               float64 // 0: no clipping
}

// Factors are the numbers of update t = 1, 2, ….
type Factors struct {
	Rate  float64 // learning rate
	Decay float64 // what weights are multiplied with first
	Step  float64 // rate / (1 - beta1^t)
	Root  float64 // 1 / sqrt(1 - beta2^t)
}

// At has the factors of update t at a learning rate.
func (o Options) At(t int, rate float64) Factors {
	return Factors{
		Rate:  rate,
		Decay: 1 - rate*o.WeightDecay,
		Step:  rate / (1 - math.Pow(o.Beta1, float64(t))),
		Root:  1 / math.Sqrt(1-math.Pow(o.Beta2, float64(t))),
	}
}

// Clip is what gradients of this norm are multiplied with.
func (o Options) Clip(norm float64) float64 {
	if o.MaxNorm <= 0 {
		return 1
	}
	return math.Min(1, o.MaxNorm/(norm+1e-6))
}

// State is weights with their moments, by tensor.
type State struct {
	Weights, First, Second [][]float32
	NoDecay                []bool // by tensor
}

// Each calls f for 0 to n-1, in any order or at the same time. internal/float has both.
type Each func(n int, f func(i int))

// Update is update number t and returns the gradients' global norm before clipping. Where that is not finite, nothing
// changes. The result does not depend on each.
func (s *State) Update(o Options, grads [][]float32, t int, rate float64, each Each) (norm float64) {
	spans := Spans(s.Weights)
	norm = globalNorm(grads, spans, each)
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return norm
	}
	f, clip := o.At(t, rate), float32(o.Clip(norm))
	each(len(spans), func(k int) { s.step(spans[k], grads, o, f, clip) })
	return norm
}

// globalNorm adds the spans' partial sums in their order, so that it does not depend on which goroutine came first.
func globalNorm(grads [][]float32, spans []Span, each Each) float64 {
	parts := make([]float64, len(spans))
	each(len(spans), func(k int) {
		x := spans[k]
		parts[k] = sumSquares(grads[x.Tensor][x.From:x.To])
	})
	total := 0.0
	for _, p := range parts {
		total += p
	}
	return math.Sqrt(total)
}

func sumSquares(g []float32) float64 {
	var a, b, c, d float64
	for ; len(g) >= 4; g = g[4:] {
		a += float64(g[0]) * float64(g[0])
		b += float64(g[1]) * float64(g[1])
		c += float64(g[2]) * float64(g[2])
		d += float64(g[3]) * float64(g[3])
	}
	for _, v := range g {
		a += float64(v) * float64(v)
	}
	return a + b + c + d
}

// step is AdamW on one span, everything in one pass over memory.
func (s *State) step(x Span, grads [][]float32, o Options, f Factors, clip float32) {
	p, g := s.Weights[x.Tensor][x.From:x.To], grads[x.Tensor][x.From:x.To]
	m, v := s.First[x.Tensor][x.From:x.To], s.Second[x.Tensor][x.From:x.To]
	g, m, v = g[:len(p)], m[:len(p)], v[:len(p)]
	decay := float32(f.Decay)
	if s.NoDecay[x.Tensor] {
		decay = 1
	}
	b1, b2, step, root, eps := float32(o.Beta1), float32(o.Beta2), float32(f.Step), float32(f.Root),
		float32(o.Epsilon)
	c1, c2 := float32(1-o.Beta1), float32(1-o.Beta2)
	for i := range p {
		gi := g[i] * clip
		mi := b1*m[i] + c1*gi
		vi := b2*v[i] + c2*gi*gi
		m[i], v[i] = mi, vi
		p[i] = p[i]*decay - step*mi/(float32(math.Sqrt(float64(vi)))*root+eps)
	}
}

// Span is a stretch of one tensor, the unit of work of a goroutine.
type Span struct{ Tensor, From, To int }

// Spans cuts tensors into stretches.
func Spans(tensors [][]float32) (s []Span) {
	const most = 1 << 16
	for i, p := range tensors {
		for a := 0; a < len(p); a += most {
			s = append(s, Span{i, a, min(a+most, len(p))})
		}
	}
	return s
}
