package control

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"

	"github.com/posttrain/posttrain/internal/float"
)

// distribution is a family of distributions over actions, chosen by a function's outputs and by parameters of its own.
type distribution interface {
	parameters() int // its own
	sample(r *rand.Rand, out, own, action []float64)
	logProb(out, own, action []float64) float64
	// score adds weight·∂ log π(action) by the outputs and by its own parameters.
	score(weight float64, out, own, action, slope, ownSlope []float64)
	entropy(out, own []float64) float64
	// entropySlope adds weight·∂ entropy.
	entropySlope(weight float64, out, own, slope, ownSlope []float64)
	// kl is KL(old‖new).
	kl(oldOut, oldOwn, out, own []float64) float64
	// metric adds M·v, where M is the Hessian of KL(old‖·) at old, for the outputs and for its own parameters.
	metric(out, own, v, ownV, slope, ownSlope []float64)
}

// categorical has logits as outputs; an action is one index.
type categorical struct{ p, q []float64 } // scratch

func newCategorical(n int) *categorical { return &categorical{make([]float64, n), make([]float64, n)} }

func (c *categorical) parameters() int { return 0 }

// normalize writes the log-probabilities of logits.
func normalize(out, logp []float64) {
	most := math.Inf(-1)
	for _, x := range out {
		most = max(most, x)
	}
	sum := 0.0
	for _, x := range out {
		sum += float.Exp(x - most)
	}
	sum = most + math.Log(sum)
	for i, x := range out {
		logp[i] = x - sum
	}
}

// softmax writes the probabilities of logits.
func softmax(out, p []float64) {
	normalize(out, p)
	for i, x := range p {
		p[i] = float.Exp(x)
	}
}

func (c *categorical) sample(r *rand.Rand, out, _, action []float64) {
	softmax(out, c.p)
	u, last := r.Float64(), len(c.p)-1
	for i, p := range c.p[:last] {
		if u -= p; u < 0 {
			action[0] = float64(i)
			return
		}
	}
	action[0] = float64(last)
}

func (c *categorical) logProb(out, _, action []float64) float64 {
	normalize(out, c.p)
	return c.p[int(action[0])]
}

func (c *categorical) score(weight float64, out, _, action, slope, _ []float64) {
	softmax(out, c.p)
	for i, p := range c.p {
		slope[i] -= weight * p
	}
	slope[int(action[0])] += weight
}

func (c *categorical) entropy(out, _ []float64) (h float64) {
	normalize(out, c.p)
	for _, l := range c.p {
		h -= float.Exp(l) * l
	}
	return h
}

func (c *categorical) entropySlope(weight float64, out, _, slope, _ []float64) {
	h := c.entropy(out, nil)
	for i, l := range c.p {
		slope[i] -= weight * float.Exp(l) * (l + h)
	}
}

func (c *categorical) kl(oldOut, _, out, _ []float64) (d float64) {
	normalize(oldOut, c.p)
	normalize(out, c.q)
	for i, l := range c.p {
		d += float.Exp(l) * (l - c.q[i])
	}
	return d
}

func (c *categorical) metric(out, _, v, _, slope, _ []float64) {
	softmax(out, c.p)
	mean := floats.Dot(c.p, v)
	for i, p := range c.p {
		slope[i] += p * (v[i] - mean)
	}
}

// gaussian has means as outputs, and the logarithms of the standard deviations as its own parameters.
type gaussian struct{ n int }

func (g gaussian) parameters() int { return g.n }

func (g gaussian) sample(r *rand.Rand, out, own, action []float64) {
	for i, mean := range out {
		action[i] = mean + float.Exp(own[i])*r.NormFloat64()
	}
}

var logRoot2Pi = math.Log(2*math.Pi) / 2

func (g gaussian) logProb(out, own, action []float64) (l float64) {
	for i, mean := range out {
		z := (action[i] - mean) * float.Exp(-own[i])
		l -= z*z/2 + own[i] + logRoot2Pi
	}
	return l
}

func (g gaussian) score(weight float64, out, own, action, slope, ownSlope []float64) {
	for i, mean := range out {
		inverse := float.Exp(-own[i])
		z := (action[i] - mean) * inverse
		slope[i] += weight * z * inverse
		ownSlope[i] += weight * (z*z - 1)
	}
}

func (g gaussian) entropy(_, own []float64) (h float64) {
	for _, l := range own {
		h += l + logRoot2Pi + 0.5
	}
	return h
}

func (g gaussian) entropySlope(weight float64, _, _, _, ownSlope []float64) {
	for i := range ownSlope {
		ownSlope[i] += weight
	}
}

func (g gaussian) kl(oldOut, oldOwn, out, own []float64) (d float64) {
	for i, mean := range out {
		z := (oldOut[i] - mean) * float.Exp(-own[i])
		d += own[i] - oldOwn[i] + (float.Exp(2*(oldOwn[i]-own[i]))+z*z-1)/2
	}
	return d
}

func (g gaussian) metric(_, own, v, ownV, slope, ownSlope []float64) {
	for i, x := range v {
		slope[i] += x * float.Exp(-2*own[i])
		ownSlope[i] += 2 * ownV[i]
	}
}
