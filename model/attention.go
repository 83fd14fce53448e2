package model

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
)

// maskedScore is added to the score of a key that a query must not see. It is finite, so that no softmax computes inf -
// inf.
const maskedScore = -1e30

// visibility builds the additive mask [rows, 1, T, T] of packed rows from groups, segments and positions [rows, T].
// Query i sees key j <= i of its own group (not -1) in segment 0 (the prompt) or its own segment, less than window
// positions back (0: no limit). Every position sees itself, so that padding stays finite.
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
	mask := MulScalar(ConvertDType(LogicalNot(sees), dtypes.Float32), maskedScore)
	return StopGradient(Reshape(mask, rows, 1, tokens, tokens))
}

// splitHeads turns x [N, h*D] into [rows, h, T, D].
func splitHeads(x *Node, rows, tokens, d int) *Node {
	return TransposeAllAxes(Reshape(x, rows, tokens, -1, d), 0, 2, 1, 3)
}

// attend is grouped-query attention over packed rows, [N, h*D]: q [rows, h, T, D], already scaled, k and v [rows, kv,
// T, D].
func attend(q, k, v *Node, s attentionMask) *Node {
	dims := q.Shape().Dimensions
	rows, h, tokens, d := dims[0], dims[1], dims[2], dims[3]
	var mixed *Node
	again := rows*h*tokens*tokens >= largeValue
	switch {
	case s.blocks != nil:
		mixed = s.blocks.mix(q, k, v)
	case hasLoops(q.Graph()):
		mixed = mixFused(q, k, v, s.mask, queryEnds(tokens), s.cap, again)
	default:
		mixed = mix(q, k, v, s.mask, queryEnds(tokens), s.cap, again)
	}
	return Reshape(TransposeAllAxes(mixed, 0, 2, 1, 3), rows*tokens, h*d)
}

// queryEnds are the ends of the blocks into which a row's queries are cut, multiples of 32 but for the last. No query
// sees a later key, so that a block needs the keys up to its own end only: four blocks save three eighths of the work.
// For short rows the additional operations cost more.
func queryEnds(tokens int) (ends []int) {
	n := max(1, min(tokens/128, 4))
	for i := range n - 1 {
		ends = append(ends, (i+1)*tokens/n/32*32)
	}
	return append(ends, tokens)
}

// mix is softmax(cap(q k') + mask) v for blocks of queries with these ends: [rows, h, T, D]. With again, the backward pass
// computes the weights of one block after the other again, else all are kept until then.
func mix(q, k, v, mask *Node, ends []int, cap softCap, again bool) *Node {
	n, starts := len(ends), append([]int{0}, ends...)
	outs := make([]*Node, n)
	cut := func(i int, q, k, v *Node) queryBlock {
		from, to := starts[i], ends[i]
		seen := func(x *Node) *Node { return sliceAxis(x, 2, 0, to) }
		return queryBlock{q: sliceAxis(q, 2, from, to), k: seen(k), v: seen(v),
			mask: sliceAxis(sliceAxis(mask, 2, from, to), 3, 0, to)}
	}
	blocks := make([]queryBlock, n)
	for i := range ends {
		blocks[i] = cut(i, q, k, v)
		blocks[i].weigh(cap)
		outs[i] = blocks[i].mix()
	}
	return ownGradient(concat(outs, 2), []*Node{q, k, v}, func(g *Node) []*Node {
		late := func(x *Node) *Node { return x }
		if again { // the slices of q, k and v, too
			late = func(x *Node) *Node { return computeAfter(x, g) }
		}
		q, k, v := late(q), late(k), late(v)
		dq := make([]*Node, n)
		var dk, dv *Node
		for i, b := range blocks {
			if again {
				if b = cut(i, q, k, v); i > 0 {
					b.q = computeAfter(b.q, dq[i-1], dk, dv)
				}
				b.weigh(cap)
			}
			b.out = outs[i]
			q, k, v := b.gradients(sliceAxis(g, 2, starts[i], ends[i]))
			dq[i], dk, dv = q, addFirst(dk, k, ends[n-1]), addFirst(dv, v, ends[n-1])
		}
		return []*Node{concat(dq, 2), dk, dv}
	})
}

// mixFused is mix for XLA, which fuses all that follows a product with the reading of its result: exponentials are divided
// by their sum behind the product with the values, and the backward pass makes the weights of scores and log-sum-exp.
func mixFused(q, k, v, mask *Node, ends []int, cap softCap, again bool) *Node {
	n, starts, kv := len(ends), append([]int{0}, ends...), k.Shape().Dim(1)
	outs, lse := make([]*Node, n), make([]*Node, n)
	cut := func(i int, q, k, v *Node) (_, _, _, m *Node) {
		seen := func(x *Node) *Node { return sliceAxis(x, 2, 0, ends[i]) }
		m = sliceAxis(sliceAxis(mask, 2, starts[i], ends[i]), 3, 0, ends[i])
		return joinHeads(sliceAxis(q, 2, starts[i], ends[i]), kv), seen(k), seen(v), m
	}
	apart := func(x *Node, i int) *Node {
		return ConvertDType(Reshape(x, q.Shape().Dim(0), -1, ends[i]-starts[i], q.Shape().Dim(3)), q.DType())
	}
	for i := range ends {
		q, k, v, m := cut(i, q, k, v)
		o := online{cap: cap}.add(q, TransposeAllAxes(k, 0, 1, 3, 2), v, m)
		outs[i], lse[i] = apart(o.out(), i), o.logSumExp()
	}
	return ownGradient(concat(outs, 2), []*Node{q, k, v}, func(g *Node) []*Node {
		late := func(x *Node, last ...*Node) *Node {
			if again {
				x = computeAfter(x, last...)
			}
			return x
		}
		q, k, v := late(q, g), late(k, g), late(v, g) // the slices, too
		dq := make([]*Node, n)
		var dk, dv *Node
		for i := range ends {
			q, k, v, m := cut(i, q, k, v)
			if i > 0 {
				q = late(q, dq[i-1], dk, dv)
			}
			g := joinHeads(sliceAxis(g, 2, starts[i], ends[i]), kv)
			mean := ReduceAndKeep(Mul(widen(g), widen(joinHeads(outs[i], kv))), ReduceSum, -1)
			a, b, c := cap.blockGradients(q, k, v, m, g, lse[i], mean)
			dq[i], dk, dv = apart(a, i), addFirst(dk, b, ends[n-1]), addFirst(dv, c, ends[n-1])
		}
		return []*Node{concat(dq, 2), ConvertDType(dk, k.DType()), ConvertDType(dv, v.DType())}
	})
}

// sliceAxis gives the elements from..to-1 of an axis, x itself if these are all.
func sliceAxis(x *Node, axis, from, to int) *Node {
	if from == 0 && to == x.Shape().Dim(axis) {
		return x
	}
	return SliceAxis(x, axis, AxisRange(from, to))
}

func concat(xs []*Node, axis int) *Node {
	if len(xs) == 1 {
		return xs[0]
	}
	return Concatenate(xs, axis)
}

// addFirst adds x [rows, kv, t, D] to the first t tokens of sum, which may be nil.
func addFirst(sum, x *Node, tokens int) *Node {
	if missing := tokens - x.Shape().Dim(2); missing > 0 {
		x = Pad(x, ScalarZero(x.Graph(), x.DType()), PadAxis{}, PadAxis{}, PadAxis{End: missing}, PadAxis{})
	}
	return addTo(sum, x)
}

// addTo adds x to sum, which may be nil.
func addTo(sum, x *Node) *Node {
	if sum == nil {
		return x
	}
	return Add(sum, x)
}

// queryBlock is the attention of some queries of every row, q [rows, h, M, D], to keys k and values v [rows, kv, T, D].
type queryBlock struct {
	q, k, v *Node
	mask    *Node // [rows, 1, M, T]
	p       *Node // weights [rows, h, M, T], in the wideType
	slope   *Node // of the cap, like p; nil: no cap
	out     *Node // [rows, h, M, D]
}

// weigh computes the weights.
func (b *queryBlock) weigh(cap softCap) {
	dims := b.q.Shape().Dimensions
	scores := dot(b.group(b.q), 3, b.k, 3, 2, wideType(b.q.DType()))
	scores, b.slope = cap.apply(Reshape(scores, dims[0], dims[1], dims[2], b.k.Shape().Dim(2)))
	b.p = Softmax(Add(scores, ConvertDType(b.mask, scores.DType())), -1)
}

// mix is the weighted mean of the values.
func (b *queryBlock) mix() *Node {
	return Reshape(dot(b.weights(), 3, b.v, 2, 2, b.v.DType()), b.q.Shape().Dimensions...)
}

// group joins the queries that share a head of keys, [rows, kv, h/kv*M, last], so that keys and values are never
// repeated.
func (b queryBlock) group(x *Node) *Node {
	dims := x.Shape().Dimensions
	return Reshape(x, dims[0], b.k.Shape().Dim(1), -1, dims[3])
}

// weights are p in the shape and type of the product with v.
func (b queryBlock) weights() *Node { return ConvertDType(b.group(b.p), b.v.DType()) }

// gradients gives the adjoints of q, k and v for the adjoint g of out. The softmax subtracts the mean of its own
// adjoint, weighted by p. That mean equals the product of out and g, which has fewer elements (Dao et al. 2022,
// appendix B.2).
func (b queryBlock) gradients(g *Node) (dq, dk, dv *Node) {
	mean := ReduceAndKeep(Mul(widen(g), widen(b.out)), ReduceSum, -1)
	flat := b.group(g)
	dp := Reshape(dot(flat, 3, b.v, 3, 2, b.p.DType()), b.p.Shape().Dimensions...)
	ds := ConvertDType(b.group(multiply(Mul(b.p, Sub(dp, mean)), b.slope)), b.q.DType())
	dq = Reshape(dot(ds, 3, b.k, 2, 2, b.q.DType()), b.q.Shape().Dimensions...)
	return dq, dot(ds, 2, b.group(b.q), 2, 2, b.k.DType()), dot(b.weights(), 2, flat, 2, 2, b.v.DType())
}

// attentionScale is the factor of the scores, 1/sqrt(D) or 1/sqrt(QueryScale).
func (c *Config) attentionScale() float64 {
	if c.QueryScale > 0 {
		return 1 / math.Sqrt(c.QueryScale)
	}
	return 1 / math.Sqrt(float64(c.HeadDim))
}
