package control

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
)

// network maps an observation x to outputs, under parameters θ of which it uses as many as it has. The tape is what
// forward keeps for the other two. A network has scratch space: it is not safe for concurrent use.
type network interface {
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

// activation of a layer, as options name it.
type activation string

const (
	linear activation = ""
	tanh   activation = "tanh"
	relu   activation = "relu"
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
		copy(y, bias)
		multiply(theta[:in*out], x, y)
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
		floats.Add(gradient[end:end+out], slope[:out])
		blas64.Ger(1, vector(slope[:out]), vector(input), matrix(gradient[at:end], out, in))
		if l > 1 {
			below := m.a[:in]
			blas64.Gemv(blas.Trans, 1, matrix(theta[at:end], out, in), vector(slope[:out]), 0, vector(below))
			slope = below
			m.a, m.b = m.b, m.a
		}
	}
}

func (m *mlp) derivative(theta, x, tape, v, out []float64) {
	var dx []float64 // of the layer's input, which does not depend on θ in the first layer
	for l := 1; l < len(m.sizes); l++ {
		in, n := m.sizes[l-1], m.sizes[l]
		dy := m.a[:n]
		copy(dy, v[in*n:(in+1)*n])
		multiply(v[:in*n], x, dy)
		if l > 1 {
			multiply(theta[:in*n], dx, dy)
		}
		m.activation(l).chain(tape[:n], dy)
		x, dx, theta, v, tape = tape[:n], dy, theta[(in+1)*n:], v[(in+1)*n:], tape[n:]
		m.a, m.b = m.b, m.a
	}
	copy(out, dx)
}

// The products below are gonum's: its assembly makes them two to four times as fast as loops in Go.

// multiply adds W·x to y; w is [len(y), len(x)].
func multiply(w, x, y []float64) {
	blas64.Gemv(blas.NoTrans, 1, matrix(w, len(y), len(x)), vector(x), 1, vector(y))
}

func matrix(w []float64, rows, columns int) blas64.General {
	return blas64.General{Rows: rows, Cols: columns, Data: w, Stride: columns}
}

func vector(x []float64) blas64.Vector { return blas64.Vector{N: len(x), Data: x, Inc: 1} }
