package model

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"
)

// Inputs are a packed batch as nodes: rows of T tokens, N = rows*T, and S slots, each a token whose log-prob is wanted.
type Inputs struct {
	Tokens    *Node // int32 [rows, T]; unused with EmbedRows
	Positions *Node // int32 [rows, T]; each answer continues its prompt's positions
	Groups    *Node // int32 [rows, T], equal for a prompt and its answers; -1: padding
	Segments  *Node // int32 [rows, T], 0: prompt, k >= 1: answer k, which does not see other answers

	Source  *Node // int32 [S], flat position row*T+t that predicts the slot; nil: all N positions in order
	Inverse *Node // int32 [N], the slot that a position predicts, S if it predicts none; nil: no gradients on onnx
	Target  *Node // int32 [S], the token; unused with TargetRows

	EmbedRows  *Node // float32 [N, H], rows of the embedding at Tokens copied by the host; nil: gathered in the graph
	TargetRows *Node // float32 [S, H], the same for Target in the head's table

	// Blocks is the number D of equal blocks of rows and slots, one for each shard of a mesh's data; 0 or 1: one. A slot
	// is in the block of its row. Source and Inverse are then positions and slots within a block, with S/D for none, so
	// that no shard needs another's hidden states.
	Blocks int
}

// GraphOptions choose how a graph computes. They change results by rounding only.
type GraphOptions struct {
	// Checkpoint keeps only the layers' inputs for the backward pass, which computes each layer again.
	Checkpoint bool
	// DType is the type of activations and products: Float32 (also the zero value), BFloat16 (norms, softmax and
	// log-sum-exp stay float32) or, for tests on go, Float64.
	DType dtypes.DType
	// HeadChunk is the number of slots whose logits exist at once; 0: all of a small batch.
	HeadChunk int
	// Room is how many bytes the logits of a chunk, and the scores of a block, may take each, where this is more than
	// what bounds them otherwise.
	Room int
	// AttentionBlock is the length of the blocks in which attention computes the scores of queries and keys, so that
	// its memory grows with a row's length, not with its square. A length that covers the row computes it whole.
	// 0: rows of up to 2,048 tokens whole, longer ones in blocks of about 128 MiB of scores, 32 MiB on XLA.
	AttentionBlock int
}

// Inputs makes the graph's parameters for a packed batch, in this order: positions, groups, segments, source, inverse,
// then embed rows and target rows if hostRows, else tokens and target. A reward model has no targets. All are cut by
// rows over the graph's mesh.
func (c *Config) Inputs(g *Graph, rows, tokens, slots int, hostRows bool) Inputs {
	ints := func(name string, dims ...int) *Node {
		return RowsParameter(g, name, shapes.Make(dtypes.Int32, dims...))
	}
	in := Inputs{
		Positions: ints("positions", rows, tokens), Groups: ints("groups", rows, tokens),
		Segments: ints("segments", rows, tokens), Source: ints("source", slots), Inverse: ints("inverse", rows*tokens),
	}
	if hostRows {
		in.EmbedRows = Parameter(g, "embed_rows", shapes.Make(dtypes.Float32, rows*tokens, c.HiddenSize))
	} else {
		in.Tokens = ints("tokens", rows, tokens)
	}
	switch {
	case c.Reward:
	case hostRows:
		in.TargetRows = Parameter(g, "target_rows", shapes.Make(dtypes.Float32, slots, c.HiddenSize))
	default:
		in.Target = ints("target", slots)
	}
	return in
}

// Parameters makes the graph's parameters for the weights, float32, in the order of Held.
func (c *Config) Parameters(g *Graph) []*Node { return c.ParametersIn(g, dtypes.Float32) }

// ParametersIn is Parameters with the matrices in another type. Products convert them to it anyway, so that the results
// keep their bits; norms and biases stay float32.
func (c *Config) ParametersIn(g *Graph, dtype dtypes.DType) []*Node {
	var nodes []*Node
	for _, h := range c.Held() {
		nodes = append(nodes, Parameter(g, h.Name, shapes.Make(h.Type(dtype), h.Shape...)))
	}
	return nodes
}

// MatrixType is dtype for a weight that is a matrix, and float32 for a vector.
func MatrixType(shape []int, dtype dtypes.DType) dtypes.DType {
	if len(shape) > 1 {
		return dtype
	}
	return dtypes.Float32
}

// Hidden builds the decoder up to the head: hidden states after the last norm, [S, H] at Source in o.DType. params are
// the weights in the order of Held.
func (c *Config) Hidden(params []*Node, in Inputs, o GraphOptions) *Node {
	c.checkParams(params)
	x := ConvertDType(c.embed(params, in.EmbedRows, in.Tokens), o.ComputeType())
	common := c.newCommonNodes(in, o)
	for layer := range c.Layers {
		x = c.buildLayer(layer, x, params, common, o)
	}
	return rmsNorm(x, c.lastNorm(params, x), c.RMSNormEps)
}

// ComputeType is DType, or Float32 for its zero value.
func (o GraphOptions) ComputeType() dtypes.DType {
	if o.DType == dtypes.InvalidDType {
		return dtypes.Float32
	}
	return o.DType
}

func (c *Config) checkParams(params []*Node) {
	specs := c.Held()
	if len(specs) != len(params) {
		exceptions.Panicf("model: found %d weights, want the %d of Held", len(params), len(specs))
	}
	for i, s := range specs {
		if !params[i].Shape().Equal(shapes.Make(params[i].DType(), s.Shape...)) {
			exceptions.Panicf("model: weight %d has shape %s, want %v of %s", i, params[i].Shape(), s.Shape, s.Name)
		}
	}
}

// embed gives what the first layer reads [N, H], float32: the embedding's rows, rows if the host has copied them, else
// the rows of tokens. gemma's factor √H is float32 wherever the table is: transformers rounds it to bfloat16 if the
// weights have that type.
func (c *Config) embed(params []*Node, rows, tokens *Node) *Node {
	if rows == nil {
		rows = Gather(params[c.EmbedTable()], Reshape(tokens, -1, 1))
	}
	if c.gemma() {
		rows = MulScalar(widen(rows), math.Sqrt(float64(c.HiddenSize)))
	}
	return rows
}

// commonNodes are the nodes that all layers of a graph use.
type commonNodes struct {
	rows, tokens int
	rotations
	masks           map[int]attentionMask // by window
	source, inverse *Node                 // of the slots, for the last layer
	blocks          int
}

func (c *Config) newCommonNodes(in Inputs, o GraphOptions) commonNodes {
	rows, tokens := in.Positions.Shape().Dim(0), in.Positions.Shape().Dim(1)
	return commonNodes{
		rows: rows, tokens: tokens, rotations: c.newRotations(in.Positions),
		masks: c.newMasks(in, rows, true, o), source: in.Source, inverse: in.Inverse,
		blocks: in.Blocks,
	}
}

// buildLayer builds one decoder layer on x [N, H]. The last layer gives [S, H], since after its attention only the
// positions that predict a slot are needed.
func (c *Config) buildLayer(layer int, x *Node, params []*Node, s commonNodes, o GraphOptions) *Node {
	weights := c.layerParams(params, layer)
	build := func(x *Node, weights []*Node) *Node {
		w := c.nameWeights(weights, x)
		q, k, v := c.project(layer, x, w, s)
		mixed := attend(q, k, v, s.masks[c.Window(layer)]) // [N, h*D]
		if layer == c.Layers-1 && s.source != nil {
			at := func(x *Node) *Node { return rowsAt(x, s.source, s.inverse, s.blocks) }
			x, mixed = at(x), at(mixed)
		}
		x = Add(x, c.normOut(c.affine(mixed, w, "self_attn.o_proj"), w, "post_attention_layernorm"))
		return Add(x, c.mlp(x, w))
	}
	if !o.Checkpoint {
		return build(x, weights)
	}
	n := 0 // frozen tensors, which come first and have no gradients, for which the adjoint of x would wait
	if c.LoRA != nil {
		n = len(c.layerSpecs(0)) + c.quantizedOfLayer()
	}
	return recompute(x, weights[n:], func(x *Node, trained []*Node) *Node {
		return build(x, slices.Concat(weights[:n], trained))
	})
}

// layerParams gives a layer's tensors of those in Held.
func (c *Config) layerParams(params []*Node, layer int) (own []*Node) {
	for _, i := range c.LayerTensors(layer) {
		own = append(own, params[i])
	}
	return own
}

// LayerTensors are the indices in Held of a layer's tensors: what layerSpecs lists, the scales of quantised ones, and
// what loraSpecs lists.
func (c *Config) LayerTensors(layer int) (indices []int) {
	add := func(first, n int) {
		for i := range n {
			indices = append(indices, first+layer*n+i)
		}
	}
	scales := c.quantizedOfLayer()
	add(1, len(c.layerSpecs(0)))
	add(c.Frozen(), scales)
	add(c.baseCount()+c.Layers*scales, len(c.loraSpecs(0)))
	return indices
}

// layerWeights are a layer's tensors by name, without "model.layers.N.".
type layerWeights map[string]*Node

// nameWeights maps the tensors of layerParams to their names, for hidden states x.
func (c *Config) nameWeights(weights []*Node, x *Node) layerWeights {
	names := c.layerSpecs(0)
	if c.quantizedOfLayer() > 0 {
		for _, s := range c.linearModules() {
			names = append(names, ParamSpec{Name: "model.layers.0." + s.Name + ".weight" + scalesEnd})
		}
	}
	w := layerWeights{}
	for i, spec := range slices.Concat(names, c.loraSpecs(0)) {
		name := spec.Name[len("model.layers.0."):]
		if w[name] = weights[i]; strings.HasSuffix(name, "norm.weight") {
			w[name] = c.normFactor(weights[i], x)
		}
	}
	return w
}

// normFactor is what a norm of x multiplies by, for its weight.
func (c *Config) normFactor(weight, x *Node) *Node {
	if c.gemma() {
		return AddScalar(ConvertDType(weight, wideType(x.DType())), 1)
	}
	return weight
}

// lastNorm is the factor of the norm below the head.
func (c *Config) lastNorm(params []*Node, x *Node) *Node {
	return c.normFactor(params[c.normIndex()], x)
}

// affine applies the linear layer of a name, with its bias and its adapter if it has them.
func (c *Config) affine(x *Node, w layerWeights, name string) *Node {
	y := c.weight(w, name).linear(x)
	if bias := w[name+".bias"]; bias != nil {
		y = Add(y, Reshape(ConvertDType(bias, y.DType()), 1, -1))
	}
	return c.adapt(y, w, name, func(a *Node) *Node { return linear(x, a) }, linear)
}

// project gives x's [N, H] queries [rows, h, T, D], rotated and scaled, keys [rows, kv, T, D], rotated, and values.
func (c *Config) project(layer int, x *Node, w layerWeights, s commonNodes) (q, k, v *Node) {
	x = rmsNorm(x, w["input_layernorm.weight"], c.RMSNormEps)
	q, k, v = c.qkv(func(name string) *Node { return c.affine(x, w, name) })
	if c.QKNorm {
		q, k = c.headNorm(q, w["self_attn.q_norm.weight"]), c.headNorm(k, w["self_attn.k_norm.weight"])
	}
	split := func(x *Node) *Node { return splitHeads(x, s.rows, s.tokens, c.HeadDim) }
	rope := c.ropeOf(layer)
	return s.ofQueries[rope].apply(split(q)), s.ofKeys[rope].apply(split(k)), split(v)
}

// headNorm normalises every head of x [N, h*D] by one weight [D].
func (c *Config) headNorm(x, weight *Node) *Node {
	return Reshape(rmsNorm(Reshape(x, -1, c.HeadDim), weight, c.RMSNormEps), x.Shape().Dimensions...)
}

func (c *Config) mlp(x *Node, w layerWeights) *Node {
	x = rmsNorm(x, w[c.mlpNorm()], c.RMSNormEps)
	if c.Experts > 0 {
		return c.mixture(x, func(x *Node, name string) *Node { return c.affine(x, w, name) })
	}
	gate, up := c.gateUp(1, func(name string) *Node { return c.affine(x, w, name) })
	return c.normOut(c.down(gate, up, w), w, "post_feedforward_layernorm")
}

// down is the MLP's last layer. Of large values the backward pass computes the product of gate and up again, which costs
// little, and not that with the weight, whose value no gradient needs.
func (c *Config) down(gate, up *Node, w layerWeights) *Node {
	const name = "mlp.down_proj"
	build := func(gate, up *Node, w layerWeights) *Node { return c.affine(c.gate(gate, up), w, name) }
	if gate.Shape().Size() < largeValue {
		return build(gate, up, w)
	}
	trained := []string{name + ".weight", name + ".bias", name + loraA, name + loraB}
	if c.LoRA != nil { // nobody asks for the others' gradients
		trained = trained[2:]
	}
	trained = slices.DeleteFunc(trained, func(name string) bool { return w[name] == nil })
	inputs := []*Node{up}
	for _, name := range trained {
		inputs = append(inputs, w[name])
	}
	return recompute(gate, inputs, func(gate *Node, inputs []*Node) *Node {
		own := maps.Clone(w)
		for i, name := range trained {
			own[name] = inputs[1+i]
		}
		return build(gate, inputs[0], own)
	})
}

// largeValue is the number of elements from which on values of a layer that cost little, such as attention's weights, are
// computed again in the backward pass. Kept, they are half of what a layer keeps.
const largeValue = 1 << 19

// qkv gives queries, keys and values [..., h*D]. layer applies the linear layer of a name.
func (c *Config) qkv(layer func(name string) *Node) (q, k, v *Node) {
	if !c.joins() {
		return layer("self_attn.q_proj"), layer("self_attn.k_proj"), layer("self_attn.v_proj")
	}
	y, h, kv := layer("self_attn.qkv_proj"), c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	part := func(from, n int) *Node { return sliceAxis(y, y.Rank()-1, from, from+n) }
	return part(0, h), part(h, kv), part(h+kv, kv)
}

// gateUp gives the MLP's two inner layers. layer applies the linear layer of a name, whose outputs are an axis.
func (c *Config) gateUp(axis int, layer func(name string) *Node) (gate, up *Node) {
	if !c.joins() {
		return layer("mlp.gate_proj"), layer("mlp.up_proj")
	}
	y, n := layer("mlp.gate_up_proj"), c.IntermediateSize
	return sliceAxis(y, axis, 0, n), sliceAxis(y, axis, n, 2*n)
}

// mlpNorm is the weight of the norm before the MLP.
func (c *Config) mlpNorm() string {
	if c.outerNorms() {
		return "pre_feedforward_layernorm.weight"
	}
	return "post_attention_layernorm.weight"
}

// normOut normalises what a block adds to the hidden states, if the model does that.
func (c *Config) normOut(x *Node, w layerWeights, name string) *Node {
	if !c.outerNorms() {
		return x
	}
	return rmsNorm(x, w[name+".weight"], c.RMSNormEps)
}

// gate is the MLP's product of its two inner layers.
func (c *Config) gate(gate, up *Node) *Node {
	if c.gemma() {
		return geglu(gate, up)
	}
	return swiglu(gate, up)
}
