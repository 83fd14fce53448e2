package model

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
)

// StepShape holds the sizes of a decoding step: one more token for each of B = Prompts*Samples rows, where the samples
// of a prompt are neighbours.
//
// The cache has up to two parts. The prefix of Tp slots comes from the prefill, and all samples of a prompt share it.
// The suffix of Ts slots is a row's own. A row fills its slots in the order of its text, first the prefix, then the
// suffix. The mask hides slots that are not filled yet, which must hold finite numbers. Without a prefix the whole text
// is in the suffix.
//
// With InGraph the suffix is a ring: all rows write the new token into the same slot before they look, and a row sees
// the youngest slots, as many as it has tokens after its prefix (ring.go).
type StepShape struct {
	Prompts, Samples int
	Prefix, Suffix   int // Tp and Ts; 0: no such part
	// InGraph: the cache stays in the engine, in the activations' type. The step writes the new keys and values into
	// their slot of the suffix, whose buffers may be donated, and returns the whole suffix. Otherwise it returns only
	// the new ones, and the host writes them into buffers that it shares with the engine.
	InGraph bool
}

// Rows is B.
func (s StepShape) Rows() int { return s.Prompts * s.Samples }

// MaskLen is the length of a mask's row: the slots of both parts, and the new token where it has no slot yet.
func (s StepShape) MaskLen() int {
	if s.InGraph {
		return s.Prefix + s.Suffix
	}
	return s.Prefix + s.Suffix + 1
}

// StepInputs are a step's inputs as nodes.
type StepInputs struct {
	Tokens    *Node   // int32 [B]; unused with EmbedRows
	EmbedRows *Node   // float32 [B, H], rows of the embedding copied by the host; nil: gathered in the graph
	Cos, Sin  []*Node // float32 [B, D], of the new tokens' positions, one for each of Config.Rotaries
	Masks     []*Node // float32 [B, MaskLen], one for each of Config.Windows ([StepShape.Mask])
	Inverse   *Node   // float32 [B, 1], 1/temperature

	// With InGraph, instead of cos, sin and masks:
	Positions *Node // int32 [B], the new token's
	Lengths   *Node // int32 [B], the tokens in the prefix
	Slot      *Node // int32, of the new tokens in the suffix
	Draw      *Node // float32 [B, 1] (SampleHead)

	// [Layers] of [Prompts, kv, D, Tp] and [Prompts, kv, Tp, D], nil without a prefix, and of [Prompts, kv, Samples,
	// D, Ts] and [..., Ts, D], nil without a suffix. With InGraph, keys have the axes of values.
	PrefixKeys, PrefixValues []*Node
	Keys, Values             []*Node

	shape StepShape
}

// StepInputs makes the graph's parameters for a step, in this order: embed rows (if hostRows) or tokens, cos and sin of
// each rope, masks, inverse temperature, then for each layer prefix keys, prefix values, keys, values. With InGraph it
// is [StepState], then prefix keys and values of every layer, then keys and values of every layer.
func (c *Config) StepInputs(g *Graph, s StepShape, hostRows bool, o GraphOptions) StepInputs {
	if s.InGraph {
		return c.ringInputs(g, s, o)
	}
	in, rows := StepInputs{shape: s}, s.Rows()
	float := func(name string, dims ...int) *Node { return Parameter(g, name, shapes.Make(dtypes.Float32, dims...)) }
	if hostRows {
		in.EmbedRows = float("embed_rows", rows, c.HiddenSize)
	} else {
		in.Tokens = Parameter(g, "tokens", shapes.Make(dtypes.Int32, rows))
	}
	for i := range c.ropes() {
		in.Cos = append(in.Cos, float(fmt.Sprint("cos_", i), rows, c.HeadDim))
		in.Sin = append(in.Sin, float(fmt.Sprint("sin_", i), rows, c.HeadDim))
	}
	for _, w := range c.Windows() {
		in.Masks = append(in.Masks, float(fmt.Sprint("mask_", w), rows, s.MaskLen()))
	}
	in.Inverse = float("inverse_temperature", rows, 1)
	for i := range c.Layers {
		if s.Prefix > 0 {
			in.PrefixKeys = append(in.PrefixKeys, float(fmt.Sprint("prefix_keys_", i), s.Prompts, c.KVHeads, c.HeadDim,
				s.Prefix))
			in.PrefixValues = append(in.PrefixValues, float(fmt.Sprint("prefix_values_", i), s.Prompts, c.KVHeads,
				s.Prefix, c.HeadDim))
		}
		if s.Suffix > 0 {
			in.Keys = append(in.Keys, float(fmt.Sprint("keys_", i), s.Prompts, c.KVHeads, s.Samples, c.HeadDim,
				s.Suffix))
			in.Values = append(in.Values, float(fmt.Sprint("values_", i), s.Prompts, c.KVHeads, s.Samples, s.Suffix,
				c.HeadDim))
		}
	}
	return in
}

// Windows lists the layers' different sliding windows, in the order of the layers; 0 means no window.
func (c *Config) Windows() []int {
	var out []int
	for layer := range c.Layers {
		if w := c.Window(layer); !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// Step builds a decoding step. Each layer's keys (rotated) and values are the new token's, [Prompts, kv, Samples, 1, 1,
// D], or with InGraph the whole suffix. params are the weights in the order of Held.
func (c *Config) Step(params []*Node, in StepInputs, o GraphOptions) Decoded {
	c.checkParams(params)
	d := c.newDecoding(in, o)
	x := Reshape(ConvertDType(c.embed(params, in.EmbedRows, in.Tokens), o.ComputeType()), d.rowDims(c.HiddenSize)...)
	var out Decoded
	for layer := range c.Layers {
		w := c.nameWeights(c.layerParams(params, layer), x)
		mixed, k, v := d.attention(layer, x, w)
		out.Keys = append(out.Keys, toCacheType(k, in.shape.InGraph))
		out.Values = append(out.Values, toCacheType(v, in.shape.InGraph))
		x = Add(x, d.attentionOut(mixed, w))
		x = Add(x, d.mlp(x, w))
	}
	x = inferenceNorm(x, c.lastNorm(params, x), c.RMSNormEps)
	out.Head = c.sampleHead(Reshape(x, in.shape.Rows(), c.HiddenSize), params[c.HeadTable()], in.Inverse, in.Draw)
	return out
}

// decoding holds what all layers of a step use. Its nodes have the axes [Prompts, kv, Samples, G, 1, last], where G
// queries share a head of keys. Each query is a row of its own, so that memory speed limits its product with the keys.
type decoding struct {
	inference
	StepInputs
	rotations
	maskOf map[int]*Node // by window, [Prompts, 1, Samples, 1, 1, MaskLen]
}

func (c *Config) newDecoding(in StepInputs, o GraphOptions) decoding {
	s := in.shape
	row := func(x *Node) *Node { return Reshape(x, s.Prompts, 1, s.Samples, 1, 1, -1) }
	d := decoding{inference: c.newInference(in.Inverse.Graph(), s.Rows(), o), StepInputs: in, maskOf: map[int]*Node{}}
	for i, r := range c.ropes() {
		if s.InGraph {
			made := newRotation(Reshape(in.Positions, -1, 1), r, c.HeadDim)
			d.add(rotation{row(made.cos), row(made.sin), r.rotates}, c.attentionScale())
		} else {
			d.add(rotation{row(in.Cos[i]), row(in.Sin[i]), r.rotates}, c.attentionScale())
		}
	}
	for i, w := range c.Windows() {
		if s.InGraph {
			d.maskOf[w] = row(in.ringMask(w))
		} else {
			d.maskOf[w] = row(in.Masks[i])
		}
	}
	return d
}

// attention builds a layer's attention up to o_proj (rowDims), and the keys and values that the step returns.
func (d decoding) attention(layer int, x *Node, w layerWeights) (mixed, keys, values *Node) {
	q, k, v := d.project(x, w, d.splitHeads)
	rope := d.ropeOf(layer)
	q, k = d.rotate(q, d.ofQueries[rope]), d.rotate(k, d.ofKeys[rope])
	if d.shape.InGraph {
		k, v = d.writeSlot(d.Keys[layer], k), d.writeSlot(d.Values[layer], v)
	}
	scores, parts := d.parts(layer, q, k, v)
	z, _ := d.capOfScores().apply(concat(scores, 5))
	p := Softmax(Add(z, ConvertDType(d.maskOf[d.Window(layer)], z.DType())), -1)
	at, sum := 0, (*Node)(nil)
	for _, s := range parts {
		sum = addTo(sum, s.mix(ConvertDType(sliceAxis(p, 5, at, at+s.len), s.values.DType())))
		at += s.len
	}
	return d.joinHeads(sum), k, v
}

// splitHeads turns B rows of kv*G*D elements into [Prompts, kv, Samples, G, 1, D].
func (d decoding) splitHeads(x *Node) *Node {
	s, g := d.shape, x.Shape().Dim(-1)/(d.KVHeads*d.HeadDim)
	if s.Samples == 1 {
		return Reshape(x, s.Prompts, d.KVHeads, 1, g, 1, d.HeadDim)
	}
	x = TransposeAllAxes(Reshape(x, s.Prompts, s.Samples, d.KVHeads, g*d.HeadDim), 0, 2, 1, 3)
	return Reshape(x, s.Prompts, d.KVHeads, s.Samples, g, 1, d.HeadDim)
}

// joinHeads turns x [Prompts, kv, Samples, G, 1, D] into rows of kv*G*D elements.
func (d decoding) joinHeads(x *Node) *Node {
	s := d.shape
	if s.Samples > 1 {
		x = TransposeAllAxes(Reshape(x, s.Prompts, d.KVHeads, s.Samples, -1), 0, 2, 1, 3)
	}
	return Reshape(x, d.rowDims(d.Heads*d.HeadDim)...)
}

// seenPart is a part of the keys and values that the queries see, of len slots. mix adds up its values with weights
// [Prompts, kv, Samples, G, 1, len].
type seenPart struct {
	len          int
	keys, values *Node
	mix          func(p *Node) *Node
}

// parts gives the parts that the queries see, with scores [Prompts, kv, Samples, G, 1, len] in the wideType. k and v are
// the new token's, [Prompts, kv, Samples, 1, 1, D], or with InGraph the suffix that has them.
func (d decoding) parts(layer int, q, k, v *Node) (scores []*Node, parts []seenPart) {
	add := func(score *Node, p seenPart) { scores, parts = append(scores, score), append(parts, p) }
	as := func(cache *Node) *Node { return ConvertDType(cache, q.DType()) }
	if d.shape.Prefix > 0 {
		add(d.cachedPart(q, as(d.PrefixKeys[layer]), as(d.PrefixValues[layer])))
	}
	if d.shape.InGraph {
		add(d.cachedPart(q, k, v))
		return scores, parts
	}
	if d.shape.Suffix > 0 {
		add(d.cachedPart(q, as(d.Keys[layer]), as(d.Values[layer])))
	}
	new := ReduceAndKeep(Mul(widen(q), widen(k)), ReduceSum, -1)
	add(new, seenPart{1, k, v, func(p *Node) *Node { return Mul(p, v) }})
	return scores, parts
}

// cachedPart is a part of the cache: keys [batch..., D, T], with InGraph [batch..., T, D], and values [batch..., T, D],
// where batch is [Prompts, kv] for the prefix and [Prompts, kv, Samples] for the suffix. Queries that see the same keys
// are rows of one product.
func (d decoding) cachedPart(q, keys, values *Node) (*Node, seenPart) {
	s, g, batch := d.shape, q.Shape().Dim(3), keys.Rank()-2
	product := func(x, cache *Node, axis int, out dtypes.DType) *Node {
		x = Reshape(x, slices.Concat(cache.Shape().Dimensions[:batch], []int{-1, x.Shape().Dim(-1)})...)
		return Reshape(dot(x, batch+1, cache, axis, batch, out), s.Prompts, d.KVHeads, s.Samples, g, 1, -1)
	}
	axis := batch
	if s.InGraph {
		axis++
	}
	mix := func(p *Node) *Node { return product(p, values, batch, values.DType()) }
	return product(q, keys, axis, wideType(q.DType())), seenPart{values.Shape().Dim(-2), keys, values, mix}
}
