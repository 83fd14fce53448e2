package model

import (
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
)

// inference is how a decoder's layers are built where no gradient is wanted: of as few operations as the engine lets them
// be, for so many rows. It computes what decoder.go does, up to rounding.
type inference struct {
	*Config
	rows    int
	swapped bool  // products are W x' rather than x W'
	turn    *Node // [D, D], what takes a head (a, b) to (-b, a)
}

func (c *Config) inference(g *Graph, rows int, o GraphOptions) inference {
	return inference{Config: c, rows: rows, swapped: swapsOperands(rows), turn: ConvertDType(Const(g, c.halfTurn()), o.dtype())}
}

// halfTurn is the matrix that takes a head (a, b) to (-b, a), by which it is multiplied from the right: one operation
// where slices of it are four.
func (c *Config) halfTurn() [][]float32 {
	m := make([][]float32, c.HeadDim)
	for i := range m {
		m[i] = make([]float32, c.HeadDim)
	}
	for i := range c.HeadDim / 2 {
		m[i+c.HeadDim/2][i], m[i][i+c.HeadDim/2] = -1, 1
	}
	return m
}

// swapsOperands tells whether products of so many rows with a weight [out, in] are faster as W x'. A matrix library packs
// its right operand anew at every call, which costs more than the product where that is the weight and the rows are few. For
// one to three of them that is less than to bring the results back into rows, and many are worth it.
func swapsOperands(rows int) bool { return rows >= 4 && rows < 96 }

// rowDims are the dimensions of rows. Where their products are x W', a leading axis of one keeps ONNX
// Runtime from joining product and sum to an operation that transposes the weight at every run.
func (n inference) rowDims(last int) []int {
	if n.swapped {
		return []int{n.rows, last}
	}
	return []int{1, n.rows, last}
}

// product is x (rowDims) times the transposed weight [out, in], plus a bias [out], nil for none.
func (n inference) product(x, weight, bias *Node) *Node {
	if n.swapped {
		return Transpose(n.column(x, 1, weight, bias), 0, 1)
	}
	y := dot(x, 2, ConvertDType(weight, x.DType()), 1, 0, x.DType())
	if bias == nil {
		return y
	}
	return Add(y, Reshape(ConvertDType(bias, y.DType()), 1, 1, -1))
}

// column is the weight [out, in] times x, whose given axis has in elements, plus the bias: [out, B].
func (n inference) column(x *Node, axis int, weight, bias *Node) *Node {
	y := dot(ConvertDType(weight, x.DType()), 1, x, axis, 0, x.DType())
	if bias == nil {
		return y
	}
	return Add(y, Reshape(ConvertDType(bias, y.DType()), -1, 1))
}

func (n inference) affine(x *Node, w layerWeights, name string) *Node {
	return n.product(x, w[name+".weight"], w[name+".bias"])
}

// mlp stays in columns between its products where they are swapped.
func (n inference) mlp(x *Node, w layerWeights) *Node {
	x = inferenceNorm(x, w["post_attention_layernorm.weight"], n.RMSNormEps)
	if !n.swapped {
		return n.affine(inferenceSwiglu(n.affine(x, w, "mlp.gate_proj"), n.affine(x, w, "mlp.up_proj")), w, "mlp.down_proj")
	}
	column := func(x *Node, axis int, name string) *Node {
		return n.column(x, axis, w["mlp."+name+".weight"], w["mlp."+name+".bias"])
	}
	inner := inferenceSwiglu(column(x, 1, "gate_proj"), column(x, 1, "up_proj"))
	return Transpose(column(inner, 0, "down_proj"), 0, 1)
}

// projected are queries, keys and values of x (rowDims), normalised where the model does that, as heads lays them out: with
// D last. They are not rotated yet.
func (n inference) projected(x *Node, w layerWeights, heads func(x *Node) *Node) (q, k, v *Node) {
	x = inferenceNorm(x, w["input_layernorm.weight"], n.RMSNormEps)
	q, k, v = n.affine(x, w, "self_attn.q_proj"), n.affine(x, w, "self_attn.k_proj"), n.affine(x, w, "self_attn.v_proj")
	q, k, v = heads(q), heads(k), heads(v)
	if n.QKNorm {
		q = inferenceNorm(q, w["self_attn.q_norm.weight"], n.RMSNormEps)
		k = inferenceNorm(k, w["self_attn.k_norm.weight"], n.RMSNormEps)
	}
	return q, k, v
}

// rotated rotates x [..., D], as rotation.apply does; the rotation has as many axes.
func (n inference) rotated(x *Node, r rotation) *Node {
	turned := wide(dot(x, x.Rank()-1, n.turn, 0, 0, x.DType()))
	cos, sin := ConvertDType(r.cos, turned.DType()), ConvertDType(r.sin, turned.DType())
	return ConvertDType(Add(Mul(wide(x), cos), Mul(turned, sin)), x.DType())
}

// inferenceNorm is rmsNorm for x of any rank, without a gradient: one operation where the engine has it.
func inferenceNorm(x, weight *Node, eps float64) *Node {
	engine, ok := x.Graph().Backend().(interface{ FusedRMSNorm() bool })
	if ok && engine.FusedRMSNorm() && eps > 0 && x.DType() == dtypes.Float32 {
		return BackendFusedLayerNorm(x, []int{x.Rank() - 1}, -eps, weight, nil)
	}
	return Reshape(rmsNorm(Reshape(x, -1, x.Shape().Dim(-1)), weight, eps), x.Shape().Dimensions...)
}

// inferenceSwiglu is swiglu without a gradient.
func inferenceSwiglu(gate, up *Node) *Node {
	a := wide(gate)
	return ConvertDType(Mul(Mul(a, Sigmoid(a)), wide(up)), gate.DType())
}
