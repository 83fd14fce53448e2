package control

import (
	"slices"

	"github.com/posttrain/posttrain/internal/float"
)

// policy is a function and a distribution; θ has the parameters of both, in this order. It has scratch space: it is not
// safe for concurrent use.
type policy struct {
	one  function // of the step that is sampled
	net  network  // of batches
	head distribution
	tape []float64 // of one
	room []float64 // tapes of net
}

func newPolicy(net function, head distribution) *policy {
	return &policy{one: net, net: rows{net}, head: head, tape: make([]float64, net.tape())}
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
func (s *samples) row(values []float64, i int) []float64 { return rowOf(values, s.n, i) }

// part are some of the samples, without tapes.
func (s *samples) part(indices []int) *samples {
	few := &samples{n: len(indices)}
	for _, i := range indices {
		few.observations = append(few.observations, s.row(s.observations, i)...)
		few.actions = append(few.actions, s.row(s.actions, i)...)
		few.advantages, few.logp = append(few.advantages, s.advantages[i]), append(few.logp, s.logp[i])
	}
	return few
}

// outputs are the last numbers of a tape.
func (p *policy) outputs(tape []float64) []float64 { return tape[len(tape)-p.net.outputs():] }

// step fills the tape of one observation and returns the outputs.
func (p *policy) step(theta, x, tape []float64) []float64 {
	p.one.forward(theta, x, p.tape)
	copy(tape, p.tape[len(p.tape)-len(tape):])
	return p.outputs(tape)
}

// record fills tapes and logp under θ.
func (p *policy) record(theta []float64, s *samples) error {
	err := p.net.forward(theta, s.observations, s.tapes)
	for i := range s.n {
		s.logp[i] = p.head.logProb(p.outputs(s.row(s.tapes, i)), p.own(theta), s.row(s.actions, i))
	}
	return err
}

// gradient is Σ (advantage·∇ log π + entropy·∇ entropy) / divisor at θ.
func (p *policy) gradient(theta []float64, s *samples, entropy, divisor float64) ([]float64, error) {
	g, slopes := make([]float64, len(theta)), make([]float64, s.n*p.net.outputs())
	for i := range s.n {
		slope, out, own := s.row(slopes, i), p.outputs(s.row(s.tapes, i)), p.own(theta)
		p.head.score(s.advantages[i]/divisor, out, own, s.row(s.actions, i), slope, p.own(g))
		if entropy != 0 {
			p.head.entropySlope(entropy/divisor, out, own, slope, p.own(g))
		}
	}
	return g, p.net.backward(theta, s.observations, s.tapes, slopes, g)
}

// product is H·v, H the Hessian at θ of the mean KL(π_θ‖·) over the samples. There the gradient by the outputs is 0, so
// that H is exactly Jᵀ·M·J / n, M the head's metric.
func (p *policy) product(theta []float64, s *samples, v []float64) ([]float64, error) {
	h, change := make([]float64, len(theta)), make([]float64, s.n*p.net.outputs())
	if err := p.net.derivative(theta, s.observations, s.tapes, v, change); err != nil {
		return nil, err
	}
	slopes := make([]float64, len(change))
	for i := range s.n {
		out := p.outputs(s.row(s.tapes, i))
		p.head.metric(out, p.own(theta), s.row(change, i), p.own(v), s.row(slopes, i), p.own(h))
	}
	err := p.net.backward(theta, s.observations, s.tapes, slopes, h)
	for i := range h {
		h[i] /= float64(s.n)
	}
	return h, err
}

// compare is the mean KL(π_θ‖π_other) over the samples, and the mean of ratio·advantage less that at θ.
func (p *policy) compare(theta, other []float64, s *samples) (kl, gain float64, err error) {
	tapes := p.tapes(s.n)
	err = p.net.forward(other, s.observations, tapes)
	for i := range s.n {
		out, own := p.outputs(s.row(tapes, i)), p.own(other)
		kl += p.head.kl(p.outputs(s.row(s.tapes, i)), p.own(theta), out, own)
		ratio := float.Exp(p.head.logProb(out, own, s.row(s.actions, i)) - s.logp[i])
		gain += (ratio - 1) * s.advantages[i]
	}
	return kl / float64(s.n), gain / float64(s.n), err
}

// tapes are room for n, until the next call.
func (p *policy) tapes(n int) []float64 {
	n *= p.net.tape()
	p.room = slices.Grow(p.room[:0], n)
	return p.room[:n]
}

// objective adds the gradient of PPO's clipped objective at theta, the mean over the samples, and of the entropy. clip 0
// does not clip.
func (p *policy) objective(theta []float64, s *samples, clip, entropy float64, g []float64) error {
	tapes, slopes, n := p.tapes(s.n), make([]float64, s.n*p.net.outputs()), float64(s.n)
	if err := p.net.forward(theta, s.observations, tapes); err != nil {
		return err
	}
	for i := range s.n {
		action, advantage, slope := s.row(s.actions, i), s.advantages[i], s.row(slopes, i)
		out, own := p.outputs(s.row(tapes, i)), p.own(theta)
		ratio := float.Exp(p.head.logProb(out, own, action) - s.logp[i])
		if clip > 0 && (advantage > 0 && ratio > 1+clip || advantage < 0 && ratio < 1-clip) {
			advantage = 0
		}
		p.head.score(ratio*advantage/n, out, own, action, slope, p.own(g))
		if entropy != 0 {
			p.head.entropySlope(entropy/n, out, own, slope, p.own(g))
		}
	}
	return p.net.backward(theta, s.observations, tapes, slopes, g)
}
