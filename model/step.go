package model

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
)

// StepShape are the sizes of a decoding step: one token more for each of B = Prompts*Samples rows, the samples of a
// prompt next to each other.
//
// The cache has up to two parts. The prefix, Tp slots, is a prompt's, as the prefill gave it, and its samples share it.
// The suffix, Ts slots, is every row's own. A row fills its slots in the order of its text: first those of its prefix,
// then its suffix; slots that it has not filled are hidden by the mask, and must hold finite numbers. Without a prefix all of a text is in the suffix.
type StepShape struct {
	Prompts, Samples int
	Prefix, Suffix   int // Tp and Ts; 0: there is no such part
	// InGraph: the step writes the new keys and values into the suffix itself and gives the whole suffix back, in the
	// type of the activations; its inputs may be donated. Else it gives the new ones only, and the host writes them
	// into buffers that it shares with the engine.
	InGraph bool
}

// Rows is B.
func (s StepShape) Rows() int { return s.Prompts * s.Samples }

// Seen is the length of a mask's row: the slots of both parts, and the new token where it is not in the suffix yet.
func (s StepShape) Seen() int {
	if s.InGraph {
		return s.Prefix + s.Suffix
	}
	return s.Prefix + s.Suffix + 1
}

// StepInputs are a step's inputs as nodes.
type StepInputs struct {
	Tokens    *Node   // int32 [B]; not read where EmbedRows is given
	EmbedRows *Node   // float32 [B, H], rows of the embedding copied by the host; nil: gathered in the graph
	Cos, Sin  *Node   // float32 [B, D], of the new tokens' positions ([Rotary])
	Masks     []*Node // float32 [B, Seen], one for each of Config.Windows ([StepShape.Mask])
	Inverse   *Node   // float32 [B, 1], 1/temperature
	Slots     *Node   // int32 [B], the suffix slot that a new token takes; nil unless InGraph

	PrefixKeys, PrefixValues []*Node // [Layers] of [Prompts, kv, D, Tp] and [Prompts, kv, Tp, D]; nil without a prefix
	Keys, Values             []*Node // [Layers] of [Prompts, kv, Samples, D, Ts] and [..., Ts, D]; nil without a suffix

	shape StepShape
}

// StepInputs makes the parameters of a step, in the order embed rows (with hostRows) or tokens, cos, sin, masks, inverse
// temperature, slots (with InGraph), then for every layer prefix keys, prefix values, keys, values.
func (c *Config) StepInputs(g *Graph, s StepShape, hostRows bool, o GraphOptions) StepInputs {
	in, rows := StepInputs{shape: s}, s.Rows()
	float := func(name string, dims ...int) *Node { return Parameter(g, name, shapes.Make(dtypes.Float32, dims...)) }
	if hostRows {
		in.EmbedRows = float("embed_rows", rows, c.HiddenSize)
	} else {
		in.Tokens = Parameter(g, "tokens", shapes.Make(dtypes.Int32, rows))
	}
	in.Cos, in.Sin = float("cos", rows, c.HeadDim), float("sin", rows, c.HeadDim)
	for _, w := range c.Windows() {
		in.Masks = append(in.Masks, float(fmt.Sprint("mask_", w), rows, s.Seen()))
	}
	in.Inverse = float("inverse_temperature", rows, 1)
	if s.InGraph {
		in.Slots = Parameter(g, "slots", shapes.Make(dtypes.Int32, rows))
	}
	c.cacheInputs(g, &in, o)
	return in
}

// cacheInputs makes the parameters of the cache.
func (c *Config) cacheInputs(g *Graph, in *StepInputs, o GraphOptions) {
	s, dtype := in.shape, dtypes.Float32
	if s.InGraph {
		dtype = o.dtype()
	}
	part := func(name string, layer int, dims ...int) *Node {
		return Parameter(g, fmt.Sprint(name, "_", layer), shapes.Make(dtype, dims...))
	}
	for i := range c.Layers {
		if s.Prefix > 0 {
			in.PrefixKeys = append(in.PrefixKeys, part("prefix_keys", i, s.Prompts, c.KVHeads, c.HeadDim, s.Prefix))
			in.PrefixValues = append(in.PrefixValues, part("prefix_values", i, s.Prompts, c.KVHeads, s.Prefix, c.HeadDim))
		}
		if s.Suffix > 0 {
			in.Keys = append(in.Keys, part("keys", i, s.Prompts, c.KVHeads, s.Samples, c.HeadDim, s.Suffix))
			in.Values = append(in.Values, part("values", i, s.Prompts, c.KVHeads, s.Samples, s.Suffix, c.HeadDim))
		}
	}
}

// Windows lists the sliding windows of the layers, each once, in the order of the layers; 0 is none.
func (c *Config) Windows() []int {
	var out []int
	for layer := range c.Layers {
		if w := c.Window(layer); !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// Step builds a decoding step. Of every layer it gives the new keys, rotated, and the new values [Prompts, kv, Samples, 1,
// 1, D], or with InGraph the whole suffix with them. params are the weights in the order of ParamSpecs.
func (c *Config) Step(params []*Node, in StepInputs, o GraphOptions) Decoded {
	named := c.byName(params)
	x := in.EmbedRows
	if x == nil {
		x = Gather(named[embedName], Reshape(in.Tokens, -1, 1))
	}
	d := c.decoding(in, o)
	x = Reshape(ConvertDType(x, o.dtype()), d.rowDims(c.HiddenSize)...)
	var out Decoded
	for layer := range c.Layers {
		w := c.byLayer(named, layer)
		mixed, k, v := d.attention(layer, x, w)
		out.Keys, out.Values = append(out.Keys, cached(k, in.shape.InGraph)), append(out.Values, cached(v, in.shape.InGraph))
		x = Add(x, d.affine(mixed, w, "self_attn.o_proj"))
		x = Add(x, d.mlp(x, w))
	}
	x = inferenceNorm(x, named[normName], c.RMSNormEps)
	out.Head = c.sampleHead(Reshape(x, in.shape.Rows(), c.HiddenSize), params[c.HeadTable()], in.Inverse)
	return out
}

// decoding is what the layers of a step share. Its nodes have the axes [Prompts, kv, Samples, G, 1, last], where G queries
// share a head of keys: each query is a row of its own, which goes through the keys at the speed of memory.
type decoding struct {
	inference
	StepInputs
	forKeys, forQuery rotation
	masks             map[int]*Node // by window, [Prompts, 1, Samples, 1, 1, Seen]
	written           *Node         // InGraph: bool [Prompts, 1, Samples, 1, Ts], the slot that the new token takes
}

func (c *Config) decoding(in StepInputs, o GraphOptions) decoding {
	s := in.shape
	row := func(x *Node) *Node { return Reshape(x, s.Prompts, 1, s.Samples, 1, 1, -1) }
	r := rotation{row(in.Cos), row(in.Sin)}
	d := decoding{
		inference: c.inference(in.Cos.Graph(), s.Rows(), o), StepInputs: in,
		forKeys: r, forQuery: r.scaled(c.attentionScale()), masks: map[int]*Node{},
	}
	for i, w := range c.Windows() {
		d.masks[w] = row(in.Masks[i])
	}
	if s.InGraph {
		d.written = Equal(Reshape(in.Slots, s.Prompts, 1, s.Samples, 1, 1), Iota(in.Slots.Graph(), shapes.Make(dtypes.Int32, 1, 1, 1, 1, s.Suffix), 4))
	}
	return d
}

// attention is what the heads of a layer mix together (rowDims), before o_proj, and the layer's keys and values to give.
func (d decoding) attention(layer int, x *Node, w layerWeights) (mixed, keys, values *Node) {
	q, k, v := d.projected(x, w)
	scores, parts := d.parts(layer, q, k, v)
	p := Softmax(Add(joined(scores, 5), ConvertDType(d.masks[d.Window(layer)], scores[0].DType())), -1)
	mixed = d.rows(d.mix(p, parts))
	if !d.shape.InGraph {
		return mixed, k, v
	}
	last := parts[len(parts)-1]
	return mixed, last.keys, last.values
}

// projected are queries [Prompts, kv, Samples, G, 1, D], rotated and scaled, keys [Prompts, kv, Samples, 1, 1, D], rotated,
// and values of x.
func (d decoding) projected(x *Node, w layerWeights) (q, k, v *Node) {
	q, k, v = d.inference.projected(x, w, d.heads)
	return d.rotated(q, d.forQuery), d.rotated(k, d.forKeys), v
}

// heads lays x of B rows of kv*G*D elements out as [Prompts, kv, Samples, G, 1, D].
func (d decoding) heads(x *Node) *Node {
	s, g := d.shape, x.Shape().Dim(-1)/(d.KVHeads*d.HeadDim)
	if s.Samples == 1 {
		return Reshape(x, s.Prompts, d.KVHeads, 1, g, 1, d.HeadDim)
	}
	x = TransposeAllAxes(Reshape(x, s.Prompts, s.Samples, d.KVHeads, g*d.HeadDim), 0, 2, 1, 3)
	return Reshape(x, s.Prompts, d.KVHeads, s.Samples, g, 1, d.HeadDim)
}

// rows lays x [Prompts, kv, Samples, G, 1, D] out as rows of kv*G*D elements.
func (d decoding) rows(x *Node) *Node {
	s := d.shape
	if s.Samples > 1 {
		x = TransposeAllAxes(Reshape(x, s.Prompts, d.KVHeads, s.Samples, -1), 0, 2, 1, 3)
	}
	return Reshape(x, d.rowDims(d.Heads*d.HeadDim)...)
}

// seenPart is a part of what the queries see: len slots, with the function that mixes their values by weights
// [Prompts, kv, Samples, G, 1, len].
type seenPart struct {
	len          int
	keys, values *Node
	mix          func(p *Node) *Node
}

// parts gives the scores [Prompts, kv, Samples, G, 1, len] of the parts that the queries see, wide, and the parts.
func (d decoding) parts(layer int, q, k, v *Node) (scores []*Node, parts []seenPart) {
	add := func(score *Node, p seenPart) { scores, parts = append(scores, score), append(parts, p) }
	as := func(cache *Node) *Node { return ConvertDType(cache, q.DType()) }
	if d.shape.Prefix > 0 {
		add(d.prefixPart(q, as(d.PrefixKeys[layer]), as(d.PrefixValues[layer])))
	}
	if d.shape.InGraph {
		add(d.suffixPart(q, d.write(d.Keys[layer], k, -1), d.write(d.Values[layer], v, -2)))
		return scores, parts
	}
	if d.shape.Suffix > 0 {
		add(d.suffixPart(q, as(d.Keys[layer]), as(d.Values[layer])))
	}
	add(newPart(q, k, v))
	return scores, parts
}

// prefixPart is that of the prompts, keys [Prompts, kv, D, Tp] and values [Prompts, kv, Tp, D]: the queries of a prompt's
// samples go together.
func (d decoding) prefixPart(q, keys, values *Node) (*Node, seenPart) {
	s, g := d.shape, q.Shape().Dim(3)
	together := func(x *Node) *Node { return Reshape(x, s.Prompts, d.KVHeads, s.Samples*g, -1) }
	apart := func(x *Node) *Node { return Reshape(x, s.Prompts, d.KVHeads, s.Samples, g, 1, -1) }
	scores := apart(dot(together(q), 3, keys, 2, 2, wideType(q.DType())))
	return scores, seenPart{s.Prefix, keys, values, func(p *Node) *Node { return apart(dot(together(p), 3, values, 2, 2, values.DType())) }}
}

// suffixPart is that of the rows, keys [Prompts, kv, Samples, D, Ts] and values [Prompts, kv, Samples, Ts, D].
func (d decoding) suffixPart(q, keys, values *Node) (*Node, seenPart) {
	s, g := d.shape, q.Shape().Dim(3)
	dense := func(x *Node) *Node { return Reshape(x, s.Prompts, d.KVHeads, s.Samples, g, -1) }
	apart := func(x *Node) *Node { return Reshape(x, s.Prompts, d.KVHeads, s.Samples, g, 1, -1) }
	scores := apart(dot(dense(q), 4, keys, 3, 3, wideType(q.DType())))
	return scores, seenPart{s.Suffix, keys, values, func(p *Node) *Node { return apart(dot(dense(p), 4, values, 3, 3, values.DType())) }}
}

// newPart is the new token alone, k and v [Prompts, kv, Samples, 1, 1, D].
func newPart(q, k, v *Node) (*Node, seenPart) {
	scores := ReduceAndKeep(Mul(wide(q), wide(k)), ReduceSum, -1)
	return scores, seenPart{1, k, v, func(p *Node) *Node { return Mul(p, v) }}
}

// mix adds up the values of all parts by the weights p [Prompts, kv, Samples, G, 1, Seen].
func (d decoding) mix(p *Node, parts []seenPart) *Node {
	var sum *Node
	at := 0
	for _, s := range parts {
		mixed := s.mix(ConvertDType(part(p, 5, at, at+s.len), s.values.DType()))
		if at += s.len; sum == nil {
			sum = mixed
		} else {
			sum = Add(sum, mixed)
		}
	}
	return sum
}

// write puts x [Prompts, kv, Samples, 1, 1, D] into the rows' slots of a suffix, whose axis of slots is the one given.
func (d decoding) write(cache, x *Node, slots int) *Node {
	s, all := d.shape, cache.Shape().Dimensions
	own, at := []int{s.Prompts, d.KVHeads, s.Samples, d.HeadDim, d.HeadDim}, []int{s.Prompts, 1, s.Samples, 1, 1}
	own[5+slots], at[5+slots] = 1, s.Suffix
	written := BroadcastToDims(Reshape(d.written, at...), all...)
	return Where(written, BroadcastToDims(Reshape(ConvertDType(x, cache.DType()), own...), all...), cache)
}

// SelectRows builds the cache of other rows from parts [n, kv, (1,) D, T] of keys and [n, kv, (1,) T, D] of values, for
// engines that hold the cache: row i of the result [len(index), kv, 1, ...] is row index[i], with slots for tokens. It
// fills the cache behind a prefill, and drops finished rows.
func SelectRows(keys, values []*Node, index *Node, tokens int) (newKeys, newValues []*Node) {
	for i := range keys {
		newKeys = append(newKeys, selectRows(keys[i], index, -1, tokens))
		newValues = append(newValues, selectRows(values[i], index, -2, tokens))
	}
	return newKeys, newValues
}

// selectRows takes rows of x and brings an axis, counted from the end, to so many slots.
func selectRows(x, index *Node, axis, tokens int) *Node {
	dims := x.Shape().Dimensions
	last := len(dims) - 2
	x = Reshape(x, dims[0], dims[1], 1, dims[last], dims[last+1])
	axis += 5
	x = Gather(x, Reshape(index, -1, 1))
	if have := x.Shape().Dim(axis); have > tokens {
		return SliceAxis(x, axis, AxisRange(0, tokens))
	} else if have < tokens {
		config := make([]PadAxis, 5)
		config[axis].End = tokens - have
		x = Pad(x, ScalarZero(x.Graph(), x.DType()), config...)
	}
	return x
}
