package model

import (
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
)

// headElements bounds chunk*V where HeadChunk is 0: logits of 128 MiB in float32.
const headElements = 32 << 20

// Logits builds the logits [S, V] in float32 of what follows every source position.
func (c *Config) Logits(params []*Node, in Inputs, o GraphOptions) *Node {
	x := c.Hidden(params, in, o)
	return logits(x, params[c.HeadTable()])
}

// LogProbs builds log p(target) [S] in float32, the target logit less the log of the sum of all exponentials.
func (c *Config) LogProbs(params []*Node, in Inputs, o GraphOptions) *Node {
	x := c.Hidden(params, in, o)
	table := params[c.HeadTable()]
	rows := in.TargetRows
	if rows == nil {
		rows = Gather(table, Reshape(in.Target, -1, 1))
	}
	return Sub(rowDot(x, rows), logSumExp(x, table, c.headChunk(x.Shape().Dim(0), o)))
}

// headChunk is how many of the slots go at once.
func (c *Config) headChunk(slots int, o GraphOptions) int {
	if o.HeadChunk > 0 {
		return min(o.HeadChunk, slots)
	}
	pieces := (slots*c.VocabSize + headElements - 1) / headElements
	return max(1, (slots+pieces-1)/pieces)
}

// rowDot is the sum over the last axis of x [S, H] times float32 rows [S, H], rounded to x's dtype as the logits see them.
func rowDot(x, rows *Node) *Node {
	return ReduceSum(Mul(wide(x), wide(ConvertDType(rows, x.DType()))), -1)
}

// logits is x [S, H] times the transposed table [V, H], wide.
func logits(x, table *Node) *Node {
	return dot(x, 1, ConvertDType(table, x.DType()), 1, 0, wideType(x.DType()))
}

// logSumExp is the log of the sum of exponentials [S] of x [S, H] times the transposed table [V, H], without holding more
// than [chunk, V] logits at once.
func logSumExp(x, table *Node, chunk int) *Node {
	if chunk >= x.Shape().Dim(0) {
		return wholeLogSumExp(x, table)
	}
	return chunkedLogSumExp(x, table, chunk)
}

// wholeLogSumExp keeps the exponentials for the backward pass, where the logits' adjoint is theirs times v/sum.
func wholeLogSumExp(x, table *Node) *Node {
	z := logits(x, table)
	top := ReduceAndKeep(z, ReduceMax, -1)
	e := Exp(Sub(z, top))
	sum := ReduceAndKeep(e, ReduceSum, -1)
	y := Reshape(Add(Log(sum), top), -1)
	return ownGradient(y, []*Node{x, table}, func(v *Node) []*Node {
		dx, dTable := logitGradients(Mul(e, Div(column(v), sum)), x, table)
		return []*Node{dx, dTable}
	})
}

// chunkedLogSumExp computes every chunk's logits twice, forward and backward, and holds those of one chunk at a time:
// each chunk waits for the one before it.
func chunkedLogSumExp(x, table *Node, chunk int) *Node {
	slots := x.Shape().Dim(0)
	var parts []*Node
	last := (*Node)(nil)
	for at := 0; at < slots; at += chunk {
		piece := SliceAxis(x, 0, AxisRange(at, min(at+chunk, slots)))
		if last != nil {
			piece = after(piece, last)
		}
		last = lseOf(logits(piece, table))
		parts = append(parts, last)
	}
	y := Concatenate(parts, 0)
	return ownGradient(y, []*Node{x, table}, func(v *Node) []*Node { return chunkedGradients(x, table, y, v, chunk) })
}

// lseOf is the log of the sum of exponentials of z [S, V]: [S].
func lseOf(z *Node) *Node {
	top := ReduceAndKeep(z, ReduceMax, -1)
	return Reshape(Add(Log(ReduceAndKeep(Exp(Sub(z, top)), ReduceSum, -1)), top), -1)
}

// chunkedGradients are those of x and table for the log-sum-exp y [S] with adjoint v [S].
func chunkedGradients(x, table, y, v *Node, chunk int) []*Node {
	slots := x.Shape().Dim(0)
	var parts []*Node
	var dTable *Node
	last := v
	for at := 0; at < slots; at += chunk {
		cut := func(a *Node) *Node { return SliceAxis(a, 0, AxisRange(at, min(at+chunk, slots))) }
		piece := after(cut(x), last)
		p := Exp(Sub(logits(piece, table), column(cut(y))))
		dx, dt := logitGradients(Mul(p, column(cut(v))), piece, table)
		parts = append(parts, dx)
		if dTable == nil {
			dTable = dt
		} else {
			dTable = Add(dTable, dt)
		}
		last = dTable
	}
	return []*Node{Concatenate(parts, 0), dTable}
}

// logitGradients are those of x [S, H] and table [V, H] for logits with adjoint d [S, V].
func logitGradients(d, x, table *Node) (dx, dTable *Node) {
	d = ConvertDType(d, x.DType())
	return dot(d, 1, ConvertDType(table, x.DType()), 0, 0, x.DType()), dot(d, 0, x, 0, 0, table.DType())
}

// column is x [S] as [S, 1].
func column(x *Node) *Node { return Reshape(x, -1, 1) }

// withRows is x's shape [n, ...] with n rows.
func withRows(x *Node, n int) shapes.Shape {
	s := x.Shape().Clone()
	s.Dimensions[0] = n
	return s
}
