package model

import (
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
)

// dot contracts one axis of a with one of b over shared leading batch axes, summed in float32, given as dtype out.
func dot(a *Node, axisA int, b *Node, axisB, batch int, out dtypes.DType) *Node {
	shared := make([]int, batch)
	for i := range shared {
		shared[i] = i
	}
	product := Dot(a, b)
	if a.DType() != out {
		product = product.WithOutputDType(out)
	}
	return product.General([]int{axisA}, shared, []int{axisB}, shared)
}

// linear is x [N, in] times the transposed weight [out, in]: [N, out] in x's dtype. The weight's gradient has the
// weight's dtype, so that float32 masters get float32 gradients.
func linear(x, weight *Node) *Node {
	w := ConvertDType(weight, x.DType())
	y := dot(x, 1, w, 1, 0, x.DType())
	return ownGradient(y, []*Node{x, weight}, func(v *Node) []*Node {
		return []*Node{dot(v, 1, w, 0, 0, x.DType()), dot(v, 0, x, 0, 0, weight.DType())}
	})
}

// affine is linear plus a bias [out], nil for none.
func affine(x, weight, bias *Node) *Node {
	y := linear(x, weight)
	if bias == nil {
		return y
	}
	return Add(y, Reshape(ConvertDType(bias, y.DType()), 1, -1))
}

// wideType is what norms, softmax and sums over the vocabulary are computed in: float32, or float64 in a float64 graph.
func wideType(d dtypes.DType) dtypes.DType {
	if d == dtypes.Float64 {
		return d
	}
	return dtypes.Float32
}

// wide converts x to its wideType.
func wide(x *Node) *Node { return ConvertDType(x, wideType(x.DType())) }

// rmsNorm is x / sqrt(mean(x²) + eps) * weight over the last axis of x [n, d], computed wide and given back in x's dtype.
// It divides by Sqrt, since Rsqrt has no gradient.
func rmsNorm(x, weight *Node, eps float64) *Node {
	float := wideType(x.DType())
	mean := func(a *Node) *Node { return MulScalar(ReduceAndKeep(a, ReduceSum, -1), 1/float64(x.Shape().Dim(-1))) }
	w := Reshape(ConvertDType(weight, float), 1, -1)
	inverse := Reciprocal(Sqrt(AddScalar(mean(Square(wide(x))), eps)))
	unit := Mul(wide(x), inverse)
	y := ConvertDType(Mul(unit, w), x.DType())
	return ownGradient(y, []*Node{x, weight}, func(v *Node) []*Node {
		v = ConvertDType(v, float)
		scaled := Mul(v, w)
		dx := Mul(Sub(scaled, Mul(unit, mean(Mul(scaled, unit)))), inverse)
		return []*Node{ConvertDType(dx, x.DType()), ConvertDType(ReduceSum(Mul(v, unit), 0), weight.DType())}
	})
}

// swiglu is silu(gate) * up.
func swiglu(gate, up *Node) *Node {
	a, u := wide(gate), wide(up)
	sigmoid := Sigmoid(a)
	silu := Mul(a, sigmoid)
	y := ConvertDType(Mul(silu, u), gate.DType())
	return ownGradient(y, []*Node{gate, up}, func(v *Node) []*Node {
		v = wide(v)
		slope := Add(sigmoid, Mul(silu, OneMinus(sigmoid))) // of silu
		return []*Node{ConvertDType(Mul(Mul(v, u), slope), gate.DType()), ConvertDType(Mul(v, silu), up.DType())}
	})
}

// rowsAt takes rows of x [N, d] by index [S]: [S, d]. With inverse [N], which names the one place among S that a row went
// to (S: none), the gradient is a gather by inverse and not a scatter, which would race on onnx. Rows that several places
// take, as padding places do, pass the gradient of the place that inverse names only. inverse nil leaves the gradient to
// GoMLX, which onnx refuses.
func rowsAt(x, index, inverse *Node) *Node {
	y := Gather(x, Reshape(index, -1, 1))
	if inverse == nil {
		return y
	}
	return ownGradient(y, []*Node{x}, func(v *Node) []*Node {
		none := Zeros(v.Graph(), withRows(v, 1))
		return []*Node{Gather(Concatenate([]*Node{v, none}, 0), Reshape(inverse, -1, 1))}
	})
}
