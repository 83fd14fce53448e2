package model

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
)

// inverseFrequencies are the D/2 angles a position, in float32 steps as transformers takes them.
func (c *Config) inverseFrequencies() []float32 {
	out := make([]float32, c.HeadDim/2)
	for i := range out {
		exponent := float32(2*i) / float32(c.HeadDim)
		out[i] = 1 / float32(math.Pow(float64(float32(c.RopeTheta)), float64(exponent)))
		out[i] = c.RopeScaling.scale(out[i])
	}
	return out
}

// scale stretches one frequency: linear divides all by the factor; llama3 those of wavelengths longer than the original
// context, none that turn often within it, and blends between (Llama 3.1).
func (r *RopeScaling) scale(f float32) float32 {
	switch {
	case r == nil:
		return f
	case r.Type == "linear":
		return f / float32(r.Factor)
	}
	wavelength := float32(2*math.Pi) / f
	context := float32(r.OriginalMaxPositions)
	low, high := float32(r.LowFreqFactor), float32(r.HighFreqFactor)
	switch {
	case wavelength > context/low:
		return f / float32(r.Factor)
	case wavelength < context/high:
		return f
	}
	smooth := (context/wavelength - low) / (high - low)
	return (1-smooth)*f/float32(r.Factor) + smooth*f
}

// rotation turns the pairs (i, i+D/2) of every head by position times frequency.
type rotation struct {
	cos, sin *Node // [rows, 1, T, D], float32; both halves of D are equal
}

// rotation builds the tables of cosines and sines from positions [rows, T].
func (c *Config) rotation(positions *Node) rotation {
	rows, tokens := positions.Shape().Dim(0), positions.Shape().Dim(1)
	at := Reshape(ConvertDType(positions, dtypes.Float32), rows, 1, tokens, 1)
	frequencies := Reshape(Const(positions.Graph(), c.inverseFrequencies()), 1, 1, 1, -1)
	angle := Mul(at, frequencies)
	both := func(x *Node) *Node { return StopGradient(Concatenate([]*Node{x, x}, -1)) }
	return rotation{both(Cos(angle)), both(Sin(angle))}
}

// scaled multiplies what the rotation gives by s, at no cost an element.
func (r rotation) scaled(s float64) rotation {
	return rotation{StopGradient(MulScalar(r.cos, s)), StopGradient(MulScalar(r.sin, s))}
}

// apply rotates x [rows, h, T, D]. The gradient is the rotation back.
func (r rotation) apply(x *Node) *Node {
	turn := func(x *Node) *Node { // (a, b) becomes (-b, a)
		d := x.Shape().Dim(-1)
		a, b := SliceAxis(x, -1, AxisRange(0, d/2)), SliceAxis(x, -1, AxisRange(d/2, d))
		return Concatenate([]*Node{Neg(b), a}, -1)
	}
	cos, sin := ConvertDType(r.cos, wideType(x.DType())), ConvertDType(r.sin, wideType(x.DType()))
	y := Add(Mul(wide(x), cos), Mul(turn(wide(x)), sin))
	return ownGradient(ConvertDType(y, x.DType()), []*Node{x}, func(v *Node) []*Node {
		v = wide(v)
		return []*Node{ConvertDType(Sub(Mul(v, cos), Mul(turn(v), sin)), x.DType())}
	})
}
