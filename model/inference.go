package model

import (
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
)

// inference builds a decoder's layers for graphs without gradients, of as few operations as the engine allows. It
// computes the same as decoder.go, up to rounding.
type inference struct {
	*Config
	rows    int
	swapped bool  // products are W x' instead of x W'
	turn    *Node // [D, D], turns a head (a, b, c) into (-b, a, 0), where c does not rotate
}

func (c *Config) newInference(g *Graph, rows int, o GraphOptions) inference {
	return inference{Config: c, rows: rows, swapped: swapsOperands(rows, o.ComputeType()),
		turn: ConvertDType(Const(g, c.halfTurn()), o.ComputeType())}
}

// halfTurn is the matrix that, multiplied from the right, turns a head (a, b) into (-b, a). This is one operation;
// slicing would be four.
func (c *Config) halfTurn() [][]float32 {
	m := make([][]float32, c.HeadDim)
	for i := range m {
		m[i] = make([]float32, c.HeadDim)
	}
	half := c.rotatedDim() / 2
	for i := range half {
		m[i+half][i], m[i][i+half] = -1, 1
	}
	return m
}

// swapsOperands reports whether products of this many rows with a weight [out, in] are faster as W x'. A matrix library
// packs its right operand in every call. For few rows, packing the weight costs more than the product. For one to three
// rows it still costs less than turning the results back into rows. In bfloat16 XLA has fast products for rows alone: on
// AMX, a layer whose activations are columns takes 17 times as long.
func swapsOperands(rows int, dtype dtypes.DType) bool {
	return dtype != dtypes.BFloat16 && rows >= 4 && rows < 96
}

// fewestRows is the least number of rows that AMX multiplies fast: one row of bfloat16 takes four times as long.
const fewestRows = 4

// dotRows is x [..., rows, in] times the transposed weight [out, in], in the type out.
func dotRows(x, weight *Node, out dtypes.DType) *Node {
	axis, rows := x.Rank()-2, x.Shape().Dim(-2)
	padded := x.DType() == dtypes.BFloat16 && rows < fewestRows
	if padded {
		more := make([]PadAxis, x.Rank())
		more[axis].End = fewestRows - rows
		x = Pad(x, ScalarZero(x.Graph(), x.DType()), more...)
	}
	y := dot(x, axis+1, ConvertDType(weight, x.DType()), 1, 0, out)
	if !padded {
		return y
	}
	return SliceAxis(y, axis, AxisRange(0, rows))
}

// rowDims are the dimensions of rows. If products are x W', a leading axis of one keeps ONNX Runtime from fusing
// product and sum into an operation that transposes the weight in every run.
func (n inference) rowDims(last int) []int {
	if n.swapped {
		return []int{n.rows, last}
	}
	return []int{1, n.rows, last}
}

// affine is x (rowDims) times the transposed weight [out, in] of a name, with its bias [out] and its adapter if it has
// them.
func (n inference) affine(x *Node, w layerWeights, name string) *Node {
	if n.swapped {
		return Transpose(n.column(x, 1, w, name), 0, 1)
	}
	product := func(x, weight *Node) *Node { return dotRows(x, weight, x.DType()) }
	y := product(x, n.weight(w, name).as(x))
	if bias := w[name+".bias"]; bias != nil {
		y = Add(y, Reshape(ConvertDType(bias, y.DType()), 1, 1, -1))
	}
	return n.adapt(y, w, name, func(a *Node) *Node { return product(x, a) }, product)
}

// column is affine as a column: the weight [out, in] times x, whose given axis has in elements: [out, B].
func (n inference) column(x *Node, axis int, w layerWeights, name string) *Node {
	product := func(x *Node, axis int, weight *Node) *Node {
		return dot(ConvertDType(weight, x.DType()), 1, x, axis, 0, x.DType())
	}
	y := product(x, axis, n.weight(w, name).as(x))
	if bias := w[name+".bias"]; bias != nil {
		y = Add(y, Reshape(ConvertDType(bias, y.DType()), -1, 1))
	}
	return n.adapt(y, w, name, func(a *Node) *Node { return product(x, axis, a) },
		func(x, b *Node) *Node { return product(x, 0, b) })
}

// attentionOut is what attention adds to the hidden states, for its mixed values (rowDims).
func (n inference) attentionOut(mixed *Node, w layerWeights) *Node {
	return n.normOut(n.affine(mixed, w, "self_attn.o_proj"), w, "post_attention_layernorm")
}

// normOut normalises what a block adds to the hidden states, if the model does that.
func (n inference) normOut(x *Node, w layerWeights, name string) *Node {
	if !n.outerNorms() {
		return x
	}
	return inferenceNorm(x, w[name+".weight"], n.RMSNormEps)
}

// mlp keeps columns between its products if operands are swapped.
func (n inference) mlp(x *Node, w layerWeights) *Node {
	x = inferenceNorm(x, w[n.mlpNorm()], n.RMSNormEps)
	var y *Node
	switch {
	case n.Experts > 0:
		y = n.mixture(x, func(x *Node, name string) *Node { return n.affine(x, w, name) })
	case n.swapped:
		gate, up := n.gateUp(0, func(name string) *Node { return n.column(x, 1, w, name) })
		y = Transpose(n.column(n.inferenceGate(gate, up), 0, w, "mlp.down_proj"), 0, 1)
	default:
		gate, up := n.gateUp(x.Rank()-1, func(name string) *Node { return n.affine(x, w, name) })
		y = n.affine(n.inferenceGate(gate, up), w, "mlp.down_proj")
	}
	return n.normOut(y, w, "post_feedforward_layernorm")
}

// project gives the queries, keys and values of x (rowDims), normalised if the model has QKNorm, but not rotated yet.
// splitHeads gives them their shape, with D last.
func (n inference) project(x *Node, w layerWeights, splitHeads func(x *Node) *Node) (q, k, v *Node) {
	x = inferenceNorm(x, w["input_layernorm.weight"], n.RMSNormEps)
	q, k, v = n.qkv(func(name string) *Node { return n.affine(x, w, name) })
	q, k, v = splitHeads(q), splitHeads(k), splitHeads(v)
	if n.QKNorm {
		q = inferenceNorm(q, w["self_attn.q_norm.weight"], n.RMSNormEps)
		k = inferenceNorm(k, w["self_attn.k_norm.weight"], n.RMSNormEps)
	}
	return q, k, v
}

// rotate rotates x [..., D] as rotation.apply does, which an engine with loops makes one operation of. The rotation has as
// many axes as x.
func (n inference) rotate(x *Node, r rotation) *Node {
	if hasLoops(x.Graph()) {
		return r.apply(x)
	}
	turned := widen(dot(x, x.Rank()-1, n.turn, 0, 0, x.DType()))
	cos, sin := ConvertDType(r.cos, turned.DType()), ConvertDType(r.sin, turned.DType())
	return ConvertDType(Add(Mul(widen(x), cos), Mul(turned, sin)), x.DType())
}

// inferenceNorm is rmsNorm for x of any rank, without a gradient; one operation if the engine has it.
func inferenceNorm(x, weight *Node, eps float64) *Node {
	engine, ok := x.Graph().Backend().(interface{ FusedRMSNorm() bool })
	if ok && engine.FusedRMSNorm() && eps > 0 && x.DType() == dtypes.Float32 {
		return BackendFusedLayerNorm(x, []int{x.Rank() - 1}, -eps, weight, nil)
	}
	return Reshape(rmsNorm(Reshape(x, -1, x.Shape().Dim(-1)), weight, eps), x.Shape().Dimensions...)
}

// inferenceGate is gate without a gradient.
func (n inference) inferenceGate(gate, up *Node) *Node {
	a := widen(gate)
	if n.gemma() {
		return ConvertDType(Mul(Mul(a, geluShare(a)), widen(up)), gate.DType())
	}
	return ConvertDType(Mul(Mul(a, Sigmoid(a)), widen(up)), gate.DType())
}
