package model

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
)

// Frequencies are the D/2 angles per position, rounded to float32 in the same steps as in transformers.
func (c *Config) Frequencies() []float32 {
	out := make([]float32, c.HeadDim/2)
	for i := range out {
		exponent := float32(2*i) / float32(c.HeadDim)
		out[i] = 1 / float32(math.Pow(float64(float32(c.RopeTheta)), float64(exponent)))
		out[i] = c.RopeScaling.scale(out[i])
	}
	return out
}

// scale stretches one frequency. linear divides every frequency by the factor. llama3 (Llama 3.1) divides frequencies
// whose wavelength is longer than the original context, keeps those much shorter, and interpolates between.
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

// rotation rotates the pairs (i, i+D/2) of every head by position times frequency.
type rotation struct {
	cos, sin *Node // [rows, 1, T, D], float32; both halves of D are equal
}

// newRotation builds the rotation of positions [rows, T].
func (c *Config) newRotation(positions *Node) rotation {
	rows, tokens := positions.Shape().Dim(0), positions.Shape().Dim(1)
	at := Reshape(ConvertDType(positions, dtypes.Float32), rows, 1, tokens, 1)
	frequencies := Reshape(Const(positions.Graph(), c.Frequencies()), 1, 1, 1, -1)
	angle := Mul(at, frequencies)
	both := func(x *Node) *Node { return StopGradient(Concatenate([]*Node{x, x}, -1)) }
	return rotation{both(Cos(angle)), both(Sin(angle))}
}

// scaleBy multiplies the rotation's results by s, without an operation on them.
func (r rotation) scaleBy(s float64) rotation {
	return rotation{StopGradient(MulScalar(r.cos, s)), StopGradient(MulScalar(r.sin, s))}
}

// apply rotates x [rows, h, T, D]. Its gradient is the inverse rotation.
func (r rotation) apply(x *Node) *Node {
	turn := func(x *Node) *Node { // (a, b) becomes (-b, a)
		d := x.Shape().Dim(-1)
		a, b := SliceAxis(x, -1, AxisRange(0, d/2)), SliceAxis(x, -1, AxisRange(d/2, d))
		return Concatenate([]*Node{Neg(b), a}, -1)
	}
	cos, sin := ConvertDType(r.cos, wideType(x.DType())), ConvertDType(r.sin, wideType(x.DType()))
	y := Add(Mul(widen(x), cos), Mul(turn(widen(x)), sin))
	return ownGradient(ConvertDType(y, x.DType()), []*Node{x}, func(v *Node) []*Node {
		v = widen(v)
		return []*Node{ConvertDType(Sub(Mul(v, cos), Mul(turn(v), sin)), x.DType())}
	})
}

// Rotary holds the rotations of positions on the host, as the graphs compute them, for inputs of [Config.Step]. Only
// one goroutine may use it at a time.
type Rotary struct {
	frequencies []float32
	cos, sin    []float32 // [positions computed so far, D]
}

func (c *Config) Rotary() *Rotary { return &Rotary{frequencies: c.Frequencies()} }

// Rows writes the rotations of positions into cos and sin [len(positions), D].
func (r *Rotary) Rows(positions []int32, cos, sin []float32) {
	d := 2 * len(r.frequencies)
	for i, p := range positions {
		r.extendTo(int(p))
		copy(cos[i*d:(i+1)*d], r.cos[int(p)*d:])
		copy(sin[i*d:(i+1)*d], r.sin[int(p)*d:])
	}
}

// extendTo extends the tables up to a position.
func (r *Rotary) extendTo(position int) {
	half := len(r.frequencies)
	for p := len(r.cos) / (2 * half); p <= position; p++ {
		for range 2 { // both halves of D rotate by the same angles
			for _, f := range r.frequencies {
				sin, cos := math.Sincos(float64(float32(p) * f))
				r.cos, r.sin = append(r.cos, float32(cos)), append(r.sin, float32(sin))
			}
		}
	}
}

// Mask writes the additive mask [MaskLen] of one row of a step for one sliding window (0: no window). prompt slots of
// the prefix and suffix slots of the suffix are filled, and the new token has position prompt+suffix.
func (s StepShape) Mask(mask []float32, prompt, suffix, window int) {
	first := 0 // the first position that the new token sees
	if window > 0 {
		first = max(0, prompt+suffix+1-window)
	}
	showSlots(mask[:s.Prefix], first, prompt)
	showSlots(mask[s.Prefix:s.Prefix+s.Suffix], first-prompt, suffix)
	mask[s.Prefix+s.Suffix] = 0
}

// showSlots shows the slots from..to-1 of mask and hides the others.
func showSlots(mask []float32, from, to int) {
	for i := range mask {
		mask[i] = maskedScore
		if i >= from && i < to {
			mask[i] = 0
		}
	}
}
