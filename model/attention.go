package model

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
)

// hidden is added to the score of a key that a query must not see. It is finite, so that no softmax meets inf - inf.
const hidden = -1e30

// visibility builds the additive mask [rows, 1, T, T] of packed rows from groups, segments and positions [rows, T]: query
// i sees key j <= i of its own group (not -1) in segment 0 (the prompt) or its own, less than window positions back
// (0: no limit). Every position sees itself, so that padding stays finite.
func visibility(in Inputs, window int) *Node {
	rows, tokens := in.Positions.Shape().Dim(0), in.Positions.Shape().Dim(1)
	query := func(x *Node) *Node { return Reshape(x, rows, tokens, 1) }
	key := func(x *Node) *Node { return Reshape(x, rows, 1, tokens) }
	order := func(axis int) *Node {
		return Iota(in.Positions.Graph(), shapes.Make(dtypes.Int32, 1, tokens, tokens), axis)
	}

	zero := Const(in.Groups.Graph(), int32(0))
	sees := LogicalAnd(Equal(query(in.Groups), key(in.Groups)), GreaterOrEqual(key(in.Groups), zero))
	segment := key(in.Segments)
	sees = LogicalAnd(sees, LogicalOr(Equal(segment, zero), Equal(query(in.Segments), segment)))
	if window > 0 {
		back := Sub(query(in.Positions), key(in.Positions))
		sees = LogicalAnd(sees, LessThan(back, Const(back.Graph(), int32(window))))
	}
	sees = LogicalOr(LogicalAnd(sees, LessThan(order(2), order(1))), Equal(order(2), order(1)))
	mask := MulScalar(ConvertDType(LogicalNot(sees), dtypes.Float32), hidden)
	return StopGradient(Reshape(mask, rows, 1, tokens, tokens))
}

// heads lays x [N, h*D] out as [rows, h, T, D].
func heads(x *Node, rows, tokens, d int) *Node {
	return TransposeAllAxes(Reshape(x, rows, tokens, -1, d), 0, 2, 1, 3)
}

// attend is grouped-query attention over packed rows: q [rows, h, T, D], already scaled, k and v [rows, kv, T, D], mask
// [rows, 1, T, T]; given as [N, h*D]. The queries of a group stand one after the other in the rows of one product, so that
// keys and values are never repeated.
func attend(q, k, v, mask *Node) *Node {
	dims := q.Shape().Dimensions
	rows, h, tokens, d := dims[0], dims[1], dims[2], dims[3]
	kv := k.Shape().Dim(1)
	scores := scoresOf(Reshape(q, rows, kv, h/kv*tokens, d), k)
	p := maskedSoftmax(Reshape(scores, rows, h, tokens, tokens), mask)
	p = ConvertDType(Reshape(p, rows, kv, h/kv*tokens, tokens), v.DType())
	mixed := Reshape(mixOf(p, v), rows, h, tokens, d)
	return Reshape(TransposeAllAxes(mixed, 0, 2, 1, 3), rows*tokens, h*d)
}

// scoresOf is q [rows, kv, M, D] times k [rows, kv, T, D] transposed: [rows, kv, M, T], wide.
func scoresOf(q, k *Node) *Node {
	return ownGradient(dot(q, 3, k, 3, 2, wideType(q.DType())), []*Node{q, k}, func(v *Node) []*Node {
		v = ConvertDType(v, q.DType())
		return []*Node{dot(v, 3, k, 2, 2, q.DType()), dot(v, 2, q, 2, 2, k.DType())}
	})
}

// mixOf is p [rows, kv, M, T] times v [rows, kv, T, D]: [rows, kv, M, D].
func mixOf(p, v *Node) *Node {
	return ownGradient(dot(p, 3, v, 2, 2, v.DType()), []*Node{p, v}, func(g *Node) []*Node {
		return []*Node{dot(g, 3, v, 3, 2, p.DType()), dot(p, 2, g, 2, 2, v.DType())}
	})
}

// attentionScale is the factor of the scores, 1/sqrt(D).
func (c *Config) attentionScale() float64 { return 1 / math.Sqrt(float64(c.HeadDim)) }
