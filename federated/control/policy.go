package control

import (
	"slices"

	"github.com/posttrain/posttrain/internal/float"
)

// policy is a network and a distribution; θ has the parameters of both, in this order. It has scratch space: it is not
// safe for concurrent use.
type policy struct {
	net     network
	head    distribution
	scratch []float64 // the tape of other parameters than θ
}

func (p *policy) parameters() int { return p.net.parameters() + p.head.parameters() }

// headParams are the head's parameters in θ, or in any vector of its length.
func (p *policy) headParams(theta []float64) []float64 { return theta[p.net.parameters():] }

// samples are n steps of an agent under θ.
type samples struct {
	n            int
	trajectories int // the one that the batch cuts counts
	observations []float64
	actions      []float64
	advantages   []float64 // [n]
	logp         []float64 // [n], of the actions under θ
	tapes        []float64 // [n, tape], under θ
}

// row is the i-th of n equal parts of values.
func (s *samples) row(values []float64, i int) []float64 {
	width := len(values) / s.n
	return values[i*width : (i+1)*width : (i+1)*width]
}

// cut keeps the first n steps.
func (s *samples) cut(n int) {
	for _, v := range []*[]float64{&s.observations, &s.actions, &s.advantages, &s.logp, &s.tapes} {
		*v = (*v)[:len(*v)/s.n*n]
	}
	s.n = n
}

// forward fills the tape of one observation and returns the outputs.
func (p *policy) forward(theta, x, tape []float64) []float64 {
	p.net.forward(theta, x, tape)
	return p.outputs(tape)
}

// outputs are the last numbers of a tape.
func (p *policy) outputs(tape []float64) []float64 { return tape[len(tape)-p.net.outputs():] }

// pass is a sample with the tape of its forward pass.
type pass struct{ observation, action, tape []float64 }

// pass is the pass of sample i under θ.
func (s *samples) pass(i int) pass {
	return pass{s.row(s.observations, i), s.row(s.actions, i), s.row(s.tapes, i)}
}

// passAt is the pass of sample i under other parameters than θ. Its tape is good until the next call.
func (p *policy) passAt(theta []float64, s *samples, i int) (x pass, out []float64) {
	p.scratch = slices.Grow(p.scratch[:0], p.net.tape())[:p.net.tape()]
	x = pass{s.row(s.observations, i), s.row(s.actions, i), p.scratch}
	return x, p.forward(theta, x.observation, x.tape)
}

// addGradient adds the gradient of weight·log π + entropy·(entropy of π) at a sample to g.
func (p *policy) addGradient(g, theta []float64, x pass, weight, entropy float64) {
	slope, out, own := make([]float64, p.net.outputs()), p.outputs(x.tape), p.headParams(theta)
	p.head.score(weight, out, own, x.action, slope, p.headParams(g))
	if entropy != 0 {
		p.head.entropySlope(entropy, out, own, slope, p.headParams(g))
	}
	p.net.backward(theta, x.observation, x.tape, slope, g)
}

// gradient is Σ (advantage·∇ log π + entropy·∇ entropy) / divisor at θ.
func (p *policy) gradient(theta []float64, s *samples, entropy, divisor float64) []float64 {
	g := make([]float64, len(theta))
	for i := range s.n {
		p.addGradient(g, theta, s.pass(i), s.advantages[i]/divisor, entropy/divisor)
	}
	return g
}

// objective adds the gradient of PPO's clipped objective at theta, the mean over some of the samples, and of the
// entropy. clip 0 does not clip.
func (p *policy) objective(theta []float64, s *samples, part []int, clip, entropy float64, g []float64) {
	n := float64(len(part))
	for _, i := range part {
		advantage := s.advantages[i]
		x, out := p.passAt(theta, s, i)
		ratio := float.Exp(p.head.logProb(out, p.headParams(theta), x.action) - s.logp[i])
		if clip > 0 && (advantage > 0 && ratio > 1+clip || advantage < 0 && ratio < 1-clip) {
			advantage = 0
		}
		p.addGradient(g, theta, x, ratio*advantage/n, entropy/n)
	}
}

// product is H·v, H the Hessian at θ of the mean KL(π_θ‖·) over the samples. There the gradient by the outputs is 0, so
// that H is exactly Jᵀ·M·J / n, M the head's metric.
func (p *policy) product(theta []float64, s *samples, v []float64) []float64 {
	h, change := make([]float64, len(theta)), make([]float64, p.net.outputs())
	for i := range s.n {
		x, slope := s.pass(i), make([]float64, len(change))
		p.net.derivative(theta, x.observation, x.tape, v, change)
		p.head.metric(p.outputs(x.tape), p.headParams(theta), change, p.headParams(v), slope, p.headParams(h))
		p.net.backward(theta, x.observation, x.tape, slope, h)
	}
	for i := range h {
		h[i] /= float64(s.n)
	}
	return h
}

// compare is the mean KL(π_θ‖π_other) over the samples, and the mean of ratio·advantage less that at θ.
func (p *policy) compare(theta, other []float64, s *samples) (kl, gain float64) {
	for i := range s.n {
		x, out := p.passAt(other, s, i)
		kl += p.head.kl(p.outputs(s.row(s.tapes, i)), p.headParams(theta), out, p.headParams(other))
		ratio := float.Exp(p.head.logProb(out, p.headParams(other), x.action) - s.logp[i])
		gain += (ratio - 1) * s.advantages[i]
	}
	return kl / float64(s.n), gain / float64(s.n)
}
