package model

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
)

// StepState is what the host gives a step whose cache stays in the engine: few numbers a row.
//
// Steps of a cache are counted, and step n writes slot n modulo Ts. So a slot's age is known without a mask, rows may
// begin at any step, and a slot is used again when all rows that saw it have ended, or Ts steps later.
type StepState struct {
	Rows  int
	Ints  []int32   // [4, B]: tokens, positions, lengths, and the slot, B times
	Reals []float32 // [2, B]: inverse temperatures, draws
}

// NewStepState makes the state of rows without texts.
func NewStepState(rows int) StepState {
	return StepState{rows, make([]int32, 4*rows), make([]float32, 2*rows)}
}

// Put sets a row: the new token, its position, the number of tokens in the row's prefix, 1/temperature and the draw.
func (s StepState) Put(row int, token, position, length int32, inverse, draw float32) {
	s.Ints[row], s.Ints[s.Rows+row], s.Ints[2*s.Rows+row] = token, position, length
	s.Reals[row], s.Reals[s.Rows+row] = inverse, draw
}

// SetSlot sets the slot of the new tokens.
func (s StepState) SetSlot(slot int32) {
	for row := range s.Rows {
		s.Ints[3*s.Rows+row] = slot
	}
}

// ringInputs makes the parameters of a step whose cache stays in the engine: the ints and reals of [StepState], prefix
// keys and values of every layer, keys and values of every layer.
func (c *Config) ringInputs(g *Graph, s StepShape, o GraphOptions) StepInputs {
	b := s.Rows()
	ints := Parameter(g, "ints", shapes.Make(dtypes.Int32, 4, b))
	reals := Parameter(g, "reals", shapes.Make(dtypes.Float32, 2, b))
	row := func(x *Node, i int, dims ...int) *Node { return Reshape(SliceAxis(x, 0, AxisRange(i, i+1)), dims...) }
	in := StepInputs{
		shape: s, Tokens: row(ints, 0, b), Positions: row(ints, 1, b), Lengths: row(ints, 2, b),
		Slot:    Reshape(Slice(ints, AxisElem(3), AxisElem(0))),
		Inverse: row(reals, 0, b, 1), Draw: row(reals, 1, b, 1),
	}
	part := func(name string, dims ...int) (keys, values []*Node) {
		for i := range c.Layers {
			shape := shapes.Make(o.ComputeType(), dims...)
			keys = append(keys, CacheParameter(g, fmt.Sprint(name, "keys_", i), shape))
			values = append(values, CacheParameter(g, fmt.Sprint(name, "values_", i), shape))
		}
		return keys, values
	}
	if s.Prefix > 0 {
		in.PrefixKeys, in.PrefixValues = part("prefix_", s.Prompts, c.KVHeads, s.Prefix, c.HeadDim)
	}
	in.Keys, in.Values = part("", s.Prompts, c.KVHeads, s.Samples, s.Suffix, c.HeadDim)
	return in
}

// ringMask is the additive mask [B, MaskLen] of a sliding window (0: none). A row sees its prefix, the new token's slot,
// and as many of the ring's next younger slots as it has tokens after the prefix.
func (in StepInputs) ringMask(window int) *Node {
	g, column := in.Positions.Graph(), func(x *Node) *Node { return Reshape(x, -1, 1) }
	position, length := column(in.Positions), column(in.Lengths)
	slots := func(n int) *Node { return Iota(g, shapes.Make(dtypes.Int32, 1, n), 1) }
	both := func(a, b *Node, has bool) *Node {
		if !has {
			return a
		}
		return LogicalAnd(a, b)
	}
	last := Const(g, int32(window))
	ring := slots(in.shape.Suffix)
	back := Sub(in.Slot, ring)
	age := Where(LessThan(back, Const(g, int32(0))), AddScalar(back, in.shape.Suffix), back) // in steps, from 0
	seen := both(LessOrEqual(age, Sub(position, length)), LessThan(age, last), window > 0)
	if in.shape.Prefix > 0 {
		at := slots(in.shape.Prefix)
		prefix := both(LessThan(at, length), LessThan(Sub(position, at), last), window > 0)
		seen = Concatenate([]*Node{prefix, seen}, 1)
	}
	return MulScalar(ConvertDType(LogicalNot(seen), dtypes.Float32), maskedScore)
}

// writeSlot writes x [Prompts, kv, Samples, 1, 1, D] into the new tokens' slot of a suffix [Prompts, kv, Samples, Ts,
// D]: into the same memory if the engine can write a slice and the suffix is donated, since nobody reads it as it was.
func (d decoding) writeSlot(cache, x *Node) *Node {
	dims := cache.Shape().Dimensions
	x = Reshape(ConvertDType(x, cache.DType()), dims[0], dims[1], dims[2], 1, dims[4])
	if !cache.Graph().Backend().Capabilities().Operations[compute.OpTypeDynamicUpdateSlice] {
		slots := Iota(cache.Graph(), shapes.Make(dtypes.Int32, dims...), 3)
		return Where(Equal(slots, d.Slot), BroadcastToDims(x, dims...), cache)
	}
	zero := Const(cache.Graph(), int32(0))
	return DynamicUpdateSlice(cache, x, []*Node{zero, zero, zero, d.Slot, zero})
}

// MoveRing builds a ring of Ts slots [Prompts, kv, Samples, Ts, D] out of one of another shape: row i is row rows[i] of
// the old one, and slot j its slot slots[j].
func MoveRing(cache, rows, slots *Node, to StepShape) *Node {
	d := cache.Shape().Dimensions
	flat := Reshape(TransposeAllAxes(cache, 0, 2, 1, 3, 4), d[0]*d[2], d[1], d[3], d[4])
	flat = Gather(flat, Reshape(rows, -1, 1))
	if d[3] != to.Suffix {
		flat = TransposeAllAxes(Gather(TransposeAllAxes(flat, 2, 0, 1, 3), Reshape(slots, -1, 1)), 1, 2, 0, 3)
	}
	return TransposeAllAxes(Reshape(flat, to.Prompts, to.Samples, d[1], to.Suffix, d[4]), 0, 2, 1, 3, 4)
}

// MovePrefix builds a prefix of tokens slots [n, kv, tokens, D] out of another one, or of a prefill's keys or values.
// Row i is row rows[i], or row i of kept, which may be nil, where rows[i] is negative.
func MovePrefix(cache, rows, kept *Node, tokens int) *Node {
	x := Gather(cache, Reshape(MaxScalar(rows, 0), -1, 1))
	if have := x.Shape().Dim(2); have > tokens {
		x = SliceAxis(x, 2, AxisRange(0, tokens))
	} else if have < tokens {
		x = Pad(x, ScalarZero(x.Graph(), x.DType()), PadAxis{}, PadAxis{}, PadAxis{End: tokens - have}, PadAxis{})
	}
	if kept == nil {
		return x
	}
	return Where(GreaterOrEqual(rows, ScalarZero(rows.Graph(), rows.DType())), x, kept)
}

// draw adds the tokens that draws [B, 1] decide, for logits in blocks [B, n, SampleBlock] with maxima top [B, 1]. It
// looks for the group of blocks that holds the token, then for the block, then for the token.
func (h *SampleHead) draw(blocks, top, inverse, draw *Node) {
	g, rows, n := blocks.Graph(), blocks.Shape().Dim(0), blocks.Shape().Dim(1)
	groups := (n + SampleBlock - 1) / SampleBlock
	sums := Pad(h.BlockSums, ScalarZero(g, dtypes.Float32), PadAxis{}, PadAxis{End: groups*SampleBlock - n})
	sums = Reshape(sums, rows, groups, SampleBlock)
	weights := ReduceSum(sums, -1)
	group, share := pick(weights, draw)
	inGroup, share := pick(rowAt(sums, group), share)
	greedy := LessThan(draw, ScalarZero(g, dtypes.Float32))
	block := Where(greedy, firstOf(h.BlockMaxima, top), Add(MulScalar(group, SampleBlock), inGroup))
	z := rowAt(blocks, block)
	inBlock, _ := pick(Exp(Mul(Sub(z, top), inverse)), share)
	inBlock = Where(greedy, firstOf(z, top), inBlock)
	h.Token = Reshape(Add(MulScalar(block, SampleBlock), inBlock), -1)
	logit := ReduceSum(Where(Equal(positions(z), inBlock), z, ScalarZero(g, dtypes.Float32)), -1)
	h.LogProb = Sub(logit, h.LogSumExp)
}

// positions numbers the last axis of x [B, n].
func positions(x *Node) *Node {
	return Iota(x.Graph(), shapes.Make(dtypes.Int32, x.Shape().Dimensions...), -1)
}

// rowAt takes of every row of x [B, n, m] the part [m] at its index [B, 1].
func rowAt(x, index *Node) *Node {
	rows := Iota(x.Graph(), shapes.Make(dtypes.Int32, x.Shape().Dim(0), 1), 0)
	return Gather(x, Concatenate([]*Node{rows, index}, 1))
}

// firstOf is the first position [B, 1] of the value [B, 1] in x [B, n], or 0.
func firstOf(x, value *Node) *Node { return firstTrue(Equal(x, value), x, 0) }

// firstTrue is the first position [B, 1] where a row of is is true, or none.
func firstTrue(is, x *Node, none int) *Node {
	never := Const(x.Graph(), int32(x.Shape().Dim(-1)))
	first := ReduceAndKeep(Where(is, positions(x), never), ReduceMin, -1)
	return Where(Equal(first, never), Const(x.Graph(), int32(none)), first)
}

// pick returns the position [B, 1] of weights [B, n] where their running sum exceeds the share [B, 1] of their total,
// and what remains of the share as a share of that weight, in [0, 1).
func pick(weights, share *Node) (position, rest *Node) {
	zero := ScalarZero(weights.Graph(), dtypes.Float32)
	target := Mul(share, ReduceAndKeep(weights, ReduceSum, -1))
	sums := runningSums(weights)
	at := positions(weights)
	last := ReduceAndKeep(Where(GreaterThan(weights, zero), at, ScalarZero(at.Graph(), at.DType())), ReduceMax, -1)
	position = Min(firstTrue(GreaterThan(sums, target), weights, weights.Shape().Dim(1)-1), last)
	before := ReduceAndKeep(Where(LessThan(at, position), weights, zero), ReduceSum, -1)
	own := ReduceAndKeep(Where(Equal(at, position), weights, zero), ReduceSum, -1)
	return position, ClipScalar(Div(Sub(target, before), own), 0, 1-1.0/(1<<23))
}

// runningSums are the sums of x [B, n] up to each position. Products are not used: some engines round them.
func runningSums(x *Node) *Node {
	rows, n := x.Shape().Dim(0), x.Shape().Dim(1)
	g := x.Graph()
	upTo := LessOrEqual(Iota(g, shapes.Make(dtypes.Int32, 1, n, n), 2), Iota(g, shapes.Make(dtypes.Int32, 1, n, n), 1))
	each := BroadcastToDims(Reshape(x, rows, 1, n), rows, n, n)
	return ReduceSum(Where(BroadcastToDims(upTo, rows, n, n), each, ScalarZero(g, dtypes.Float32)), -1)
}
