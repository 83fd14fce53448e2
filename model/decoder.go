package model

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"
)

// Inputs are a packed batch as nodes: rows of T tokens, N = rows*T, and S slots, each a token whose log-prob is wanted.
type Inputs struct {
	Tokens    *Node // int32 [rows, T]; not read where EmbedRows is given
	Positions *Node // int32 [rows, T], restarting for every answer
	Groups    *Node // int32 [rows, T], a prompt and its answers; -1 padding
	Segments  *Node // int32 [rows, T], 0 prompt, k >= 1 answer k, blind to other answers

	Source  *Node // int32 [S], flat position row*T+t that predicts the slot; nil: all N positions in order
	Inverse *Node // int32 [N], the slot that a position predicts, S: none; nil: no gradient is wanted on onnx
	Target  *Node // int32 [S], the token; not read where TargetRows is given

	EmbedRows  *Node // float32 [N, H], rows of the embedding at Tokens copied by the host; nil: gathered in the graph
	TargetRows *Node // float32 [S, H], rows of the head's table at Target copied by the host; nil: gathered in the graph
}

// GraphOptions choose how a graph computes; none changes what it computes beyond rounding.
type GraphOptions struct {
	Checkpoint bool         // keep only the layers' inputs for the backward pass and compute each layer anew there
	DType      dtypes.DType // of activations and products: Float32 (also the zero value), BFloat16 (norms, softmax, lse stay float32) or, for tests on go, Float64
	HeadChunk  int          // slots whose logits exist at once; 0: chosen so that small batches go in one piece
}

// Inputs makes the parameters of a packed batch, in the order positions, groups, segments, source, inverse, then with
// hostRows embed rows and target rows, else tokens and target.
func (c *Config) Inputs(g *Graph, rows, tokens, slots int, hostRows bool) Inputs {
	ints := func(name string, dims ...int) *Node { return Parameter(g, name, shapes.Make(dtypes.Int32, dims...)) }
	in := Inputs{
		Positions: ints("positions", rows, tokens), Groups: ints("groups", rows, tokens), Segments: ints("segments", rows, tokens),
		Source: ints("source", slots), Inverse: ints("inverse", rows*tokens),
	}
	if hostRows {
		in.EmbedRows = Parameter(g, "embed_rows", shapes.Make(dtypes.Float32, rows*tokens, c.HiddenSize))
		in.TargetRows = Parameter(g, "target_rows", shapes.Make(dtypes.Float32, slots, c.HiddenSize))
	} else {
		in.Tokens, in.Target = ints("tokens", rows, tokens), ints("target", slots)
	}
	return in
}

// Parameters makes the graph's parameters for the weights, float32, in the order of ParamSpecs.
func (c *Config) Parameters(g *Graph) []*Node {
	var nodes []*Node
	for _, s := range c.ParamSpecs() {
		nodes = append(nodes, Parameter(g, s.Name, shapes.Make(dtypes.Float32, s.Shape...)))
	}
	return nodes
}

// Hidden builds the decoder up to the head: hidden states after the last norm, [S, H] at Source in o.DType.
// params are the weights in the order of ParamSpecs.
func (c *Config) Hidden(params []*Node, in Inputs, o GraphOptions) *Node {
	named := c.byName(params)
	x := ConvertDType(c.embedded(named, in), o.dtype())
	shared := c.shared(in)
	for layer := range c.Layers {
		x = c.layer(layer, x, named, shared, o)
	}
	return rmsNorm(x, named[normName], c.RMSNormEps)
}

func (o GraphOptions) dtype() dtypes.DType {
	if o.DType == dtypes.InvalidDType {
		return dtypes.Float32
	}
	return o.DType
}

// byName maps the names of the weights to their nodes.
func (c *Config) byName(params []*Node) map[string]*Node {
	specs := c.ParamSpecs()
	if len(specs) != len(params) {
		exceptions.Panicf("model: %d weights given, want the %d of ParamSpecs", len(params), len(specs))
	}
	named := map[string]*Node{}
	for i, s := range specs {
		if !params[i].Shape().Equal(shapes.Make(params[i].DType(), s.Shape...)) {
			exceptions.Panicf("model: weight %d has shape %s, want %v of %s", i, params[i].Shape(), s.Shape, s.Name)
		}
		named[s.Name] = params[i]
	}
	return named
}

// embedded is the rows of the embedding, [N, H] float32.
func (c *Config) embedded(named map[string]*Node, in Inputs) *Node {
	if in.EmbedRows != nil {
		return in.EmbedRows
	}
	return Gather(named[embedName], Reshape(in.Tokens, -1, 1))
}

// shared is what every layer of one graph uses.
type shared struct {
	rows, tokens      int
	forKeys, forQuery rotation
	masks             map[int]*Node // by window
	source, inverse   *Node         // of the slots, for the last layer
}

func (c *Config) shared(in Inputs) shared {
	r := c.rotation(in.Positions)
	s := shared{
		rows: in.Positions.Shape().Dim(0), tokens: in.Positions.Shape().Dim(1),
		forKeys: r, forQuery: r.scaled(c.attentionScale()), masks: map[int]*Node{},
		source: in.Source, inverse: in.Inverse,
	}
	for layer := range c.Layers {
		if w := c.Window(layer); s.masks[w] == nil {
			s.masks[w] = visibility(in, w)
		}
	}
	return s
}

// layer builds one decoder layer on x [N, H]. The last one gives [S, H]: behind its attention, positions that predict
// nothing are of no use to anything.
func (c *Config) layer(layer int, x *Node, named map[string]*Node, s shared, o GraphOptions) *Node {
	specs := c.layerSpecs(layer)
	weights := make([]*Node, len(specs))
	for i, spec := range specs {
		weights[i] = named[spec.Name]
	}
	build := func(x *Node, weights []*Node) *Node {
		w := c.layerWeights(weights)
		mixed := c.attention(x, w, s, s.masks[c.Window(layer)])
		if layer == c.Layers-1 && s.source != nil {
			x, mixed = rowsAt(x, s.source, s.inverse), rowsAt(mixed, s.source, s.inverse)
		}
		x = Add(x, w.affine(mixed, "self_attn.o_proj"))
		return Add(x, c.mlp(x, w))
	}
	if o.Checkpoint {
		return recomputed(x, weights, build)
	}
	return build(x, weights)
}

// layerWeights are a layer's tensors by name, without "model.layers.N.".
type layerWeights map[string]*Node

// layerWeights names a layer's tensors, which stand in the order of layerSpecs.
func (c *Config) layerWeights(weights []*Node) layerWeights {
	w := layerWeights{}
	for i, spec := range c.layerSpecs(0) {
		w[spec.Name[len("model.layers.0."):]] = weights[i]
	}
	return w
}

// byLayer takes a layer's tensors from all of them.
func (c *Config) byLayer(named map[string]*Node, layer int) layerWeights {
	var weights []*Node
	for _, spec := range c.layerSpecs(layer) {
		weights = append(weights, named[spec.Name])
	}
	return c.layerWeights(weights)
}

// affine applies the linear layer of a name, with its bias where there is one.
func (w layerWeights) affine(x *Node, name string) *Node {
	return affine(x, w[name+".weight"], w[name+".bias"])
}

// attention is what the heads of a layer mix together, [N, h*D], before o_proj.
func (c *Config) attention(x *Node, w layerWeights, s shared, mask *Node) *Node {
	q, k, v := c.projected(x, w, s)
	return attend(q, k, v, mask)
}

// projected are queries [rows, h, T, D], rotated and scaled, keys [rows, kv, T, D], rotated, and values of x [N, H].
func (c *Config) projected(x *Node, w layerWeights, s shared) (q, k, v *Node) {
	x = rmsNorm(x, w["input_layernorm.weight"], c.RMSNormEps)
	q, k, v = w.affine(x, "self_attn.q_proj"), w.affine(x, "self_attn.k_proj"), w.affine(x, "self_attn.v_proj")
	if c.QKNorm {
		q, k = c.headNorm(q, w["self_attn.q_norm.weight"]), c.headNorm(k, w["self_attn.k_norm.weight"])
	}
	split := func(x *Node) *Node { return heads(x, s.rows, s.tokens, c.HeadDim) }
	return s.forQuery.apply(split(q)), s.forKeys.apply(split(k)), split(v)
}

// headNorm normalises every head of x [N, h*D] by one weight [D].
func (c *Config) headNorm(x, weight *Node) *Node {
	return Reshape(rmsNorm(Reshape(x, -1, c.HeadDim), weight, c.RMSNormEps), x.Shape().Dimensions...)
}

func (c *Config) mlp(x *Node, w layerWeights) *Node {
	x = rmsNorm(x, w["post_attention_layernorm.weight"], c.RMSNormEps)
	return w.affine(swiglu(w.affine(x, "mlp.gate_proj"), w.affine(x, "mlp.up_proj")), "mlp.down_proj")
}
