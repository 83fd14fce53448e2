package model

import (
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
)

// rope is a way to rotate: the base of the frequencies, their scaling, and the numbers R of D that rotate.
type rope struct {
	theta   float64
	scaling *RopeScaling
	rotates int
}

// rotatedDim is R.
func (c *Config) rotatedDim() int {
	if c.RotaryDim > 0 {
		return c.RotaryDim
	}
	return c.HeadDim
}

// rope is the rope of layers that see everything.
func (c *Config) rope() rope { return rope{c.RopeTheta, c.RopeScaling, c.rotatedDim()} }

// ropes lists the layers' different ropes: one for all layers, or one for each of Windows.
func (c *Config) ropes() (all []rope) {
	if c.LocalTheta == 0 {
		return []rope{c.rope()}
	}
	for _, w := range c.Windows() {
		if w > 0 {
			all = append(all, rope{theta: c.LocalTheta, rotates: c.HeadDim})
		} else {
			all = append(all, c.rope())
		}
	}
	return all
}

// ropeOf is the index in ropes of a layer's rope.
func (c *Config) ropeOf(layer int) int {
	if c.LocalTheta == 0 {
		return 0
	}
	return slices.Index(c.Windows(), c.Window(layer))
}

// Frequencies are the R/2 angles per position, rounded to float32 in the same steps as in transformers.
func (c *Config) Frequencies() []float32 { return c.rope().frequencies() }

func (r rope) frequencies() []float32 {
	out := make([]float32, r.rotates/2)
	for i := range out {
		exponent := float32(2*i) / float32(r.rotates)
		out[i] = 1 / float32(math.Pow(float64(float32(r.theta)), float64(exponent)))
		out[i] = r.scaling.apply(out[i], i, len(out), r.theta)
	}
	return out
}

// rotation rotates the pairs (i, i+R/2) of every head by position times frequency, and multiplies them by the scaling's
// factor.
type rotation struct {
	cos, sin *Node // [rows, 1, T, D], float32; both halves of R are equal, and the rest is 1 and 0
	rotates  int   // R
}

// rotations has one rotation for each of a model's ropes, for keys and, with the scores' factor, for queries.
type rotations struct{ ofKeys, ofQueries []rotation }

// newRotations builds the rotations of positions [rows, T].
func (c *Config) newRotations(positions *Node) (all rotations) {
	for _, r := range c.ropes() {
		all.add(newRotation(positions, r, c.HeadDim), c.attentionScale())
	}
	return all
}

func (r *rotations) add(keys rotation, scale float64) {
	r.ofKeys, r.ofQueries = append(r.ofKeys, keys), append(r.ofQueries, keys.scaleBy(scale))
}

func newRotation(positions *Node, r rope, d int) rotation {
	rows, tokens := positions.Shape().Dim(0), positions.Shape().Dim(1)
	at := Reshape(ConvertDType(positions, dtypes.Float32), rows, 1, tokens, 1)
	angle := Mul(at, Reshape(Const(positions.Graph(), r.frequencies()), 1, 1, 1, -1))
	all := func(x *Node, rest float64) *Node {
		if by := r.scaling.AttentionFactor(); by != 1 {
			x = MulScalar(x, by)
		}
		x = Concatenate([]*Node{x, x}, -1)
		if missing := d - r.rotates; missing > 0 {
			x = Pad(x, ConstAsDType(x.Graph(), x.DType(), rest), PadAxis{}, PadAxis{}, PadAxis{}, PadAxis{End: missing})
		}
		return StopGradient(x)
	}
	return rotation{all(Cos(angle), 1), all(Sin(angle), 0), r.rotates}
}

// scaleBy multiplies the rotation's results by s, without an operation on them.
func (r rotation) scaleBy(s float64) rotation {
	return rotation{StopGradient(MulScalar(r.cos, s)), StopGradient(MulScalar(r.sin, s)), r.rotates}
}

// apply rotates x [rows, h, T, D]. Its gradient is the inverse rotation.
func (r rotation) apply(x *Node) *Node {
	turn := func(x *Node) *Node { // (a, b, rest) becomes (-b, a, rest)
		d := r.rotates
		a, b := SliceAxis(x, -1, AxisRange(0, d/2)), SliceAxis(x, -1, AxisRange(d/2, d))
		if d < x.Shape().Dim(-1) {
			return Concatenate([]*Node{Neg(b), a, SliceAxis(x, -1, AxisRange(d))}, -1)
		}
		return Concatenate([]*Node{Neg(b), a}, -1)
	}
	cos, sin := ConvertDType(r.cos, wideType(x.DType())), ConvertDType(r.sin, wideType(x.DType()))
	y := Add(Mul(widen(x), cos), Mul(turn(widen(x)), sin))
	return ownGradient(ConvertDType(y, x.DType()), []*Node{x}, func(v *Node) []*Node {
		v = widen(v)
		return []*Node{ConvertDType(Sub(Mul(v, cos), Mul(turn(v), sin)), x.DType())}
	})
}

// Rotary holds the rotations of one of a model's ropes on the host, as the graphs compute them, for inputs of
// [Config.Step]. Only one goroutine may use it at a time.
type Rotary struct {
	frequencies []float32
	factor      float64 // of both
	d           int
	cos, sin    []float32 // [positions computed so far, D]
}

// Rotaries gives one for each of the model's ropes.
func (c *Config) Rotaries() (all []*Rotary) {
	for _, r := range c.ropes() {
		all = append(all, &Rotary{frequencies: r.frequencies(), factor: r.scaling.AttentionFactor(), d: c.HeadDim})
	}
	return all
}

// Rows writes the rotations of positions into cos and sin [len(positions), D].
func (r *Rotary) Rows(positions []int32, cos, sin []float32) {
	d := r.d
	for i, p := range positions {
		r.extendTo(int(p))
		copy(cos[i*d:(i+1)*d], r.cos[int(p)*d:])
		copy(sin[i*d:(i+1)*d], r.sin[int(p)*d:])
	}
}

// extendTo extends the tables up to a position.
func (r *Rotary) extendTo(position int) {
	for p := len(r.cos) / r.d; p <= position; p++ {
		for range 2 { // both halves rotate by the same angles
			for _, f := range r.frequencies {
				sin, cos := math.Sincos(float64(float32(p) * f))
				r.cos, r.sin = append(r.cos, float32(cos*r.factor)), append(r.sin, float32(sin*r.factor))
			}
		}
		for range r.d - 2*len(r.frequencies) {
			r.cos, r.sin = append(r.cos, 1), append(r.sin, 0)
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
