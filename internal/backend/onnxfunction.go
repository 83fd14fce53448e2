//go:build cgo && linux

package backend

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/compute"
	onnxbackend "github.com/gomlx/compute-onnx"
	"github.com/gomlx/compute/dtypes"
)

// onnxFunction decorates the function in which compute-onnx builds an ONNX graph.
//
// Its graphs are faster:
//   - a DotGeneral of any rank is a MatMul of two or three axes (onnxdot.go); compute-onnx uses Einsum, which has half
//     the speed for attention's products;
//   - identity transpositions and reshapes to the same shape are dropped, since each copies; a chain of reshapes
//     becomes one;
//   - the transposition of a product, the last operation of its gradient, swaps the operands instead;
//   - a layer norm of negative epsilon is ONNX Runtime's RMSNorm, in one operation;
//   - rows of a table are taken by Gather; compute-onnx uses GatherND of a transposed copy of the table.
//
// They are safer: sums by scatters that could race are refused, and a scheduling barrier does not turn an infinity into
// NaN.
type onnxFunction struct {
	*onnxbackend.Function
	products map[*onnxbackend.Node]product           // node → the product that it computes
	reshaped map[*onnxbackend.Node]*onnxbackend.Node // node → the node that it reshapes
}

// staticNode gives the node and dimensions of a value if all its dimensions are fixed.
func staticNode(v compute.Value) (*onnxbackend.Node, []int, bool) {
	n, ok := v.(*onnxbackend.Node)
	if !ok || n.Shape().IsDynamic() {
		return nil, nil, false
	}
	return n, n.Shape().Dimensions, true
}

// Reshape drops reshapes to the same dimensions and joins a reshape with the one before it.
func (f *onnxFunction) Reshape(x compute.Value, dims ...int) (compute.Value, error) {
	n, have, ok := staticNode(x)
	if !ok {
		return f.Function.Reshape(x, dims...)
	}
	if slices.Equal(have, dims) {
		return x, nil
	}
	if source, ok := f.reshaped[n]; ok {
		return f.Reshape(source, dims...)
	}
	y, err := f.Function.Reshape(x, dims...)
	if err == nil {
		f.reshaped[y.(*onnxbackend.Node)] = n
	}
	return y, err
}

// Transpose emits nothing for the identity and a reshape if only axes of one element move. The transposition of a
// product that was made just before swaps the product's operands.
func (f *onnxFunction) Transpose(x compute.Value, perm ...int) (compute.Value, error) {
	if n, dims, ok := staticNode(x); ok && !keepsOrder(dims, perm) {
		if p, ok := f.products[n]; ok && p.isSwap(perm) && f.isLast(n) && !p.hasFewRows() {
			return f.dot(p.swap())
		}
	}
	return f.emitTranspose(x, perm...)
}

// emitTranspose is Transpose without swapping operands.
func (f *onnxFunction) emitTranspose(x compute.Value, perm ...int) (compute.Value, error) {
	if _, dims, ok := staticNode(x); ok && len(perm) == len(dims) && keepsOrder(dims, perm) {
		return f.Reshape(x, permute(dims, perm)...)
	}
	return f.Function.Transpose(x, perm...)
}

// isLast reports whether a node is the newest. Nothing else uses it then, so that it is dropped if nothing ever does.
func (f *onnxFunction) isLast(n *onnxbackend.Node) bool {
	nodes := f.Nodes()
	return len(nodes) > 0 && nodes[len(nodes)-1] == n
}

// keepsOrder reports whether perm keeps the order of the axes of more than one element.
func keepsOrder(dims, perm []int) bool {
	last := -1
	for _, axis := range perm {
		if axis < 0 || axis >= len(dims) {
			return false
		}
		if dims[axis] == 1 {
			continue
		}
		if axis < last {
			return false
		}
		last = axis
	}
	return true
}

func permute(dims, perm []int) []int {
	out := make([]int, len(perm))
	for i, axis := range perm {
		out[i] = dims[axis]
	}
	return out
}

// normEpsilon is the default epsilon of ONNX Runtime's RMSNorm, the only one possible: custom nodes have no attributes.
const normEpsilon = 1e-5

// FusedLayerNorm with a negative epsilon and no beta is x / sqrt(mean(x²) - epsilon) * gamma over the last axis (see
// [onnxEngine.FusedRMSNorm]). Scaling x has the effect of an epsilon different from normEpsilon.
func (f *onnxFunction) FusedLayerNorm(x compute.Value, axes []int, epsilon float64, gamma,
	beta compute.Value) (compute.Value, error) {
	n, dims, ok := staticNode(x)
	if epsilon >= 0 || !ok {
		return f.Function.FusedLayerNorm(x, axes, epsilon, gamma, beta)
	}
	weight, _, ok := staticNode(gamma)
	if !ok || beta != nil || n.Shape().DType != dtypes.Float32 || len(axes) != 1 || axes[0] != len(dims)-1 {
		return nil, fmt.Errorf("RMSNorm of this form: %w", compute.ErrNotImplemented)
	}
	shape := n.Shape()
	if epsilon != -normEpsilon {
		scale, err := f.Constant([]float32{float32(math.Sqrt(normEpsilon / -epsilon))})
		if err != nil {
			return nil, err
		}
		n = f.AddCustomNode("Mul", []*onnxbackend.Node{n, scale.(*onnxbackend.Node)}, shape)
	}
	return f.AddCustomNode("SimplifiedLayerNormalization", []*onnxbackend.Node{n, weight}, shape), nil
}

// Gather takes whole rows of a table by Gather, with indices clamped to the table as on the other engines. compute-onnx
// handles other gathers.
func (f *onnxFunction) Gather(table, indices compute.Value, vectorAxis int, offsetAxes, collapsed, indexMap,
	sliceSizes []int, sorted bool) (compute.Value, error) {
	_, tableDims, ok1 := staticNode(table)
	_, indexDims, ok2 := staticNode(indices)
	if !ok1 || !ok2 || !isRowGather(tableDims, indexDims, vectorAxis, offsetAxes, collapsed, indexMap, sliceSizes) {
		return f.Function.Gather(table, indices, vectorAxis, offsetAxes, collapsed, indexMap, sliceSizes, sorted)
	}
	return f.gatherRows(table.(*onnxbackend.Node), indices, indexDims[:len(indexDims)-1])
}

// isRowGather reports whether a gather takes whole rows: indices [..., 1] into the first axis of a table [rows, ...].
func isRowGather(table, indices []int, vectorAxis int, offsetAxes, collapsed, indexMap, sliceSizes []int) bool {
	lead := len(indices) - 1
	if len(table) == 0 || table[0] == 0 || lead < 0 || vectorAxis != lead || indices[lead] != 1 {
		return false
	}
	wantSizes := append([]int{1}, table[1:]...)
	return slices.Equal(indexMap, []int{0}) && slices.Equal(collapsed, []int{0}) &&
		slices.Equal(sliceSizes, wantSizes) && slices.Equal(offsetAxes, axisRange(lead, lead+len(table)-1))
}

func axisRange(from, to int) []int {
	var out []int
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

// gatherRows takes rows of table [rows, ...] by indices, reshaped to dims. The result is [dims..., ...].
func (f *onnxFunction) gatherRows(table *onnxbackend.Node, indices compute.Value, dims []int) (compute.Value, error) {
	index, err := f.ConvertDType(indices, dtypes.Int64)
	if err != nil {
		return nil, err
	}
	if index, err = f.Reshape(index, dims...); err != nil {
		return nil, err
	}
	if index, err = f.clampTo(index, table.Shape().Dimensions[0]-1); err != nil {
		return nil, err
	}
	shape := table.Shape().Clone()
	shape.Dimensions = append(slices.Clone(dims), shape.Dimensions[1:]...)
	return f.AddCustomNode("Gather", []*onnxbackend.Node{table, index.(*onnxbackend.Node)}, shape), nil
}

// clampTo limits int64 values to 0..top.
func (f *onnxFunction) clampTo(x compute.Value, top int) (compute.Value, error) {
	zero, err := f.Constant([]int64{0})
	if err != nil {
		return nil, err
	}
	most, err := f.Constant([]int64{int64(top)})
	if err != nil {
		return nil, err
	}
	if x, err = f.Max(x, zero); err != nil {
		return nil, err
	}
	return f.Min(x, most)
}

// ScatterSum is refused unless the indices are declared unique: ONNX Runtime's threads write the updates of ScatterND
// without a lock (its issues 18048 and 23396). If an index repeats, additions are lost, different ones in each run. The
// gradient of a Gather is a ScatterSum that does not declare it.
func (f *onnxFunction) ScatterSum(operand, indices, updates compute.Value, vectorAxis int, windowAxes, insertedAxes,
	operandAxes []int, sorted, unique bool) (compute.Value, error) {
	if !unique {
		return nil, errors.New("ScatterSum with indices that may repeat would race on onnx and lose additions: declare " +
			"the indices unique, or, for the gradient of a look-up, take the gradient of the looked-up rows and add it to " +
			"the table's on the host")
	}
	return f.Function.ScatterSum(operand, indices, updates, vectorAxis, windowAxes, insertedAxes, operandAxes, sorted,
		unique)
}

// SchedulingBarrier gives the operand, computed after the dependencies. compute-onnx adds 0 times an element of each
// dependency, which is NaN for an infinite element. Here the addend is x < x for that element x, which is always 0.
func (f *onnxFunction) SchedulingBarrier(operand compute.Value, dependencies ...compute.Value) (compute.Value, error) {
	n, _, ok := staticNode(operand)
	if !ok || n.Shape().DType == dtypes.Bool {
		return f.Function.SchedulingBarrier(operand, dependencies...)
	}
	for _, d := range dependencies {
		zero, err := f.zeroAfter(d, n.Shape().DType)
		if err != nil {
			return nil, err
		}
		if operand, err = f.Add(operand, zero); err != nil {
			return nil, err
		}
	}
	return operand, nil
}

// zeroAfter is a scalar zero that is computed after dependency.
func (f *onnxFunction) zeroAfter(dependency compute.Value, dtype dtypes.DType) (compute.Value, error) {
	x, err := f.firstElement(dependency)
	if err != nil {
		return nil, err
	}
	never, err := f.LessThan(x, x)
	if err != nil {
		return nil, err
	}
	return f.ConvertDType(never, dtype)
}

func (f *onnxFunction) firstElement(x compute.Value) (compute.Value, error) {
	_, dims, ok := staticNode(x)
	if !ok {
		return nil, fmt.Errorf("scheduling barrier after a value of unknown shape")
	}
	if len(dims) == 0 {
		return x, nil
	}
	ones := slices.Repeat([]int{1}, len(dims))
	first, err := f.Slice(x, make([]int, len(dims)), ones, ones)
	if err != nil {
		return nil, err
	}
	return f.Reshape(first)
}
