package model

import (
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"
)

// ownGradient is y, computed from xs, with gradients written by hand in place of those of the operations that made it:
// vjp takes the adjoint of y and gives those of xs, in order, nil for none.
//
// It hangs an alternative on y that the gradient goes through: identities on xs that answer with vjp's results. What
// joins them is of no use to any output, and every engine drops it.
//
// Two rules, since breaking either gives wrong gradients silently: y must not come from a StopGradient of xs, and vjp
// must not use operations that have no place in a second gradient.
func ownGradient(y *Node, xs []*Node, vjp func(v *Node) []*Node) *Node {
	var adjoints []*Node
	alternative := func() *Node {
		var joined *Node
		for i, x := range xs {
			x = IdentityWithCustomGradient(x, func(_, _ *Node) *Node { return adjoints[i] })
			part := ConvertDType(ReduceAllSum(x), y.DType())
			if joined == nil {
				joined = part
			} else {
				joined = Add(joined, part)
			}
		}
		return IdentityWithCustomGradient(BroadcastToDims(joined, y.Shape().Dimensions...), func(_, v *Node) *Node {
			adjoints = vjp(v)
			return v
		})
	}
	out, taken := InternalFusedOpCaller(func() *Node { return Identity(y) }, alternative, true)
	if !taken {
		exceptions.Panicf("the environment turns %s off, which the model's gradients need: unset it", FusionEnv)
	}
	return out
}

// recomputed is f(x, weights) which keeps only x for the backward pass, and computes f anew there.
//
// The second computation waits for the adjoint: without that an engine finds that both are equal and keeps the first.
// What goes back to the layer before waits for the weights' gradients: without that an engine may put all of those off to
// the end, and hold what they need of every layer.
func recomputed(x *Node, weights []*Node, f func(x *Node, weights []*Node) *Node) *Node {
	inputs := append([]*Node{x}, weights...)
	return ownGradient(f(x, weights), inputs, func(v *Node) []*Node {
		again := Identity(StopGradient(after(x, v))) // the gradient below ends here
		y := IdentityWithCustomGradient(f(again, weights), func(_, _ *Node) *Node { return v })
		grads := Gradient(ConvertDType(ReduceAllSum(y), v.DType()), append([]*Node{again}, weights...)...)
		grads[0] = after(grads[0], grads[1:]...)
		return grads
	})
}

// after is x, computed once the dependencies are. Each enters as 0 times an element held to [-1, 1], so that an infinite
// one does no harm.
func after(x *Node, dependencies ...*Node) *Node {
	var joined *Node
	for _, d := range dependencies {
		for axis := range d.Rank() {
			d = SliceAxis(d, axis, AxisRange(0, 1))
		}
		d = ConvertDType(ClipScalar(Reshape(d), -1, 1), x.DType())
		if joined == nil {
			joined = d
		} else {
			joined = Add(joined, d)
		}
	}
	return SchedulingBarrier(x, joined)
}
