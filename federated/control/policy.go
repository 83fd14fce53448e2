package control

import "math"

// policy is a function and a distribution; θ has the parameters of both, in this order. It has scratch space: it is not
// safe for concurrent use.
type policy struct {
	net        function
	head       distribution
	tape       []float64 // of one sample
	slope, out []float64 // of one sample's outputs
}

func newPolicy(net function, head distribution) *policy {
	return &policy{net, head, make([]float64, net.tape()), make([]float64, net.outputs()),
		make([]float64, net.outputs())}
}

func (p *policy) parameters() int { return p.net.parameters() + p.head.parameters() }

// own are the head's parameters in θ, or in any vector of its length.
func (p *policy) own(theta []float64) []float64 { return theta[p.net.parameters():] }

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

// outputs are the last numbers of a tape.
func (p *policy) outputs(tape []float64) []float64 { return tape[len(tape)-len(p.slope):] }

// record fills tapes and logp under θ.
func (p *policy) record(theta []float64, s *samples) {
	for i := range s.n {
		tape := s.row(s.tapes, i)
		p.net.forward(theta, s.row(s.observations, i), tape)
		s.logp[i] = p.head.logProb(p.outputs(tape), p.own(theta), s.row(s.actions, i))
	}
}

// gradient is Σ (advantage·∇ log π + entropy·∇ entropy) / divisor at θ.
func (p *policy) gradient(theta []float64, s *samples, entropy, divisor float64) []float64 {
	g := make([]float64, len(theta))
	for i := range s.n {
		clear(p.slope)
		tape := s.row(s.tapes, i)
		out, own := p.outputs(tape), p.own(theta)
		p.head.score(s.advantages[i]/divisor, out, own, s.row(s.actions, i), p.slope, p.own(g))
		if entropy != 0 {
			p.head.entropySlope(entropy/divisor, out, own, p.slope, p.own(g))
		}
		p.net.backward(theta, s.row(s.observations, i), tape, p.slope, g)
	}
	return g
}

// product is H·v, H the Hessian at θ of the mean KL(π_θ‖·) over the samples. There the gradient by the outputs is 0, so
// that H is exactly Jᵀ·M·J / n, M the head's metric.
func (p *policy) product(theta []float64, s *samples, v []float64) []float64 {
	h := make([]float64, len(theta))
	for i := range s.n {
		tape, x := s.row(s.tapes, i), s.row(s.observations, i)
		p.net.derivative(theta, x, tape, v, p.out)
		clear(p.slope)
		p.head.metric(p.outputs(tape), p.own(theta), p.out, p.own(v), p.slope, p.own(h))
		p.net.backward(theta, x, tape, p.slope, h)
	}
	for i := range h {
		h[i] /= float64(s.n)
	}
	return h
}

// compare is the mean KL(π_θ‖π_other) over the samples, and the mean of ratio·advantage less that at θ.
func (p *policy) compare(theta, other []float64, s *samples) (kl, gain float64) {
	for i := range s.n {
		p.net.forward(other, s.row(s.observations, i), p.tape)
		out, own := p.outputs(p.tape), p.own(other)
		kl += p.head.kl(p.outputs(s.row(s.tapes, i)), p.own(theta), out, own)
		ratio := math.Exp(p.head.logProb(out, own, s.row(s.actions, i)) - s.logp[i])
		gain += (ratio - 1) * s.advantages[i]
	}
	return kl / float64(s.n), gain / float64(s.n)
}

// objective adds the gradient of PPO's clipped objective at theta, the mean over a part of the samples, and of the
// entropy. clip 0 does not clip.
func (p *policy) objective(theta []float64, s *samples, part []int, clip, entropy float64, g []float64) {
	n := float64(len(part))
	for _, i := range part {
		x, action, advantage := s.row(s.observations, i), s.row(s.actions, i), s.advantages[i]
		p.net.forward(theta, x, p.tape)
		out, own := p.outputs(p.tape), p.own(theta)
		ratio := math.Exp(p.head.logProb(out, own, action) - s.logp[i])
		if clip > 0 && (advantage > 0 && ratio > 1+clip || advantage < 0 && ratio < 1-clip) {
			advantage = 0
		}
		clear(p.slope)
		p.head.score(ratio*advantage/n, out, own, action, p.slope, p.own(g))
		if entropy != 0 {
			p.head.entropySlope(entropy/n, out, own, p.slope, p.own(g))
		}
		p.net.backward(theta, x, p.tape, p.slope, g)
	}
}
