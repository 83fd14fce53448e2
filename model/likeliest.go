package model

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
)

// LikeliestBlocks gives, of logits [B, V] whose blocks have maxima [B, SampleBlocks], the n blocks of each row with the
// greatest maxima [B, n, SampleBlock], their numbers int32 [B, n], and the n+1 greatest maxima [B, n+1], falling. So
// all logits above the last of these are in the blocks.
func (c *Config) LikeliestBlocks(logits, maxima *Node, n int) (blocks, numbers, greatest *Node) {
	greatest, numbers = greatestOf(maxima, n+1)
	numbers = SliceAxis(numbers, 1, AxisRange(0, n))
	rows := Iota(numbers.Graph(), shapes.Make(dtypes.Int32, numbers.Shape().Dimensions...), 0)
	return Gather(c.splitBlocks(logits), Stack([]*Node{rows, numbers}, -1)), numbers, greatest
}

// greatestOf gives the k greatest numbers of every row of x [B, n], falling, and their places int32 [B, k]. It is
// graph.TopK with places that are int32 from the start: only then does XLA see that it need not sort all, which would
// take 60 times as long for 49,152 numbers a row.
func greatestOf(x *Node, k int) (values, places *Node) {
	g, dims := x.Graph(), x.Shape().Dimensions
	greater := NewClosure(g, func(g *Graph) []*Node {
		a, b := Parameter(g, "a", shapes.Make(x.DType())), Parameter(g, "b", shapes.Make(x.DType()))
		for _, name := range []string{"place_of_a", "place_of_b"} {
			Parameter(g, name, shapes.Make(dtypes.Int32))
		}
		return []*Node{GreaterThan(a, b)}
	})
	sorted := SortFunc(greater, 1, true, x, Iota(g, shapes.Make(dtypes.Int32, dims...), 1))
	return SliceAxis(sorted[0], 1, AxisRange(0, k)), SliceAxis(sorted[1], 1, AxisRange(0, k))
}

// RowOf gives row number index, int32 [1], of each of several tensors: [1, ...].
func RowOf(index *Node, of ...*Node) (rows []*Node) {
	for _, x := range of {
		rows = append(rows, Gather(x, Reshape(index, 1, 1)))
	}
	return rows
}
