package model

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
)

// PrefillShape are the sizes of a prefill: the first pass over prompts, which fills the cache of keys and values.
type PrefillShape struct {
	Prompts int  // B rows
	Tokens  int  // P, to which every prompt is padded on its right
	InGraph bool // the cache stays on the engine, in the type of the activations; else it is float32 for the host
}

// PrefillInputs are a prefill's inputs as nodes. There is no mask: a prompt's tokens come before its padding, and no
// token sees a later one.
type PrefillInputs struct {
	Tokens    *Node // int32 [B, P]; not read where EmbedRows is given
	EmbedRows *Node // float32 [B*P, H], rows of the embedding copied by the host; nil: gathered in the graph
	Source    *Node // int32 [B], flat position b*P + length - 1 of every prompt's last token
	Inverse   *Node // float32 [B, 1], 1/temperature

	shape PrefillShape
}

// PrefillInputs makes the parameters of a prefill, in the order embed rows (with hostRows) or tokens, source, inverse
// temperature.
func (c *Config) PrefillInputs(g *Graph, s PrefillShape, hostRows bool) PrefillInputs {
	in := PrefillInputs{shape: s}
	if hostRows {
		in.EmbedRows = Parameter(g, "embed_rows", shapes.Make(dtypes.Float32, s.Prompts*s.Tokens, c.HiddenSize))
	} else {
		in.Tokens = Parameter(g, "tokens", shapes.Make(dtypes.Int32, s.Prompts, s.Tokens))
	}
	in.Source = Parameter(g, "source", shapes.Make(dtypes.Int32, s.Prompts))
	in.Inverse = Parameter(g, "inverse_temperature", shapes.Make(dtypes.Float32, s.Prompts, 1))
	return in
}

// Decoded is what a prefill or a step gives: what the next tokens are drawn from, and keys and values of every layer.
type Decoded struct {
	Head         SampleHead
	Keys, Values []*Node // [Layers]
}

// Nodes are the outputs of a program: logits, block sums, block maxima, log-sum-exp, then every layer's keys and values.
func (d Decoded) Nodes() []*Node {
	out := d.Head.nodes()
	for i := range d.Keys {
		out = append(out, d.Keys[i], d.Values[i])
	}
	return out
}

// Prefill builds the pass over the prompts. Of every layer it gives the keys [B, kv, D, P], rotated, and the values
// [B, kv, P, D]; those of padding mean nothing. params are the weights in the order of ParamSpecs.
func (c *Config) Prefill(params []*Node, in PrefillInputs, o GraphOptions) Decoded {
	named := c.byName(params)
	x := ConvertDType(c.embedded(named, Inputs{EmbedRows: in.EmbedRows, Tokens: in.Tokens}), o.dtype())
	s := c.prompts(in, o)
	x = Reshape(x, s.rowDims(c.HiddenSize)...)
	var out Decoded
	for layer := range c.Layers {
		w := c.byLayer(named, layer)
		q, k, v := s.projected(x, w)
		out.Keys = append(out.Keys, cached(TransposeAllAxes(k, 0, 1, 3, 2), in.shape.InGraph))
		out.Values = append(out.Values, cached(v, in.shape.InGraph))
		mixed := attend(q, k, v, s.masks[c.Window(layer)])
		if layer == c.Layers-1 {
			x, mixed = s.last(x, mixed)
		}
		x = Add(x, s.affine(Reshape(mixed, s.rowDims(c.Heads*c.HeadDim)...), w, "self_attn.o_proj"))
		x = Add(x, s.mlp(x, w))
	}
	x = Reshape(inferenceNorm(x, named[normName], c.RMSNormEps), -1, c.HiddenSize)
	out.Head = c.sampleHead(x, params[c.HeadTable()], in.Inverse)
	return out
}

// cached is x in the type of the cache.
func cached(x *Node, inGraph bool) *Node {
	if inGraph {
		return x
	}
	return ConvertDType(x, dtypes.Float32)
}

// prompts is what the layers of a prefill share.
type prompts struct {
	inference
	PrefillInputs
	forKeys, forQuery rotation      // of positions 0 to P-1, the same in every row
	masks             map[int]*Node // by window, [1, 1, P, P]
}

func (c *Config) prompts(in PrefillInputs, o GraphOptions) *prompts {
	g := in.Source.Graph()
	positions := Iota(g, shapes.Make(dtypes.Int32, 1, in.shape.Tokens), 1)
	zeros := Zeros(g, positions.Shape())
	s := c.shared(Inputs{Positions: positions, Groups: zeros, Segments: zeros})
	n := c.inference(g, in.shape.Prompts*in.shape.Tokens, o)
	return &prompts{inference: n, PrefillInputs: in, forKeys: s.forKeys, forQuery: s.forQuery, masks: s.masks}
}

// projected are queries [B, h, P, D], rotated and scaled, keys [B, kv, P, D], rotated, and values of x.
func (p *prompts) projected(x *Node, w layerWeights) (q, k, v *Node) {
	q, k, v = p.inference.projected(x, w, func(x *Node) *Node { return heads(x, p.shape.Prompts, p.shape.Tokens, p.HeadDim) })
	return p.rotated(q, p.forQuery), p.rotated(k, p.forKeys), v
}

// last takes the prompts' last rows of x and mixed; products are of B rows then.
func (p *prompts) last(x, mixed *Node) (*Node, *Node) {
	p.inference.rows, p.inference.swapped = p.shape.Prompts, swapsOperands(p.shape.Prompts)
	rows := func(x *Node) *Node {
		d := x.Shape().Dim(-1)
		return Reshape(rowsAt(Reshape(x, -1, d), p.Source, nil), p.rowDims(d)...)
	}
	return rows(x), rows(mixed)
}
