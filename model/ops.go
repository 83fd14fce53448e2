package model

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"
)

// dot contracts one axis of a with one of b. The leading batch axes are shared; the result has dtype out. In bfloat16
// the engines' libraries add in float32 without being asked. GoMLX would ask, and then XLA on a CPU multiplies in
// float32: four times slower.
func dot(a *Node, axisA int, b *Node, axisB, batch int, out dtypes.DType) *Node {
	shared := make([]int, batch)
	for i := range shared {
		shared[i] = i
	}
	product := Dot(a, b)
	if a.DType() == dtypes.BFloat16 {
		product = product.WithAccumulatorDType(a.DType())
	}
	if a.DType() != out {
		product = product.WithOutputDType(out)
	}
	return product.General([]int{axisA}, shared, []int{axisB}, shared)
}

// linear is x [N, in] times the transposed weight [out, in]: [N, out] in x's dtype.
func linear(x, weight *Node) *Node {
	w := ConvertDType(weight, x.DType())
	y := dot(x, 1, w, 1, 0, x.DType())
	return ownGradient(y, []*Node{x, weight}, func(v *Node) []*Node {
		return []*Node{dot(v, 1, w, 0, 0, x.DType()), weightGradient(v, x, weight)}
	})
}

// weightGradient is vᵀx [out, in], the gradient of a weight, for v [N, out] and x [N, in]. The product is rounded to x's
// dtype, as PyTorch's autocast does, and then has the weight's, so that what is added up over batches is float32.
func weightGradient(v, x, weight *Node) *Node {
	product := func() *Node { return dot(v, 0, x, 0, 0, x.DType()) }
	if x.DType() == dtypes.BFloat16 && wantsRows(x.Graph()) {
		product = func() *Node { return dot(transposed(v), 1, x, 0, 0, x.DType()) }
	}
	return ConvertDType(product(), weight.DType())
}

// wantsRows says that the engine multiplies bfloat16 quickly only if the left side's rows are what it sums over.
func wantsRows(g *Graph) bool {
	b, ok := g.Backend().(interface{ WantsRows() bool })
	return ok && b.WantsRows()
}

// transposed is vᵀ in memory. The engine would make a product with a transposed side again of it, and knows the layout
// of a reshaped tensor only, so that it is flat behind a barrier. A barrier of one tensor would be left out on a CPU.
func transposed(v *Node) *Node {
	t := Transpose(v, 0, 1)
	flat := OptimizationBarriers(Reshape(t, -1), ScalarZero(v.Graph(), v.DType()))[0]
	return Reshape(flat, t.Shape().Dimensions...)
}

// wideType is the type of norms, softmax and sums over the vocabulary: float32, or float64 in a float64 graph.
func wideType(d dtypes.DType) dtypes.DType {
	if d == dtypes.Float64 {
		return d
	}
	return dtypes.Float32
}

// widen converts x to its wideType.
func widen(x *Node) *Node { return ConvertDType(x, wideType(x.DType())) }

// rmsNorm is x / sqrt(mean(x²) + eps) * weight over the last axis of x [n, d], computed in the wideType and returned in
// x's dtype. It divides by Sqrt, since Rsqrt has no gradient.
func rmsNorm(x, weight *Node, eps float64) *Node {
	float := wideType(x.DType())
	mean := func(a *Node) *Node { return MulScalar(ReduceAndKeep(a, ReduceSum, -1), 1/float64(x.Shape().Dim(-1))) }
	w := Reshape(ConvertDType(weight, float), 1, -1)
	inverse := Reciprocal(Sqrt(AddScalar(mean(Square(widen(x))), eps)))
	unit := Mul(widen(x), inverse)
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
	a, u := widen(gate), widen(up)
	sigmoid := Sigmoid(a)
	silu := Mul(a, sigmoid)
	y := ConvertDType(Mul(silu, u), gate.DType())
	return ownGradient(y, []*Node{gate, up}, func(v *Node) []*Node {
		v = widen(v)
		slope := Add(sigmoid, Mul(silu, OneMinus(sigmoid))) // of silu
		return []*Node{ConvertDType(Mul(Mul(v, u), slope), gate.DType()), ConvertDType(Mul(v, silu), up.DType())}
	})
}

// geglu is gelu(gate) * up, with tanh in the place of the normal distribution (gelu_pytorch_tanh).
func geglu(gate, up *Node) *Node {
	a, u := widen(gate), widen(up)
	share := geluShare(a)
	gelu := Mul(a, share)
	y := ConvertDType(Mul(gelu, u), gate.DType())
	return ownGradient(y, []*Node{gate, up}, func(v *Node) []*Node {
		v = widen(v)
		inner := AddScalar(MulScalar(Square(a), 3*geluCubic*2*geluFactor), 2*geluFactor) // slope of share's logit
		slope := Add(share, Mul(Mul(gelu, OneMinus(share)), inner))                      // of gelu
		return []*Node{ConvertDType(Mul(Mul(v, u), slope), gate.DType()), ConvertDType(Mul(v, gelu), up.DType())}
	})
}

const geluFactor, geluCubic = 0.7978845608028654, 0.044715 // √(2/π)

// geluShare is (1 + tanh(√(2/π)(a + 0.044715a³)))/2, which is a sigmoid of twice the argument.
func geluShare(a *Node) *Node {
	return Sigmoid(MulScalar(Mul(a, AddScalar(MulScalar(Square(a), geluCubic), 1)), 2*geluFactor))
}

// rowsAt takes rows of x [N, d] by index [S]: [S, d]. inverse [N] gives for each row its position in the result, or S
// if it is not taken: the gradient is then a gather by inverse, not a scatter, which would race on onnx. If several
// positions take a row, as padding positions do, only the one in inverse has a gradient. If inverse is nil, the
// gradient is GoMLX's, which onnx refuses. With more than one block, indices are those within a block; see Inputs.
func rowsAt(x, index, inverse *Node, blocks int) *Node {
	y := take(x, index, blocks)
	if inverse == nil {
		return y
	}
	return ownGradient(y, []*Node{x}, func(v *Node) []*Node {
		if blocks > 1 {
			v = Reshape(v, blocks, -1, v.Shape().Dim(1))
			none := Zeros(v.Graph(), shapes.Make(v.DType(), blocks, 1, v.Shape().Dim(2)))
			return []*Node{take(Concatenate([]*Node{v, none}, 1), inverse, blocks)}
		}
		none := Zeros(v.Graph(), withRows(v, 1))
		return []*Node{take(Concatenate([]*Node{v, none}, 0), inverse, 1)}
	})
}

// take gathers rows of x [N, d] or [blocks, N/blocks, d] by index [S]: [S, d]. The numbers of the blocks are part of
// the index, from which XLA sees that a shard takes its own rows alone.
func take(x, index *Node, blocks int) *Node {
	if blocks <= 1 {
		return Gather(x, Reshape(index, -1, 1))
	}
	d := x.Shape().Dim(-1)
	index = Reshape(index, blocks, -1, 1)
	block := Iota(x.Graph(), index.Shape(), 0)
	return Reshape(Gather(Reshape(x, blocks, -1, d), Concatenate([]*Node{block, index}, 2)), -1, d)
}

// ownGradient is y, computed from xs, with gradients written by hand: vjp takes the adjoint of y and gives the adjoints
// of xs, in order, nil for none.
//
// It gives y an alternative that only the gradient goes through: identities on xs whose gradients are vjp's results. No
// output needs the sum that connects them, so that every engine drops it.
//
// Two rules, since breaking either silently gives wrong gradients: y must not come from a StopGradient of xs, and vjp
// must not use operations without a second gradient.
func ownGradient(y *Node, xs []*Node, vjp func(v *Node) []*Node) *Node {
	var adjoints []*Node
	alternative := func() *Node {
		var sum *Node
		for i, x := range xs {
			x = IdentityWithCustomGradient(x, func(_, _ *Node) *Node { return adjoints[i] })
			sum = addTo(sum, ConvertDType(ReduceAllSum(x), y.DType()))
		}
		return IdentityWithCustomGradient(BroadcastToDims(sum, y.Shape().Dimensions...), func(_, v *Node) *Node {
			adjoints = vjp(v)
			return v
		})
	}
	out, taken := InternalFusedOpCaller(func() *Node { return Identity(y) }, alternative, true)
	if !taken {
		exceptions.Panicf("%s is switched off in the environment, but the model's gradients need it: unset it",
			FusionEnv)
	}
	return out
}

// recompute is f(x, weights), but keeps only x for the backward pass and computes f again there.
//
// The second computation waits for the adjoint; otherwise an engine sees that both are equal and keeps the first. The
// adjoint of x waits for the weights' gradients; otherwise an engine may compute all weights' gradients at the end and
// keep the activations of every layer until then.
func recompute(x *Node, weights []*Node, f func(x *Node, weights []*Node) *Node) *Node {
	inputs := append([]*Node{x}, weights...)
	return ownGradient(f(x, weights), inputs, func(v *Node) []*Node {
		again := Identity(StopGradient(computeAfter(x, v))) // the gradient below stops here
		y := IdentityWithCustomGradient(f(again, weights), func(_, _ *Node) *Node { return v })
		grads := Gradient(ConvertDType(ReduceAllSum(y), v.DType()), append([]*Node{again}, weights...)...)
		grads[0] = computeAfter(grads[0], grads[1:]...)
		return grads
	})
}

// computeAfter is x, computed after the dependencies: on a GPU behind a barrier, elsewhere plus 0 times an element of each,
// clipped to [-1, 1], so that an infinite element does not give NaN.
//
// XLA on a CPU leaves barriers out, and would copy all that x is made of into every operation that reads x plus a number:
// with recomputed layers, the adjoints of all later layers into each layer's. So there the number is added to x's first
// element alone.
func computeAfter(x *Node, dependencies ...*Node) *Node {
	if b, ok := x.Graph().Backend().(interface{ OnGPU() bool }); ok && b.OnGPU() {
		return OptimizationBarriers(append([]*Node{x}, dependencies...)...)[0]
	}
	var sum *Node
	for _, d := range dependencies {
		sum = addTo(sum, ConvertDType(ClipScalar(Reshape(firstElement(d)), -1, 1), x.DType()))
	}
	if !hasLoops(x.Graph()) {
		return SchedulingBarrier(x, sum)
	}
	origin := make([]*Node, x.Rank())
	for axis := range origin {
		origin[axis] = Const(x.Graph(), int32(0))
	}
	return DynamicUpdateSlice(x, SchedulingBarrier(firstElement(x), sum), origin)
}

// firstElement is x's first element, in x's rank.
func firstElement(x *Node) *Node {
	if x.Rank() == 0 {
		return x
	}
	first := make([]SliceAxisSpec, x.Rank())
	for axis := range first {
		first[axis] = AxisElem(0)
	}
	return Slice(x, first...)
}
