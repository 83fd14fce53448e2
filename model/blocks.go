package model

import (
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
)

// Attention in blocks never holds the scores of whole rows: a softmax that is corrected from block to block of the keys
// needs the scores of one block of queries by one block of keys at a time. The backward pass computes them again from
// the saved log-sum-exp (Dao et al. 2022, FlashAttention).

const (
	plainTokens   = 2048     // the longest rows whose attention is computed whole, where nothing else is asked for
	blockElements = 32 << 20 // bounds the scores of a block that is part of the graph: 128 MiB in float32
	loopElements  = 8 << 20  // the same in a loop, whose size does not depend on the number of blocks
	blockTile     = 32       // lengths of blocks are multiples
)

// blockOf is the length of attention's blocks for rows of that many tokens, or 0 if it is computed whole.
func (o GraphOptions) blockOf(rows, heads, tokens int, loops bool) int {
	block := o.AttentionBlock
	if block == 0 && tokens > plainTokens {
		elements := blockElements
		if loops {
			elements = loopElements
		}
		elements = max(elements, o.Room/4)
		most := max(blockTile, int(math.Sqrt(float64(elements/(rows*heads)))))
		n := (tokens + most - 1) / most
		block = ((tokens+n-1)/n + blockTile - 1) / blockTile * blockTile
	}
	if block >= tokens {
		return 0
	}
	return block
}

// attentionMask says which keys the queries of rows see: by a mask, or, in blocks, by what makes the mask of each block.
type attentionMask struct {
	mask   *Node // [rows, 1, T, T]; nil in blocks
	blocks *tiling
	cap    softCap
}

// newMasks gives the masks of the layers for a number of rows, by window. In rows that are not packed the positions
// are 0 to T-1.
func (c *Config) newMasks(in Inputs, rows int, packed bool, o GraphOptions) map[int]attentionMask {
	out := map[int]attentionMask{}
	block := o.blockOf(rows, c.Heads, in.Positions.Shape().Dim(1), hasLoops(in.Positions.Graph()))
	for _, w := range c.Windows() {
		if block == 0 {
			out[w] = attentionMask{mask: visibility(in, w), cap: c.capOfScores()}
			continue
		}
		t := &tiling{tokens: in.Positions.Shape().Dim(1), block: block, window: w, constants: map[[3]int]*Node{},
			cap: c.capOfScores()}
		if packed {
			t.packed = newCodes(in)
		}
		out[w] = attentionMask{blocks: t}
	}
	return out
}

// tiling cuts rows of T tokens into blocks.
type tiling struct {
	tokens, block, window int
	packed                *codes           // nil: a row is one text, its positions are 0 to T-1
	constants             map[[3]int]*Node // masks that do not depend on the inputs, by distance and sizes
	cap                   softCap
}

// codes number who sees whom in packed rows, int32 [rows, T]: query i sees key j <= i if own[j] is own[i] or prompt[i].
// The code of padding is negative and its own, so that it sees itself alone.
type codes struct{ own, prompt, positions *Node }

// answersOfGroup is more than a group has answers in a row, so that codes of groups do not overlap.
const answersOfGroup = 1 << 15

func newCodes(in Inputs) *codes {
	alone := Neg(AddScalar(Iota(in.Groups.Graph(), in.Groups.Shape(), 1), 1))
	prompt := MulScalar(in.Groups, answersOfGroup)
	padding := LessThan(in.Groups, ZerosLike(in.Groups))
	return &codes{Where(padding, alone, Add(prompt, in.Segments)), Where(padding, alone, prompt), in.Positions}
}

// span is a block of a row: the tokens from..to-1, or in a loop to-from tokens that begin at the scalar at.
type span struct {
	from, to int
	at       *Node
}

func (s span) cut(x *Node, axis int) *Node {
	if s.at == nil {
		return sliceAxis(x, axis, s.from, s.to)
	}
	starts, dims := s.starts(x, axis), x.Shape().Clone().Dimensions
	dims[axis] = s.to - s.from
	return DynamicSlice(x, starts, dims)
}

func (s span) starts(x *Node, axis int) []*Node {
	starts := make([]*Node, x.Rank())
	for i := range starts {
		starts[i] = Const(x.Graph(), int32(0))
	}
	starts[axis] = s.at
	return starts
}

// put is x with part in the place of the span.
func (s span) put(x, part *Node, axis int) *Node {
	return DynamicUpdateSlice(x, part, s.starts(x, axis))
}

func (t *tiling) spans() (out []span) {
	for from := 0; from < t.tokens; from += t.block {
		out = append(out, span{from: from, to: min(from+t.block, t.tokens)})
	}
	return out
}

// isEmpty says that no query sees a key of the block: all keys are later, or before the window. The positions of packed
// rows are not known here, and an answer may be far from its prompt.
func (t *tiling) isEmpty(queries, keys span) bool {
	return keys.from >= queries.to || t.packed == nil && t.window > 0 && queries.from-keys.to+1 >= t.window
}

// isFull says that all queries of a text see all keys of the block.
func (t *tiling) isFull(queries, keys span) bool {
	return t.packed == nil && queries.at == nil && keys.to <= queries.from &&
		(t.window == 0 || queries.to-1-keys.from < t.window)
}

// back is how far each key lies before each query, int32 [1, 1, M, N].
func (t *tiling) back(g *Graph, queries, keys span) *Node {
	shape := shapes.Make(dtypes.Int32, 1, 1, queries.to-queries.from, keys.to-keys.from)
	back := Sub(Iota(g, shape, 2), Iota(g, shape, 3))
	if queries.at != nil {
		return Add(back, Sub(queries.at, keys.at))
	}
	return Add(back, scalar(back, float64(queries.from-keys.from)))
}

// mask is the additive mask of a block, [rows or 1, 1, M, N], nil if all is seen.
func (t *tiling) mask(g *Graph, queries, keys span, after []*Node) *Node {
	if t.isFull(queries, keys) {
		return nil
	}
	if t.packed != nil || queries.at != nil {
		return hidden(t.sees(g, queries, keys, after))
	}
	key := [3]int{queries.from - keys.from, queries.to - queries.from, keys.to - keys.from}
	if t.constants[key] == nil {
		t.constants[key] = hidden(t.sees(g, queries, keys, nil))
	}
	return t.constants[key]
}

func hidden(sees *Node) *Node {
	mask := ConvertDType(LogicalNot(sees), dtypes.Float32)
	return Mul(mask, scalar(mask, maskedScore))
}

// scalar is a constant of x's type. GoMLX's own scalars are shared by a graph, but a loop's body can use only its own.
func scalar(x *Node, value float64) *Node { return ConstAsDType(x.Graph(), x.DType(), value) }

// sees says which queries see which keys. Masks of packed rows wait for the last block: engines would otherwise see
// that the layers' masks are equal and keep all of them.
func (t *tiling) sees(g *Graph, queries, keys span, after []*Node) *Node {
	var sees *Node
	and := func(x *Node) {
		if sees != nil {
			x = LogicalAnd(sees, x)
		}
		sees = x
	}
	column := func(x *Node) *Node { return ExpandAxes(queries.cut(x, 1), 1, 3) }
	row := func(x *Node) *Node { return ExpandAxes(keys.cut(x, 1), 1, 2) }
	if c := t.packed; c != nil {
		key := waitFor(row(c.own), after)
		and(LogicalOr(Equal(column(c.own), key), Equal(column(c.prompt), key)))
		if t.window > 0 {
			and(LessThan(Sub(column(c.positions), row(c.positions)), scalar(key, float64(t.window))))
		}
	}
	if queries.at == nil && keys.to <= queries.from && t.packed != nil {
		return sees
	}
	back := t.back(g, queries, keys)
	and(GreaterOrEqual(back, scalar(back, 0)))
	if t.window > 0 && t.packed == nil {
		and(LessThan(back, scalar(back, float64(t.window))))
	}
	return sees
}

// online is a softmax under way for a block of queries, whose h/kv*M rows that share a head of keys are one axis: the
// top of the scores so far, the sum of their exponentials below it, both [rows, kv, h/kv*M, 1], and the mixed values
// [rows, kv, h/kv*M, D], not divided by the sum yet; in the wideType.
type online struct {
	top, sum, mixed *Node
	inLoop          bool
	cap             softCap // of the scores
}

// add adds a block of keys, turned to [rows, kv, D, N], and values. A block of which a query sees nothing adds ones,
// which the next block that it sees multiplies by 0; its own position comes last.
func (o online) add(q, k, v, mask *Node) online {
	z, _ := o.cap.apply(dot(q, 3, k, 2, 2, wideType(q.DType())))
	z = blockScores(z, mask)
	top := o.rowMax(z)
	if o.top != nil {
		top = Max(o.top, top)
	}
	p := Exp(Sub(z, top))
	sum, mixed := o.rowSum(p), dot(ConvertDType(p, v.DType()), 3, v, 2, 2, z.DType())
	if o.top != nil {
		less := Exp(Sub(o.top, top))
		sum, mixed = Add(Mul(o.sum, less), sum), Add(Mul(o.mixed, less), mixed)
	}
	return online{top, sum, mixed, o.inLoop, o.cap}
}

// rowMax is the maximum over the last axis. go-xla 0.4.5 makes one function for the maxima of a graph, in the function
// of the first, and refuses it in any other; in a loop the maximum is therefore taken of two halves, which may overlap.
func (o online) rowMax(x *Node) *Node {
	if !o.inLoop {
		return ReduceAndKeep(x, ReduceMax, -1)
	}
	for n := x.Shape().Dim(-1); n > 1; n = x.Shape().Dim(-1) {
		x = Max(sliceAxis(x, 3, 0, (n+1)/2), sliceAxis(x, 3, n/2, n))
	}
	return x
}

// rowSum is the sum over the last axis; in a loop, for the same reason, as a product.
func (o online) rowSum(x *Node) *Node {
	if !o.inLoop {
		return ReduceAndKeep(x, ReduceSum, -1)
	}
	ones := BroadcastToDims(scalar(x, 1), x.Shape().Dim(-1), 1)
	return dot(x, 3, ones, 0, 0, x.DType())
}

// out is the result, in the wideType.
func (o online) out() *Node { return Div(o.mixed, o.sum) }

func (o online) logSumExp() *Node { return Add(o.top, Log(o.sum)) }

// softCap keeps scores or logits z between -cap and cap: they become cap*tanh(z/cap). 0 changes nothing.
type softCap float64

func (c *Config) capOfScores() softCap { return softCap(c.ScoreCap) }
func (c *Config) capOfLogits() softCap { return softCap(c.LogitCap) }

// apply also gives the slope, 1 - tanh², nil for no cap.
func (s softCap) apply(z *Node) (capped, slope *Node) {
	if s == 0 {
		return z, nil
	}
	t := Tanh(Mul(z, scalar(z, 1/float64(s))))
	return Mul(t, scalar(z, float64(s))), Sub(scalar(z, 1), Mul(t, t))
}

// multiply is x times a factor, which may be nil for 1.
func multiply(x, factor *Node) *Node {
	if factor == nil {
		return x
	}
	return Mul(x, factor)
}

// joinHeads joins the rows of x [rows, h, M, last] that share one of kv heads of keys: [rows, kv, h/kv*M, last].
func joinHeads(x *Node, kv int) *Node { return Reshape(x, x.Shape().Dim(0), kv, -1, x.Shape().Dim(3)) }

// blockScores adds a mask [rows, 1, M, N], which may be nil, to scores z [rows, kv, h/kv*M, N].
func blockScores(z, mask *Node) *Node {
	if mask == nil {
		return z
	}
	m := mask.Shape().Dim(2)
	masked := Add(Reshape(z, z.Shape().Dim(0), -1, m, z.Shape().Dim(3)), ConvertDType(mask, z.DType()))
	return Reshape(masked, z.Shape().Dimensions...)
}

// blockGradients gives what a block adds to the adjoints of q, k and v, in the wideType, for the adjoint g of the
// result, whose product with the result has the sums mean. q, g, lse and mean are as in online.
func (s softCap) blockGradients(q, k, v, mask, g, lse, mean *Node) (dq, dk, dv *Node) {
	wide := wideType(q.DType())
	z, slope := s.apply(dot(q, 3, k, 3, 2, wide))
	p := Exp(Sub(blockScores(z, mask), lse))
	ds := ConvertDType(multiply(Mul(p, Sub(dot(g, 3, v, 3, 2, wide), mean)), slope), q.DType())
	return dot(ds, 3, k, 2, 2, wide), dot(ds, 2, q, 2, 2, wide), dot(ConvertDType(p, v.DType()), 2, g, 2, 2, wide)
}

// mix is attention in blocks: [rows, h, T, D] for q [rows, h, T, D], already scaled, k and v [rows, kv, T, D].
func (t *tiling) mix(q, k, v *Node) *Node {
	forward, backward := t.forward, t.backward
	if hasLoops(q.Graph()) {
		forward, backward = t.loopForward, t.loopBackward
	}
	out, lse := forward(q, k, v)
	return ownGradient(out, []*Node{q, k, v}, func(g *Node) []*Node {
		mean := ReduceAndKeep(Mul(widen(g), widen(out)), ReduceSum, -1)
		grads := backward(q, k, v, g, lse, mean)
		for i := range grads {
			grads[i] = ConvertDType(grads[i], q.DType())
		}
		return grads
	})
}

// forward writes every block into the graph. Each waits for the one before, so that the scores of one exist at a time.
func (t *tiling) forward(q, k, v *Node) (out, lse *Node) {
	var outs, sums, last []*Node
	kv, ks, vs := k.Shape().Dim(1), t.cut(TransposeAllAxes(k, 0, 1, 3, 2), 3), t.cut(v, 2)
	for _, queries := range t.spans() {
		o := online{cap: t.cap}
		part := queries.cut(q, 2)
		joined, dims := joinHeads(part, kv), part.Shape().Dimensions
		for j, keys := range t.spans() {
			if !t.isEmpty(queries, keys) {
				mask := t.mask(q.Graph(), queries, keys, last)
				o = o.add(waitFor(joined, last), ks[j], vs[j], mask)
				last = []*Node{o.out()}
			}
		}
		outs = append(outs, ConvertDType(Reshape(last[0], dims...), q.DType()))
		sums = append(sums, Reshape(o.logSumExp(), dims[0], dims[1], dims[2], 1))
	}
	return concat(outs, 2), concat(sums, 2)
}

// cut cuts an axis of x into the blocks.
func (t *tiling) cut(x *Node, axis int) (out []*Node) {
	for _, s := range t.spans() {
		out = append(out, s.cut(x, axis))
	}
	return out
}

// waitFor is x, computed after all that is made of the last block's scores, so that these are freed. Engines without
// loops have barriers that change nothing even if an element is infinite.
func waitFor(x *Node, last []*Node) *Node {
	if len(last) == 0 {
		return x
	}
	return SchedulingBarrier(x, last...)
}

// backward gives the adjoints of q, k and v in the wideType.
func (t *tiling) backward(q, k, v, g, lse, mean *Node) []*Node {
	spans, ks, vs, kv := t.spans(), t.cut(k, 2), t.cut(v, 2), k.Shape().Dim(1)
	dq, dk, dv := make([]*Node, len(spans)), make([]*Node, len(spans)), make([]*Node, len(spans))
	last := []*Node{mean}
	for i, queries := range spans {
		cut := func(x *Node) *Node { return joinHeads(queries.cut(x, 2), kv) }
		q, g, lse, mean := cut(q), cut(g), cut(lse), cut(mean)
		for j, keys := range spans {
			if !t.isEmpty(queries, keys) {
				mask := t.mask(q.Graph(), queries, keys, last)
				a, b, c := t.cap.blockGradients(waitFor(q, last), ks[j], vs[j], mask, g, lse, mean)
				dq[i], dk[j], dv[j] = addTo(dq[i], a), addTo(dk[j], b), addTo(dv[j], c)
				last = []*Node{dq[i], dk[j], dv[j]}
			}
		}
		dq[i] = Reshape(dq[i], q.Shape().Dim(0), -1, queries.to-queries.from, q.Shape().Dim(3))
	}
	return []*Node{concat(dq, 2), concat(dk, 2), concat(dv, 2)}
}

// hasLoops says that the engine runs loops over blocks, whose graph and compilation do not grow with the row.
func hasLoops(g *Graph) bool {
	c := g.Backend().Capabilities()
	return c.Functions && c.Operations[compute.OpTypeDynamicSlice] && c.Operations[compute.OpTypeDynamicUpdateSlice]
}

// loopForward is forward as a loop over the blocks.
func (t *tiling) loopForward(q, k, v *Node) (out, lse *Node) {
	even, wide, dims, kv := t.even(), wideType(q.DType()), q.Shape().Dimensions, k.Shape().Dim(1)
	zeros := func(dtype dtypes.DType, tokens, last int) *Node {
		return Zeros(q.Graph(), shapes.Make(dtype, dims[0], dims[1], tokens, last))
	}
	joined := func(last int) *Node { return joinHeads(zeros(wide, even.block, last), kv) }
	state := t.loop([]*Node{q, k, v}, []*Node{joined(1), joined(1), joined(dims[3]),
		zeros(q.DType(), even.tokens, dims[3]), zeros(wide, even.tokens, 1)},
		func(b tile, in, s []*Node) []*Node {
			o := online{Where(b.first, scalar(s[0], 2*maskedScore), s[0]), s[1], s[2], true, t.cap}
			keys := TransposeAllAxes(b.keys.cut(in[1], 2), 0, 1, 3, 2)
			o = o.add(joinHeads(b.queries.cut(in[0], 2), kv), keys, b.keys.cut(in[2], 2), b.mask)
			put := func(to, x *Node) *Node {
				return b.queries.put(to, ConvertDType(Reshape(x, dims[0], dims[1], even.block, -1), to.DType()), 2)
			}
			return []*Node{o.top, o.sum, o.mixed, put(s[3], o.out()), put(s[4], o.logSumExp())}
		})
	return sliceAxis(state[3], 2, 0, t.tokens), sliceAxis(state[4], 2, 0, t.tokens)
}

// loopBackward is backward as a loop over the blocks.
func (t *tiling) loopBackward(q, k, v, g, lse, mean *Node) []*Node {
	even, kv := t.even(), k.Shape().Dim(1)
	zeros := func(x *Node) *Node { return t.pad(ZerosLike(ConvertDType(x, wideType(x.DType()))), 2, even) }
	grads := t.loop([]*Node{q, k, v, g, lse, mean}, []*Node{zeros(q), zeros(k), zeros(v)},
		func(b tile, in, s []*Node) []*Node {
			cut := func(i int) *Node { return joinHeads(b.queries.cut(in[i], 2), kv) }
			k, v := b.keys.cut(in[1], 2), b.keys.cut(in[2], 2)
			dq, dk, dv := t.cap.blockGradients(cut(0), k, v, b.mask, cut(3), cut(4), cut(5))
			add := func(s span, sum, x *Node) *Node {
				part := s.cut(sum, 2)
				return s.put(sum, Add(part, Reshape(x, part.Shape().Dimensions...)), 2)
			}
			return []*Node{add(b.queries, s[0], dq), add(b.keys, s[1], dk), add(b.keys, s[2], dv)}
		})
	for i := range grads {
		grads[i] = sliceAxis(grads[i], 2, 0, t.tokens)
	}
	return grads
}

// tile is the block at which a loop is.
type tile struct {
	queries, keys span
	first         *Node // true if the keys are the first of these queries
	mask          *Node
}

// loop runs body for every block that is not empty, in forward's order. in are nodes with T tokens on axis 2, which
// body gets padded to equal blocks; it returns the next state.
func (t *tiling) loop(in, state []*Node, body func(b tile, in, state []*Node) []*Node) []*Node {
	g, even, fixed := in[0].Graph(), t.even(), []*Node{}
	for _, x := range in {
		fixed = append(fixed, t.pad(x, 2, even))
	}
	if c := t.packed; c != nil {
		fixed = append(fixed, t.pad(c.own, 1, even), t.pad(c.prompt, 1, even), t.pad(c.positions, 1, even))
	}
	order := even.order()
	all := slices.Concat([]*Node{Const(g, int32(0))}, fixed, state)
	parameters := func(g *Graph) (out []*Node) {
		for i, x := range all {
			out = append(out, Parameter(g, fmt.Sprint("state", i), x.Shape()))
		}
		return out
	}
	condition := NewClosure(g, func(g *Graph) []*Node {
		return []*Node{LessThan(parameters(g)[0], Const(g, int32(len(order))))}
	})
	step := NewClosure(g, func(g *Graph) []*Node {
		all := parameters(g)
		at, fixed, state := all[0], all[1:1+len(fixed)], all[1+len(fixed):]
		b := even.blockAt(g, at, order, fixed[len(in):])
		return slices.Concat([]*Node{Add(at, scalar(at, 1))}, fixed, body(b, fixed[:len(in)], state))
	})
	return While(condition, step, all...)[1+len(fixed):]
}

// order lists the blocks that are not empty: where the queries begin, where the keys begin, and 1 if these are the
// first keys of the queries.
func (t *tiling) order() (out [][]int32) {
	for _, queries := range t.spans() {
		first := int32(1)
		for _, keys := range t.spans() {
			if !t.isEmpty(queries, keys) {
				out, first = append(out, []int32{int32(queries.from), int32(keys.from), first}), 0
			}
		}
	}
	return out
}

// blockAt is a block of order in a loop whose body has the codes [own, prompt, positions] of packed rows as parameters.
func (t *tiling) blockAt(g *Graph, at *Node, order [][]int32, own []*Node) tile {
	row := DynamicSlice(Const(g, order), []*Node{at, scalar(at, 0)}, []int{1, 3})
	column := func(i int) *Node { return Reshape(SliceAxis(row, 1, AxisElem(i))) }
	b := tile{queries: span{to: t.block, at: column(0)}, keys: span{to: t.block, at: column(1)}}
	b.first = Equal(column(2), scalar(at, 1))
	inside := *t
	if len(own) > 0 {
		inside.packed = &codes{own[0], own[1], own[2]}
	}
	b.mask = inside.mask(g, b.queries, b.keys, nil)
	return b
}

// even is the tiling of a row that is padded to equal blocks, as few as before.
func (t *tiling) even() *tiling {
	n, even := len(t.spans()), *t
	even.block = (t.tokens + n - 1) / n
	even.tokens = n * even.block
	return &even
}

// pad pads an axis of T tokens to an even tiling. Nobody sees the padding's keys, since they come last.
func (t *tiling) pad(x *Node, axis int, even *tiling) *Node {
	if even.tokens == t.tokens {
		return x
	}
	config := make([]PadAxis, x.Rank())
	config[axis].End = even.tokens - t.tokens
	return Pad(x, ScalarZero(x.Graph(), x.DType()), config...)
}
