package model

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
)

// PrefillShape holds the sizes of a prefill: the pass over prompts that fills the cache of keys and values.
type PrefillShape struct {
	Prompts int  // B rows
	Tokens  int  // P; shorter prompts are padded on the right
	InGraph bool // the cache stays on the engine in the activations' type; otherwise it is float32 for the host
	Echo    bool // how likely the prompts' own tokens are is wanted, and no cache
}

// PrefillInputs are a prefill's inputs as nodes. They need no mask: no token sees a later one, and padding comes last.
type PrefillInputs struct {
	Tokens    *Node // int32 [B, P]; unused with EmbedRows
	EmbedRows *Node // float32 [B*P, H], rows of the embedding copied by the host; nil: gathered in the graph
	Source    *Node // int32 [B], flat position b*P + length - 1 of each prompt's last token

	Inverse *Node // float32 [B, 1], 1/temperature

	Next *Node // int32 [B*P], the token after each; of an Echo, which has no Source and no Inverse

	shape PrefillShape
}

// PrefillInputs makes the graph's parameters for a prefill, in this order: embed rows (if hostRows) or tokens, source,
// inverse temperature; or next.
func (c *Config) PrefillInputs(g *Graph, s PrefillShape, hostRows bool) PrefillInputs {
	in := PrefillInputs{shape: s}
	if hostRows {
		in.EmbedRows = Parameter(g, "embed_rows", shapes.Make(dtypes.Float32, s.Prompts*s.Tokens, c.HiddenSize))
	} else {
		in.Tokens = Parameter(g, "tokens", shapes.Make(dtypes.Int32, s.Prompts, s.Tokens))
	}
	if s.Echo {
		in.Next = Parameter(g, "next", shapes.Make(dtypes.Int32, s.Prompts*s.Tokens))
		return in
	}
	in.Source = Parameter(g, "source", shapes.Make(dtypes.Int32, s.Prompts))
	in.Inverse = Parameter(g, "inverse_temperature", shapes.Make(dtypes.Float32, s.Prompts, 1))
	return in
}

// Decoded is the result of a prefill or a step: what the next tokens are drawn from, and each layer's keys and values.
type Decoded struct {
	Head         SampleHead
	Keys, Values []*Node // [Layers]
}

// Nodes lists a program's outputs: logits, block sums, block maxima, log-sum-exp, of a step with InGraph token
// and log-prob, then each layer's keys and values.
func (d Decoded) Nodes() []*Node {
	out := d.Head.nodes()
	for i := range d.Keys {
		out = append(out, d.Keys[i], d.Values[i])
	}
	return out
}

// Prefill builds the pass over the prompts. Each layer's keys are [B, kv, D, P], rotated, with InGraph [B, kv, P, D],
// and its values [B, kv, P, D]. At padding both have no meaning. params are the weights in the order of Held.
func (c *Config) Prefill(params []*Node, in PrefillInputs, o GraphOptions) Decoded {
	var out Decoded
	x := c.prefillRows(params, in, o, &out)
	out.Head = c.sampleHead(x, params[c.HeadTable()], in.Inverse, nil)
	return out
}

// Echo builds the same pass for inputs of an Echo. For each position p of [B*P] it gives log p of the token after it,
// log p of the likeliest token there, both float32, and that token, int32. At padding they have no meaning.
func (c *Config) Echo(params []*Node, in PrefillInputs, o GraphOptions) []*Node {
	x, table := c.prefillRows(params, in, o, &Decoded{}), params[c.HeadTable()]
	n := x.Shape().Dim(0)
	h := head{table: table, blocks: 1, chunk: c.headChunk(n, o)}
	var parts [3][]*Node
	for i, cut := range h.cuts(n) {
		piece := cut(x)
		if i > 0 {
			piece = computeAfter(piece, parts[0][i-1])
		}
		z, _ := c.capOfLogits().apply(ConvertDType(logits(piece, table), dtypes.Float32))
		y, _, _ := rowLogSumExp(z)
		top, zero := ReduceAndKeep(z, ReduceMax, -1), ScalarZero(z.Graph(), dtypes.Float32)
		// the very logit: it may be top
		own := ReduceSum(Where(Equal(positions(z), asColumn(cut(in.Next))), z, zero), -1)
		for k, part := range []*Node{Sub(own, y), Sub(Reshape(top, -1), y), Reshape(firstOf(z, top), -1)} {
			parts[k] = append(parts[k], part)
		}
	}
	return []*Node{h.join(parts[0]), h.join(parts[1]), h.join(parts[2])}
}

// prefillRows builds the layers up to the head: the hidden states of the prompts' last tokens [B, H], or in an Echo of
// all [B*P, H]. out gets keys and values.
func (c *Config) prefillRows(params []*Node, in PrefillInputs, o GraphOptions, out *Decoded) *Node {
	c.checkParams(params)
	s := c.newPrefill(params[0].Graph(), in, o)
	x := Reshape(ConvertDType(c.embed(params, in.EmbedRows, in.Tokens), o.ComputeType()), s.rowDims(c.HiddenSize)...)
	for layer := range c.Layers {
		w := c.nameWeights(c.layerParams(params, layer), x)
		q, k, v := s.project(layer, x, w)
		keys := k
		if !in.shape.InGraph {
			keys = TransposeAllAxes(k, 0, 1, 3, 2)
		}
		out.Keys = append(out.Keys, toCacheType(keys, in.shape.InGraph))
		out.Values = append(out.Values, toCacheType(v, in.shape.InGraph))
		mixed := attend(q, k, v, s.masks[c.Window(layer)])
		if layer == c.Layers-1 && !in.shape.Echo {
			s.inference.rows, s.swapped = in.shape.Prompts, swapsOperands(in.shape.Prompts, s.turn.DType())
			x, mixed = s.lastRow(x), s.lastRow(mixed)
		}
		x = Add(x, s.attentionOut(Reshape(mixed, s.rowDims(c.Heads*c.HeadDim)...), w))
		x = Add(x, s.mlp(x, w))
	}
	return Reshape(inferenceNorm(x, c.lastNorm(params, x), c.RMSNormEps), -1, c.HiddenSize)
}

// toCacheType converts x to the type of the cache.
func toCacheType(x *Node, inGraph bool) *Node {
	if inGraph {
		return x
	}
	return ConvertDType(x, dtypes.Float32)
}

// prefill holds what all layers of a prefill use.
type prefill struct {
	inference
	PrefillInputs
	rotations                       // of positions 0 to P-1, the same in every row
	masks     map[int]attentionMask // by window, of one row
}

func (c *Config) newPrefill(g *Graph, in PrefillInputs, o GraphOptions) *prefill {
	positions := Iota(g, shapes.Make(dtypes.Int32, 1, in.shape.Tokens), 1)
	zeros := Zeros(g, positions.Shape())
	row, rows := Inputs{Positions: positions, Groups: zeros, Segments: zeros}, in.shape.Prompts
	return &prefill{
		inference: c.newInference(g, rows*in.shape.Tokens, o), PrefillInputs: in,
		rotations: c.newRotations(positions), masks: c.newMasks(row, rows, false, o),
	}
}

// project gives x's queries [B, h, P, D], rotated and scaled, keys [B, kv, P, D], rotated, and values.
func (p *prefill) project(layer int, x *Node, w layerWeights) (q, k, v *Node) {
	q, k, v = p.inference.project(x, w, func(x *Node) *Node {
		return splitHeads(x, p.shape.Prompts, p.shape.Tokens, p.HeadDim)
	})
	rope := p.ropeOf(layer)
	return p.rotate(q, p.ofQueries[rope]), p.rotate(k, p.ofKeys[rope]), v
}

// lastRow takes the prompts' last rows of x. From then on products have B rows.
func (p *prefill) lastRow(x *Node) *Node {
	d := x.Shape().Dim(-1)
	return Reshape(rowsAt(Reshape(x, -1, d), p.Source, nil, 1), p.rowDims(d)...)
}
