package backend

import (
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// Sketch counts a graph that is neither compiled nor run: nothing of the size of its values is allocated.
type Sketch struct {
	Inputs  int `json:"input_bytes"`
	Outputs int `json:"output_bytes"`
	// Alive is the most bytes of values that wait for a reader at one moment, outputs included and inputs apart, if each
	// operation writes a value of its own and operations run in the order in which the graph was built.
	Alive int `json:"alive_bytes"`
	// Fused is Alive where an elementwise operation is part of the ones that read it, as XLA compiles it, or writes over
	// a value that nobody else reads.
	Fused int `json:"fused_bytes"`
	// Wide is of a program with values of 16 bits: Fused if they take as much as float32 and nothing is written over.
	Wide int `json:"wide_bytes"`
	// Written is the sum of all values, each in memory of its own.
	Written int     `json:"written_bytes"`
	Nodes   int     `json:"operations"`
	Kernels int     `json:"kernels"` // that XLA makes code for: reductions, and elementwise values that are not fused
	Flops   float64 `json:"flops"`   // of the matrix products: two for each multiplication
}

// Sketch builds the graph of a program as [Engine.Compile] does, and counts it: on a mesh, all devices together.
func (e *Engine) Sketch(name string, build func(g *graph.Graph) []*graph.Node) (s Sketch, err error) {
	defer catchPanic(&err, fmt.Sprintf("sketch %s on %s", name, e.Name))
	g := graph.NewGraph(&builderHolder{Backend: e.Backend, rows: e.rows, gpu: e.gpu}, name)
	defer g.Finalize()
	if e.Mesh != nil {
		if err := g.SetAutoSharding(e.Mesh); err != nil {
			return s, err
		}
	}
	outputs := build(g)
	nodes := reachable(g, outputs)
	s.Nodes = len(nodes)
	for _, n := range nodes {
		switch n.Type() {
		case graph.NodeTypeParameter:
			s.Inputs += bytesOf(n)
		case graph.NodeTypeDotGeneral:
			s.Flops += flopsOf(n)
		}
	}
	for _, n := range outputs {
		s.Outputs += bytesOf(n)
	}
	inside := fuses(nodes, outputs)
	for _, n := range nodes {
		if !inside(n) && n.Type() != graph.NodeTypeConstant && (elementwise(n) || reduces(n)) {
			s.Kernels++
		}
	}
	whole, fused := newLiveness(nodes, outputs, isView, bytesOf), newLiveness(nodes, outputs, inside, bytesOf)
	never, over := func(int) bool { return false }, func(i int) bool { return elementwise(nodes[i]) }
	s.Written, s.Alive, s.Fused = whole.written(), whole.peak(never), fused.peak(over)
	if slices.ContainsFunc(nodes, isShort) {
		s.Wide = newLiveness(nodes, outputs, inside, wideBytesOf).peak(never)
	}
	return s, nil
}

// reachable lists the nodes that outputs depend on, in the order of building.
func reachable(g *graph.Graph, outputs []*graph.Node) (nodes []*graph.Node) {
	seen, open := map[*graph.Node]bool{}, slices.Clone(outputs)
	for len(open) > 0 {
		n := open[len(open)-1]
		open = open[:len(open)-1]
		if !seen[n] {
			seen[n] = true
			open = append(open, n.Inputs()...)
		}
	}
	for _, n := range g.Nodes() {
		if seen[n] {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// bytesOf is the memory of a node's value; of one with several outputs, which others take apart, it is 0.
func bytesOf(n *graph.Node) int {
	if n.NumOutputs() != 1 {
		return 0
	}
	return n.Shape().Size() * n.DType().Size()
}

// wideBytesOf is bytesOf where values of 16 bits take 32.
func wideBytesOf(n *graph.Node) int {
	if isShort(n) {
		return 2 * bytesOf(n)
	}
	return bytesOf(n)
}

// isShort says that a value has 16 bits.
func isShort(n *graph.Node) bool {
	return n.NumOutputs() == 1 && n.DType().IsFloat() && n.DType().Size() == 2
}

// isView says that a node has no memory of its own: it is an input of the program, or its input's memory.
func isView(n *graph.Node) bool {
	switch n.Type() {
	case graph.NodeTypeParameter, graph.NodeTypeReshape, graph.NodeTypeIdentity, graph.NodeTypeOptimizationBarrier,
		graph.NodeTypeSchedulingBarrier:
		return true
	}
	return false
}

// fuses is isView where elementwise values are made by those that read them: by a single reader, or by several if it
// is cheap to make them again.
func fuses(nodes, outputs []*graph.Node) func(n *graph.Node) bool {
	readers, blocked := map[*graph.Node]int{}, map[*graph.Node]bool{}
	for _, n := range nodes {
		for _, in := range n.Inputs() {
			readers[in]++
			blocked[in] = blocked[in] || !elementwise(n) && !reduces(n) && !isView(n)
		}
	}
	for _, n := range outputs {
		blocked[n] = true
	}
	return func(n *graph.Node) bool {
		return isView(n) || elementwise(n) && !blocked[n] && (readers[n] < 2 || isCheap(n) && !joins(n))
	}
}

// joins says that a value is made of several that are as large: made again later, it would keep all of them.
func joins(n *graph.Node) bool {
	large := 0
	for _, in := range n.Inputs() {
		if in.NumOutputs() == 1 && in.Shape().Size() == n.Shape().Size() {
			large++
		}
	}
	return large > 1
}

func reduces(n *graph.Node) bool {
	return n.Type() >= graph.NodeTypeReduceBitwiseAnd && n.Type() <= graph.NodeTypeReduceSum
}

// elementwise says that each element of a value follows from one element of each input.
func elementwise(n *graph.Node) bool {
	switch n.Type() {
	case graph.NodeTypeAbs, graph.NodeTypeAdd, graph.NodeTypeBroadcastInDim, graph.NodeTypeClamp, graph.NodeTypeConstant,
		graph.NodeTypeConvertDType, graph.NodeTypeCos, graph.NodeTypeDiv, graph.NodeTypeEqual, graph.NodeTypeErf,
		graph.NodeTypeExp, graph.NodeTypeGreaterOrEqual, graph.NodeTypeGreaterThan, graph.NodeTypeIota,
		graph.NodeTypeLessOrEqual, graph.NodeTypeLessThan, graph.NodeTypeLog, graph.NodeTypeLog1p,
		graph.NodeTypeLogicalAnd, graph.NodeTypeLogicalNot, graph.NodeTypeLogicalOr, graph.NodeTypeLogistic,
		graph.NodeTypeMax, graph.NodeTypeMin, graph.NodeTypeMul, graph.NodeTypeNeg, graph.NodeTypeNotEqual,
		graph.NodeTypePow, graph.NodeTypeRsqrt, graph.NodeTypeSin, graph.NodeTypeSqrt, graph.NodeTypeSub,
		graph.NodeTypeTanh, graph.NodeTypeWhere:
		return true
	}
	return false
}

// isCheap says that making an elementwise value again costs less than writing it.
func isCheap(n *graph.Node) bool {
	switch n.Type() {
	case graph.NodeTypeCos, graph.NodeTypeDiv, graph.NodeTypeErf, graph.NodeTypeExp, graph.NodeTypeLog,
		graph.NodeTypeLog1p, graph.NodeTypeLogistic, graph.NodeTypePow, graph.NodeTypeRsqrt, graph.NodeTypeSin,
		graph.NodeTypeSqrt, graph.NodeTypeTanh:
		return false
	}
	return true
}

// flopsOf counts a product [batch…, m…] × [batch…, n…] over an axis: two operations for each of batch·m·n·k.
func flopsOf(n *graph.Node) float64 {
	in := n.Inputs()
	left, right, out := in[0].Shape(), in[1].Shape(), n.Shape()
	for k := 1; k <= 2; k++ { // axes that are summed over
		batch := left.Rank() + right.Rank() - out.Rank() - 2*k
		if batch < 0 || batch > out.Rank() {
			continue
		}
		size := math.Sqrt(float64(left.Size()) * float64(right.Size()) /
			(float64(out.Size()) * float64(shapes.Shape{Dimensions: out.Dimensions[:batch]}.Size())))
		if size == math.Trunc(size) {
			return 2 * float64(out.Size()) * size
		}
	}
	return 0
}

// liveness says when each value of a graph is written and read for the last time.
type liveness struct {
	bytes []int // of each node's own memory
	last  []int // the node that reads it last; len(bytes): an output
}

func newLiveness(nodes, outputs []*graph.Node, view func(*graph.Node) bool,
	bytes func(*graph.Node) int) liveness {
	l := liveness{make([]int, len(nodes)), make([]int, len(nodes))}
	at, behind := map[*graph.Node]int{}, make([][]int, len(nodes)) // the values that reading a node reads
	for i, n := range nodes {
		at[n], l.last[i] = i, i
		var read []int
		for _, in := range n.Inputs() {
			read = append(read, behind[at[in]]...)
		}
		slices.Sort(read)
		read = slices.Compact(read)
		for _, k := range read {
			l.last[k] = i
		}
		if behind[i] = read; !view(n) {
			behind[i], l.bytes[i] = []int{i}, bytes(n)
		}
	}
	for _, n := range outputs {
		for _, k := range behind[at[n]] {
			l.last[k] = len(nodes)
		}
	}
	return l
}

func (l liveness) written() (sum int) {
	for _, n := range l.bytes {
		sum += n
	}
	return sum
}

// peak is the most bytes at once. If over says so of a node, it writes over a value that it is the last to read.
func (l liveness) peak(over func(i int) bool) (most int) {
	ends, now := make([]int, len(l.bytes)+1), 0 // bytes that are freed behind a node
	for i, n := range l.bytes {
		now += n
		shared := 0
		if over(i) {
			shared = min(n, ends[i])
		}
		most = max(most, now-shared)
		ends[l.last[i]] += n
		now -= ends[i]
	}
	return most
}
