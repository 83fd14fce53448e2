package model

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
)

// ChunkShape holds the sizes of a chunk of a prefill: tokens of one prompt that see themselves and what the cache has
// of the prompt already, in blocks of as many slots.
type ChunkShape struct {
	Rows, Slots int   // of the cache
	Tokens      int   // C, a divisor of Slots; the last chunk of a prompt is padded on the right
	Blocks      []int // of the cache that layers read, for each of Windows; unused on engines with loops
	InGraph     bool  // the cache stays on the engine, and a layer writes its keys and values into it
	Suffix      bool  // the cache is the suffix of a [StepShape], with an axis of one sample, instead of its prefix
}

// ChunkGraphs builds the programs of a prefill in chunks. A program has few layers ([Config.LayerGroups]), so that a
// chunk needs memory for these alone, and compiling does not grow with the layers. The parameters of each graph are its
// weights, in the order of Held, and then its inputs, in the order in which its comment names them.
type ChunkGraphs struct {
	*Config
	ChunkShape
	Options  GraphOptions
	Matrices dtypes.DType // of the weights
	HostRows bool         // the host copies rows of the embedding
}

// BlocksAt gives the Blocks of the chunk at a position: those before it, or those of them in the window.
func (p ChunkGraphs) BlocksAt(at int) (blocks []int) {
	for _, window := range p.Windows() {
		n := at / p.Tokens
		if window > 0 {
			n -= max(0, at-window+1) / p.Tokens
		}
		blocks = append(blocks, n)
	}
	return blocks
}

// LayerGroup are neighbouring layers, first to end-1.
type LayerGroup struct{ First, End int }

// Size is the number of layers.
func (g LayerGroup) Size() int { return g.End - g.First }

// LayerGroups cuts the layers into groups with the same windows in the same order, the shortest that there are; the
// last one may have fewer layers. Layers without windows, or all with the same, are groups of one.
func (c *Config) LayerGroups() (groups []LayerGroup) {
	var windows []int
	for layer := range c.Layers {
		windows = append(windows, c.Window(layer))
	}
	n := 1
	for !slices.Equal(windows[n:], windows[:c.Layers-n]) {
		n++
	}
	for first := 0; first < c.Layers; first += n {
		groups = append(groups, LayerGroup{first, min(first+n, c.Layers)})
	}
	return groups
}

// Embed gives the hidden states [C, H] that the first layer reads, from embed rows float32 [C, H] (with HostRows), or
// from the table, its only weight, and tokens int32 [1, C].
func (p ChunkGraphs) Embed(g *Graph) []*Node {
	var rows *Node
	if p.HostRows {
		rows = Parameter(g, "embed_rows", shapes.Make(dtypes.Float32, p.Tokens, p.HiddenSize))
	} else {
		table := p.weights(g, p.EmbedTable())[0]
		tokens := Parameter(g, "tokens", shapes.Make(dtypes.Int32, 1, p.Tokens))
		rows = Gather(table, Reshape(tokens, -1, 1))
	}
	return []*Node{ConvertDType(p.embed(nil, rows, nil), p.Options.dtype())}
}

// Layers gives the hidden states [C, H] behind a group of layers, and the keys, rotated, and values of each: with
// InGraph the cache with them in it, else float32 [1, kv, D, C] and [1, kv, C, D] for the host.
//
// Weights: those of each layer. Inputs: the place, int32 [2], which is the prompt's row in the cache and the position of
// the chunk's first token, a multiple of C; hidden states [C, H]; keys and values of each layer in the cache.
func (p ChunkGraphs) Layers(g *Graph, group LayerGroup) []*Node {
	var weights [][]*Node
	for layer := group.First; layer < group.End; layer++ {
		weights = append(weights, p.weights(g, p.LayerTensors(layer)...))
	}
	s := p.newChunk(g)
	x := Parameter(g, "hidden", shapes.Make(p.Options.dtype(), p.Tokens, p.HiddenSize))
	x = Reshape(x, s.rowDims(p.HiddenSize)...)
	var cache []*Node
	for i, own := range weights {
		w, layer := p.nameWeights(own, x), group.First+i
		keys, values := p.cache(g, layer)
		q, k, v := s.project(layer, x, w)
		mixed := s.mix(q, k, v, keys, values, p.Window(layer))
		cache = append(cache, s.keep(keys, k, mixed, true), s.keep(values, v, mixed, false))
		x = Add(x, s.attentionOut(Reshape(mixed, s.rowDims(p.Heads*p.HeadDim)...), w))
		x = Add(x, s.mlp(x, w))
	}
	return append([]*Node{Reshape(x, p.Tokens, p.HiddenSize)}, cache...)
}

// Head gives what the next token is drawn from. Weights: the last norm's and the head's table. Inputs: the last token
// of the prompt in the chunk, int32 [1], 1/temperature, float32 [1, 1], hidden states [C, H].
func (p ChunkGraphs) Head(g *Graph) []*Node {
	weights := p.weights(g, p.HeadTensors()...)
	source := Parameter(g, "source", shapes.Make(dtypes.Int32, 1))
	inverse := Parameter(g, "inverse_temperature", shapes.Make(dtypes.Float32, 1, 1))
	x := rowsAt(Parameter(g, "hidden", shapes.Make(p.Options.dtype(), p.Tokens, p.HiddenSize)), source, nil, 1)
	x = inferenceNorm(x, p.normFactor(weights[0], x), p.RMSNormEps)
	return p.sampleHead(x, weights[1], inverse, nil).nodes()
}

// weights declares some of the tensors of Held.
func (p ChunkGraphs) weights(g *Graph, which ...int) (nodes []*Node) {
	held := p.Held()
	for _, i := range which {
		h := held[i]
		nodes = append(nodes, Parameter(g, h.Name, shapes.Make(h.Type(p.Matrices), h.Shape...)))
	}
	return nodes
}

// cache declares a layer's keys [Rows, kv, D, Slots] and values [Rows, kv, Slots, D]. With InGraph, keys have the axes
// of values.
func (p ChunkGraphs) cache(g *Graph, layer int) (keys, values *Node) {
	dtype := dtypes.Float32
	dims := []int{p.Rows, p.KVHeads, p.Slots, p.HeadDim}
	turned := []int{p.Rows, p.KVHeads, p.HeadDim, p.Slots}
	if p.InGraph {
		dtype, turned = p.Options.dtype(), dims
	}
	declare := func(name string, dims []int) *Node {
		made := dims
		if p.Suffix {
			made = slices.Insert(slices.Clone(dims), 2, 1)
		}
		return Reshape(CacheParameter(g, fmt.Sprint(name, layer), shapes.Make(dtype, made...)), dims...)
	}
	return declare("keys_", turned), declare("values_", dims)
}

// chunk holds what the parts of a layer use.
type chunk struct {
	prefill
	size    ChunkShape
	row, at *Node // the place, scalars
}

func (p ChunkGraphs) newChunk(g *Graph) *chunk {
	place := Parameter(g, "place", shapes.Make(dtypes.Int32, 2))
	number := func(i int) *Node { return Reshape(Slice(place, AxisElem(i))) }
	s := &chunk{size: p.ChunkShape, row: number(0), at: number(1)}
	s.prefill = prefill{inference: p.newInference(g, p.Tokens, p.Options),
		PrefillInputs: PrefillInputs{shape: PrefillShape{Prompts: 1, Tokens: p.Tokens}},
		rotations:     p.newRotations(Add(Iota(g, shapes.Make(dtypes.Int32, 1, p.Tokens), 1), s.at))}
	return s
}

// mix is attention to the cache and then to the chunk itself, [C, h*D].
func (p *chunk) mix(q, k, v, keys, values *Node, window int) *Node {
	dims, joined := q.Shape().Dimensions, joinHeads(q, p.KVHeads)
	look := p.lookBack
	if hasLoops(q.Graph()) {
		look = p.loopBack
	}
	own := &tiling{tokens: p.size.Tokens, block: p.size.Tokens, window: window, constants: map[[3]int]*Node{}}
	all := span{to: p.size.Tokens}
	o := look(joined, keys, values, window)
	o = o.add(joined, TransposeAllAxes(k, 0, 1, 3, 2), v, own.mask(q.Graph(), all, all, nil))
	mixed := ConvertDType(Reshape(o.out(), dims...), q.DType())
	return Reshape(TransposeAllAxes(mixed, 0, 2, 1, 3), dims[2], -1)
}

// mask hides what lies before the window in the block that begins at a slot; nil: all of it is seen.
func (p *chunk) mask(from, at *Node, window int) *Node {
	if window == 0 {
		return nil
	}
	g := at.Graph()
	slots := Add(Iota(g, shapes.Make(dtypes.Int32, 1, 1, 1, p.size.Tokens), 3), from)
	positions := Add(Iota(g, shapes.Make(dtypes.Int32, 1, 1, p.size.Tokens, 1), 2), at)
	return hidden(LessThan(Sub(positions, slots), scalar(positions, float64(window))))
}

// lookBack writes the blocks of the cache that are seen into the graph. Each is read after what is made of the one
// before, so that one exists at a time.
func (p *chunk) lookBack(q, keys, values *Node, window int) online {
	var last []*Node
	o := online{cap: p.scoreCap()}
	for back := p.size.Blocks[slices.Index(p.Windows(), window)]; back > 0; back-- {
		from := AddScalar(p.at, -float64(back*p.size.Tokens))
		v := p.block(values, from, last)
		k := v
		if p.size.InGraph {
			k = TransposeAllAxes(p.block(keys, from, last), 0, 1, 3, 2)
		} else {
			k = p.turnedBlock(keys, from, last)
		}
		as := func(x *Node) *Node { return ConvertDType(x, q.DType()) }
		o = o.add(q, as(k), as(v), p.mask(from, p.at, window))
		last = []*Node{o.out()}
	}
	return o
}

// block is the block of the prompt's row in a cache [Rows, kv, Slots, D] that begins at a slot: [1, kv, C, D].
func (p *chunk) block(cache, from *Node, after []*Node) *Node {
	dims := cache.Shape().Dimensions
	x := Reshape(cache, dims[0]*dims[1], -1, p.size.Tokens, dims[3])
	return Reshape(Gather(x, p.places(dims[1], from, after)), 1, dims[1], p.size.Tokens, dims[3])
}

// turnedBlock is block for a cache [Rows, kv, D, Slots]: [1, kv, D, C].
func (p *chunk) turnedBlock(cache, from *Node, after []*Node) *Node {
	dims := cache.Shape().Dimensions
	x := Reshape(cache, dims[0]*dims[1]*dims[2], -1, p.size.Tokens)
	return Reshape(Gather(x, p.places(dims[1]*dims[2], from, after)), 1, dims[1], dims[2], p.size.Tokens)
}

// places are the indices [n, 2] of a block in the n parts of the prompt's row.
func (p *chunk) places(n int, from *Node, after []*Node) *Node {
	parts := waitFor(Add(Iota(p.row.Graph(), shapes.Make(dtypes.Int32, n, 1), 0), MulScalar(p.row, n)), after)
	number := Div(from, scalar(from, float64(p.size.Tokens)))
	return Concatenate([]*Node{parts, BroadcastToDims(number, n, 1)}, 1)
}

// loopBack is lookBack as a loop.
func (p *chunk) loopBack(q, keys, values *Node, window int) online {
	g, wide, dims := q.Graph(), wideType(q.DType()), q.Shape().Dimensions
	column := func(last int) *Node { return Zeros(g, shapes.Make(wide, dims[0], dims[1], dims[2], last)) }
	first := ScalarZero(g, dtypes.Int32)
	if size := scalar(p.at, float64(p.size.Tokens)); window > 0 {
		first = Mul(Div(Max(first, AddScalar(p.at, float64(1-window))), size), size)
	}
	all := []*Node{first, p.at, q, p.rowOf(keys), p.rowOf(values),
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
		from, at, block := in[0], in[1], span{to: p.size.Tokens, at: in[0]}
		o := online{in[5], in[6], in[7], true, p.scoreCap()}
		keys, values := TransposeAllAxes(block.cut(in[3], 2), 0, 1, 3, 2), block.cut(in[4], 2)
		o = o.add(in[2], keys, values, p.mask(from, at, window))
		next := Add(from, scalar(from, float64(p.size.Tokens)))
		return []*Node{next, at, in[2], in[3], in[4], o.top, o.sum, o.mixed}
	})
	out := While(condition, body, all...)
	return online{top: out[5], sum: out[6], mixed: out[7], cap: p.scoreCap()}
}

// rowOf is the prompt's row of a cache [Rows, kv, Slots, D].
func (p *chunk) rowOf(cache *Node) *Node {
	dims, zero := cache.Shape().Clone().Dimensions, ScalarZero(cache.Graph(), dtypes.Int32)
	dims[0] = 1
	return DynamicSlice(cache, []*Node{p.row, zero, zero, zero}, dims)
}

// keep is what the layer returns for the cache: x [1, kv, C, D] as the host copies it, keys turned, or the cache with x
// in it. It waits for the attention, which reads the cache as it was: else the engine would copy it.
func (p *chunk) keep(cache, x, mixed *Node, keys bool) *Node {
	if !p.size.InGraph {
		if keys {
			x = TransposeAllAxes(x, 0, 1, 3, 2)
		}
		return ConvertDType(x, dtypes.Float32)
	}
	zero := ScalarZero(cache.Graph(), dtypes.Int32)
	x = computeAfter(ConvertDType(x, cache.DType()), mixed)
	if cache.Graph().Backend().Capabilities().Operations[compute.OpTypeDynamicUpdateSlice] {
		return DynamicUpdateSlice(cache, x, []*Node{p.row, zero, p.at, zero})
	}
	return p.putAt(cache, x)
}

// putAt is cache's DynamicUpdateSlice of x for engines without it.
func (p *chunk) putAt(cache, x *Node) *Node {
	dims := cache.Shape().Dimensions
	number := func(axis int) *Node { return Iota(x.Graph(), shapes.Make(dtypes.Int32, dims...), axis) }
	back := Sub(Iota(x.Graph(), shapes.Make(dtypes.Int32, dims[2], 1), 0), p.at)
	back = MinScalar(MaxScalar(back, 0), p.size.Tokens-1)
	x = TransposeAllAxes(Gather(TransposeAllAxes(x, 2, 0, 1, 3), back), 1, 2, 0, 3)
	slots := Sub(number(2), p.at)
	inside := LogicalAnd(GreaterOrEqual(slots, ZerosLike(slots)), LessThan(slots, scalar(slots, float64(p.size.Tokens))))
	inside = LogicalAnd(inside, Equal(number(0), p.row))
	return Where(inside, BroadcastToDims(x, dims...), cache)
}
