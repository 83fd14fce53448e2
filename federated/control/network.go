package control

import (
	"math"
	"math/rand/v2"
)

// function maps an observation x to outputs, under parameters θ of which it uses as many as it has. The tape is what
// forward keeps for the other two. A function has scratch space: it is not safe for concurrent use.
type function interface {
	parameters() int
	outputs() int
	tape() int // numbers
	// forward fills the tape, whose last numbers are the outputs.
	forward(theta, x, tape []float64)
	// backward adds Jᵀ·slope to gradient; J is the outputs' Jacobian by θ. It overwrites slope.
	backward(theta, x, tape, slope, gradient []float64)
	// derivative writes J·v.
	derivative(theta, x, tape, v, out []float64)
}

// activation of a layer.
type activation int

const (
	linear activation = iota
	tanh
	relu
)

func (a activation) apply(x []float64) {
	switch a {
	case tanh:
		for i, v := range x {
			x[i] = math.Tanh(v)
		}
	case relu:
		for i, v := range x {
			x[i] = max(v, 0)
		}
	}
}

// chain multiplies d by the activation's derivative, from its values.
func (a activation) chain(values, d []float64) {
	switch a {
	case tanh:
		for i, v := range values {
			d[i] *= 1 - v*v
		}
	case relu:
		for i, v := range values {
			if v <= 0 {
				d[i] = 0
			}
		}
	}
}

// mlp is a network of dense layers. Its parameters are layer by layer the weights [out, in] and the biases [out].
type mlp struct {
	sizes        []int // inputs, hidden layers, outputs
	hidden, last activation
	a, b         []float64 // scratch: slopes or derivatives of two layers
}

func newMLP(inputs int, hidden []int, outputs int, inner, last activation) *mlp {
	sizes, widest := append(append([]int{inputs}, hidden...), outputs), 0
	for _, n := range sizes {
		widest = max(widest, n)
	}
	return &mlp{sizes, inner, last, make([]float64, widest), make([]float64, widest)}
}

func (m *mlp) parameters() (n int) {
	for i := 1; i < len(m.sizes); i++ {
		n += m.sizes[i] * (m.sizes[i-1] + 1)
	}
	return n
}

func (m *mlp) outputs() int { return m.sizes[len(m.sizes)-1] }

func (m *mlp) tape() (n int) {
	for _, s := range m.sizes[1:] {
		n += s
	}
	return n
}

func (m *mlp) activation(layer int) activation {
	if layer == len(m.sizes)-1 {
		return m.last
	}
	return m.hidden
}

// start draws weights of standard deviation 1/√inputs, times gain in the last layer; biases are 0.
func (m *mlp) start(r *rand.Rand, theta []float64, gain float64) {
	for l := 1; l < len(m.sizes); l++ {
		in, out := m.sizes[l-1], m.sizes[l]
		scale := 1 / math.Sqrt(float64(in))
		if l == len(m.sizes)-1 {
			scale *= gain
		}
		for i := range in * out {
			theta[i] = scale * r.NormFloat64()
		}
		clear(theta[in*out : (in+1)*out])
		theta = theta[(in+1)*out:]
	}
}

func (m *mlp) forward(theta, x, tape []float64) {
	for l := 1; l < len(m.sizes); l++ {
		in, out := m.sizes[l-1], m.sizes[l]
		y, bias := tape[:out], theta[in*out:(in+1)*out]
		multiply(theta[:in*out], x, y)
		for o, b := range bias {
			y[o] += b
		}
		m.activation(l).apply(y)
		x, theta, tape = y, theta[(in+1)*out:], tape[out:]
	}
}

func (m *mlp) backward(theta, x, tape, slope, gradient []float64) {
	at, end := m.parameters(), m.tape()
	for l := len(m.sizes) - 1; l > 0; l-- {
		in, out := m.sizes[l-1], m.sizes[l]
		at, end = at-(in+1)*out, end-out
		input := x
		if l > 1 {
			input = tape[end-in : end]
		}
		m.activation(l).chain(tape[end:end+out], slope)
		end := at + in*out
		addScaled(gradient[end:end+out], 1, slope[:out])
		addOuter(gradient[at:end], slope[:out], input)
		if l > 1 {
			below := m.a[:in]
			clear(below)
			addTransposed(below, slope[:out], theta[at:end])
			slope = below
			m.a, m.b = m.b, m.a
		}
	}
}

func (m *mlp) derivative(theta, x, tape, v, out []float64) {
	var dx []float64 // of the layer's input, which does not depend on θ in the first layer
	for l := 1; l < len(m.sizes); l++ {
		in, n := m.sizes[l-1], m.sizes[l]
		dy, bias := m.a[:n], v[in*n:(in+1)*n]
		for o := range dy {
			dy[o] = bias[o] + dot(v[o*in:(o+1)*in], x)
			if l > 1 {
				dy[o] += dot(theta[o*in:(o+1)*in], dx)
			}
		}
		m.activation(l).chain(tape[:n], dy)
		x, dx, theta, v, tape = tape[:n], dy, theta[(in+1)*n:], v[(in+1)*n:], tape[n:]
		m.a, m.b = m.b, m.a
	}
	copy(out, dx)
}

// multiply writes the products of the rows of w, [len(y), len(x)], and x. Four rows at a time use a number of x once.
func multiply(w, x, y []float64) {
	n := len(x)
	for len(y) >= 4 {
		a, b, c, d := w[:n], w[n:2*n], w[2*n:3*n], w[3*n:4*n]
		var s0, s1, s2, s3 float64
		for i, v := range x {
			s0 += a[i] * v
			s1 += b[i] * v
			s2 += c[i] * v
			s3 += d[i] * v
		}
		y[0], y[1], y[2], y[3] = s0, s1, s2, s3
		y, w = y[4:], w[4*n:]
	}
	for o := range y {
		y[o] = dot(w[o*n:(o+1)*n], x)
	}
}

// addOuter adds s·xᵀ to w, [len(s), len(x)].
func addOuter(w, s, x []float64) {
	n := len(x)
	for len(s) >= 4 {
		a, b, c, d := w[:n], w[n:2*n], w[2*n:3*n], w[3*n:4*n]
		s0, s1, s2, s3 := s[0], s[1], s[2], s[3]
		for i, v := range x {
			a[i] += s0 * v
			b[i] += s1 * v
			c[i] += s2 * v
			d[i] += s3 * v
		}
		s, w = s[4:], w[4*n:]
	}
	for o, v := range s {
		addScaled(w[o*n:(o+1)*n], v, x)
	}
}

// addTransposed adds wᵀ·s to y; w is [len(s), len(y)].
func addTransposed(y, s, w []float64) {
	n := len(y)
	for len(s) >= 4 {
		a, b, c, d := w[:n], w[n:2*n], w[2*n:3*n], w[3*n:4*n]
		s0, s1, s2, s3 := s[0], s[1], s[2], s[3]
		for i := range y {
			y[i] += s0*a[i] + s1*b[i] + (s2*c[i] + s3*d[i])
		}
		s, w = s[4:], w[4*n:]
	}
	for o, v := range s {
		addScaled(y, v, w[o*n:(o+1)*n])
	}
}

// dot has four sums, which a processor adds at the same time.
func dot(a, b []float64) float64 {
	var s0, s1, s2, s3 float64
	b = b[:len(a)]
	for len(a) >= 4 && len(b) >= 4 {
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
		a, b = a[4:], b[4:]
	}
	for i, x := range a {
		s0 += x * b[i]
	}
	return (s0 + s1) + (s2 + s3)
}

// addScaled adds s·x to y.
func addScaled(y []float64, s float64, x []float64) {
	x = x[:len(y)]
	for i := range y {
		y[i] += s * x[i]
	}
}
