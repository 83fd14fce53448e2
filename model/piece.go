package model

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
)

// PieceShape holds the sizes of a piece of a prefill: tokens of one prompt that see themselves and, block by block,
// what the cache has of the prompt already. Beside the cache it needs memory for one piece.
type PieceShape struct {
	Rows, Slots int  // of the cache
	Block       int  // N slots, read at once; a divisor of Slots
	Seen        int  // slots that may be filled, a multiple of Block; unused on engines with loops
	Tokens      int  // C; the last piece of a prompt is padded on the right
	InGraph     bool // the cache stays on the engine, and the piece writes its keys and values into it
	Suffix      bool // the cache is the suffix of a [StepShape], with an axis of one sample, instead of its prefix
}

// PieceInputs are a piece's inputs as nodes.
type PieceInputs struct {
	PrefillInputs       // of one prompt of C tokens
	Row, At       *Node // int32, the prompt's row in the cache, and the position of the piece's first token

	// [Layers] of [Rows, kv, D, Slots] and [Rows, kv, Slots, D]. With InGraph, keys have the axes of values.
	Keys, Values []*Node

	shape PieceShape
}

// PieceInputs makes the graph's parameters for a piece, in this order: embed rows (if hostRows) or tokens, source,
// inverse temperature, row and position int32 [2], then for each layer keys and values.
func (c *Config) PieceInputs(g *Graph, s PieceShape, hostRows bool, o GraphOptions) PieceInputs {
	prompt := PrefillShape{Prompts: 1, Tokens: s.Tokens, InGraph: s.InGraph}
	in := PieceInputs{PrefillInputs: c.PrefillInputs(g, prompt, hostRows), shape: s}
	place := Parameter(g, "place", shapes.Make(dtypes.Int32, 2))
	in.Row, in.At = Reshape(Slice(place, AxisElem(0))), Reshape(Slice(place, AxisElem(1)))
	dtype, keys, values := dtypes.Float32, []int{s.Rows, c.KVHeads, c.HeadDim, s.Slots},
		[]int{s.Rows, c.KVHeads, s.Slots, c.HeadDim}
	if s.InGraph {
		dtype, keys = o.dtype(), values
	}
	part := func(name string, layer int, dims []int) *Node {
		made := slices.Clone(dims)
		if s.Suffix {
			made = slices.Insert(made, 2, 1)
		}
		return Reshape(CacheParameter(g, fmt.Sprint(name, layer), shapes.Make(dtype, made...)), dims...)
	}
	for i := range c.Layers {
		in.Keys = append(in.Keys, part("keys_", i, keys))
		in.Values = append(in.Values, part("values_", i, values))
	}
	return in
}

// Piece builds a piece of a prefill. Each layer's keys (rotated) are [1, kv, D, C] and its values [1, kv, C, D], or
// with InGraph both are the whole cache with them. params are the weights in the order of Held.
func (c *Config) Piece(params []*Node, in PieceInputs, o GraphOptions) Decoded {
	c.checkParams(params)
	p := c.newPiece(in, o)
	x := Reshape(ConvertDType(c.embed(params, in.EmbedRows, in.Tokens), o.dtype()), p.rowDims(c.HiddenSize)...)
	var out Decoded
	for layer := range c.Layers {
		w := c.nameWeights(c.layerParams(params, layer), x)
		q, k, v := p.project(layer, x, w)
		mixed := p.mix(layer, q, k, v)
		out.Keys = append(out.Keys, p.keep(in.Keys[layer], k, mixed, true))
		out.Values = append(out.Values, p.keep(in.Values[layer], v, mixed, false))
		if layer == c.Layers-1 {
			x, mixed = p.lastRows(x, mixed)
		}
		x = Add(x, p.attentionOut(Reshape(mixed, p.rowDims(c.Heads*c.HeadDim)...), w))
		x = Add(x, p.mlp(x, w))
	}
	x = Reshape(inferenceNorm(x, c.lastNorm(params, x), c.RMSNormEps), -1, c.HiddenSize)
	out.Head = c.sampleHead(x, params[c.HeadTable()], in.Inverse, nil)
	return out
}

// piece holds what all layers of a piece use.
type piece struct {
	prefill
	PieceInputs
	own map[int]*Node // by window, the mask of the piece's own keys
}

func (c *Config) newPiece(in PieceInputs, o GraphOptions) *piece {
	g, tokens := in.At.Graph(), in.shape.Tokens
	r := c.newRotations(Add(Iota(g, shapes.Make(dtypes.Int32, 1, tokens), 1), in.At))
	p := &piece{prefill: prefill{inference: c.newInference(g, tokens, o), PrefillInputs: in.PrefillInputs,
		rotations: r}, PieceInputs: in, own: map[int]*Node{}}
	all := span{to: tokens}
	for _, w := range c.Windows() {
		t := &tiling{tokens: tokens, block: tokens, window: w, constants: map[[3]int]*Node{}}
		p.own[w] = t.mask(g, all, all, nil)
	}
	return p
}

// mix is attention to the cache and then to the piece itself, [C, h*D].
func (p *piece) mix(layer int, q, k, v *Node) *Node {
	dims, joined := q.Shape().Dimensions, joinHeads(q, p.KVHeads)
	look := p.lookBack
	if hasLoops(q.Graph()) {
		look = p.loopBack
	}
	o := look(joined, p.Keys[layer], p.Values[layer], p.Window(layer))
	o = o.add(joined, TransposeAllAxes(k, 0, 1, 3, 2), v, p.own[p.Window(layer)])
	mixed := ConvertDType(Reshape(o.out(), dims...), q.DType())
	return Reshape(TransposeAllAxes(mixed, 0, 2, 1, 3), dims[2], -1)
}

// mask hides slots that are not filled, and those before the window, in the block that begins at a scalar.
func (p *piece) mask(from, at *Node, window int) *Node {
	tokens := p.shape.Tokens
	slots := Add(Iota(at.Graph(), shapes.Make(dtypes.Int32, 1, 1, 1, p.shape.Block), 3), from)
	sees := LessThan(slots, at)
	if window > 0 {
		positions := Add(Iota(at.Graph(), shapes.Make(dtypes.Int32, 1, 1, tokens, 1), 2), at)
		sees = LogicalAnd(LessThan(Sub(positions, slots), scalar(at, float64(window))), sees)
	}
	return hidden(sees)
}

// lookBack writes every block of the cache into the graph. Each is read after what is made of the one before, so that
// one exists at a time.
func (p *piece) lookBack(q, keys, values *Node, window int) online {
	var last []*Node
	o := online{cap: p.scoreCap()}
	s := p.shape
	for b := range s.Seen / s.Block {
		v := p.block(values, b, last)
		k := v
		if s.InGraph {
			k = TransposeAllAxes(p.block(keys, b, last), 0, 1, 3, 2)
		} else {
			k = p.turnedBlock(keys, b, last)
		}
		as := func(x *Node) *Node { return ConvertDType(x, q.DType()) }
		o = o.add(q, as(k), as(v), p.mask(scalar(p.At, float64(b*s.Block)), p.At, window))
		last = []*Node{o.out()}
	}
	return o
}

// block is block b of the prompt's row in a cache [Rows, kv, Slots, D]: [1, kv, N, D].
func (p *piece) block(cache *Node, b int, after []*Node) *Node {
	dims, slots := cache.Shape().Dimensions, p.shape.Block
	x := Reshape(cache, dims[0]*dims[1], -1, slots, dims[3])
	return Reshape(Gather(x, p.places(dims[1], b, after)), 1, dims[1], slots, dims[3])
}

// turnedBlock is block b of the prompt's row in a cache [Rows, kv, D, Slots]: [1, kv, D, N].
func (p *piece) turnedBlock(cache *Node, b int, after []*Node) *Node {
	dims, slots := cache.Shape().Dimensions, p.shape.Block
	x := Reshape(cache, dims[0]*dims[1]*dims[2], -1, slots)
	return Reshape(Gather(x, p.places(dims[1]*dims[2], b, after)), 1, dims[1], dims[2], slots)
}

// places are the indices [n, 2] of block b in the n parts of the prompt's row.
func (p *piece) places(n, b int, after []*Node) *Node {
	g, shape := p.Row.Graph(), shapes.Make(dtypes.Int32, n, 1)
	parts := waitFor(Add(Iota(g, shape, 0), MulScalar(p.Row, n)), after)
	return Concatenate([]*Node{parts, BroadcastToDims(Const(g, int32(b)), n, 1)}, 1)
}

// loopBack is lookBack as a loop over the blocks that are filled.
func (p *piece) loopBack(q, keys, values *Node, window int) online {
	g, slots, wide, dims := q.Graph(), p.shape.Block, wideType(q.DType()), q.Shape().Dimensions
	column := func(last int) *Node { return Zeros(g, shapes.Make(wide, dims[0], dims[1], dims[2], last)) }
	first := ScalarZero(g, dtypes.Int32)
	all := []*Node{first, p.At, q, p.rowOf(keys), p.rowOf(values),
		AddScalar(column(1), 2*maskedScore), column(1), column(dims[3])}
	parameters := func(g *Graph) (out []*Node) {
		for i, x := range all {
			out = append(out, Parameter(g, fmt.Sprint("state", i), x.Shape()))
		}
		return out
	}
	condition := NewClosure(g, func(g *Graph) []*Node {
		in := parameters(g)
		return []*Node{LessThan(in[0], in[1])}
	})
	body := NewClosure(g, func(g *Graph) []*Node {
		in := parameters(g)
		from, at, block := in[0], in[1], span{to: slots, at: in[0]}
		o := online{in[5], in[6], in[7], true, p.scoreCap()}
		keys, values := TransposeAllAxes(block.cut(in[3], 2), 0, 1, 3, 2), block.cut(in[4], 2)
		o = o.add(in[2], keys, values, p.mask(from, at, window))
		next := Add(from, scalar(from, float64(slots)))
		return []*Node{next, at, in[2], in[3], in[4], o.top, o.sum, o.mixed}
	})
	out := While(condition, body, all...)
	return online{top: out[5], sum: out[6], mixed: out[7], cap: p.scoreCap()}
}

// rowOf is the prompt's row of a cache [Rows, kv, Slots, D].
func (p *piece) rowOf(cache *Node) *Node {
	dims, zero := cache.Shape().Clone().Dimensions, ScalarZero(cache.Graph(), dtypes.Int32)
	dims[0] = 1
	return DynamicSlice(cache, []*Node{p.Row, zero, zero, zero}, dims)
}

// keep is what the piece returns for the cache: x [1, kv, C, D] as the host copies it, keys turned, or the cache with x
// in it. It waits for the attention, which reads the cache as it was: else the engine would copy it.
func (p *piece) keep(cache, x, mixed *Node, keys bool) *Node {
	if !p.shape.InGraph {
		if keys {
			x = TransposeAllAxes(x, 0, 1, 3, 2)
		}
		return ConvertDType(x, dtypes.Float32)
	}
	g, zero := cache.Graph(), ScalarZero(cache.Graph(), dtypes.Int32)
	x = computeAfter(ConvertDType(x, cache.DType()), mixed)
	if g.Backend().Capabilities().Operations[compute.OpTypeDynamicUpdateSlice] {
		return DynamicUpdateSlice(cache, x, []*Node{p.Row, zero, p.At, zero})
	}
	return p.putAt(cache, x)
}

// putAt is cache's DynamicUpdateSlice of x for engines without it.
func (p *piece) putAt(cache, x *Node) *Node {
	dims := cache.Shape().Dimensions
	number := func(axis int) *Node { return Iota(x.Graph(), shapes.Make(dtypes.Int32, dims...), axis) }
	back := Sub(Iota(x.Graph(), shapes.Make(dtypes.Int32, dims[2], 1), 0), p.At)
	tokens := p.shape.Tokens
	x = TransposeAllAxes(Gather(TransposeAllAxes(x, 2, 0, 1, 3), MinScalar(MaxScalar(back, 0), tokens-1)), 1, 2, 0, 3)
	slots := Sub(number(2), p.At)
	inside := LogicalAnd(GreaterOrEqual(slots, ZerosLike(slots)), LessThan(slots, scalar(slots, float64(tokens))))
	inside = LogicalAnd(inside, Equal(number(0), p.Row))
	return Where(inside, BroadcastToDims(x, dims...), cache)
}
