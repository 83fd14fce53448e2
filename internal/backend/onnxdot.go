//go:build cgo && linux

package backend

import (
	"slices"

	"github.com/gomlx/compute"
	onnxbackend "github.com/gomlx/compute-onnx"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
)

// factor is one operand of a general product. Each of its axes is a batch axis, contracted, or free.
type factor struct {
	node              *onnxbackend.Node
	contracted, batch []int
}

func (x factor) dims() []int { return x.node.Shape().Dimensions }

func (x factor) free() []int {
	var out []int
	for axis := range x.dims() {
		if !slices.Contains(x.batch, axis) && !slices.Contains(x.contracted, axis) {
			out = append(out, axis)
		}
	}
	return out
}

// product is a general product, of the shape [batch..., left free..., right free...].
type product struct{ left, right factor }

func (p product) swap() product { return product{p.right, p.left} }

func (p product) outDims() []int {
	out := permute(p.left.dims(), p.left.batch)
	out = append(out, permute(p.left.dims(), p.left.free())...)
	return append(out, permute(p.right.dims(), p.right.free())...)
}

// isSwap reports whether a transposition of the result gives the result of the swapped product.
func (p product) isSwap(perm []int) bool {
	batch, left := len(p.left.batch), len(p.left.free())
	want := append(axisRange(0, batch), axisRange(batch+left, len(perm))...)
	return slices.Equal(perm, append(want, axisRange(batch, batch+left)...))
}

// DotGeneral multiplies float32 and float64 by MatMul; compute-onnx multiplies other types.
func (f *onnxFunction) DotGeneral(lhs compute.Value, lhsContracted, lhsBatch []int, rhs compute.Value, rhsContracted,
	rhsBatch []int, config compute.DotGeneralConfig) (compute.Value, error) {
	l, _, ok1 := staticNode(lhs)
	r, _, ok2 := staticNode(rhs)
	if !ok1 || !ok2 || !matMulTypes(l.Shape().DType, r.Shape().DType, config) {
		return f.Function.DotGeneral(lhs, lhsContracted, lhsBatch, rhs, rhsContracted, rhsBatch, config)
	}
	return f.dot(product{factor{l, lhsContracted, lhsBatch}, factor{r, rhsContracted, rhsBatch}})
}

// matMulTypes reports whether operands, sums and result are all float32 or all float64.
func matMulTypes(l, r dtypes.DType, c compute.DotGeneralConfig) bool {
	same := func(d dtypes.DType) bool { return d == dtypes.InvalidDType || d == l }
	return l == r && (l == dtypes.Float32 || l == dtypes.Float64) && same(c.AccumulatorDType) && same(c.OutputDType)
}

// dot emits a product as a MatMul: of the operands as they are if dotDirect can, else of [batch, m, k] by [batch, k,
// n], without the batch axis if it has one element.
func (f *onnxFunction) dot(p product) (compute.Value, error) {
	if y, err := f.dotDirect(p); y != nil || err != nil {
		return y, err
	}
	left, m, err := f.arrange(p.left.node, p.left.batch, p.left.free(), p.left.contracted)
	if err != nil {
		return nil, err
	}
	right, n, err := f.arrange(p.right.node, p.right.batch, p.right.contracted, p.right.free())
	if err != nil {
		return nil, err
	}
	shape := shapes.Make(p.left.node.Shape().DType, append(m[:len(m)-1:len(m)-1], n[len(n)-1])...)
	y, err := f.Reshape(f.AddCustomNode("MatMul", []*onnxbackend.Node{left, right}, shape), p.outDims()...)
	if err == nil {
		f.products[y.(*onnxbackend.Node)] = p
	}
	return y, err
}

// Matrices of up to fewRows rows are multiplied row by row, with the right operand repeated. ONNX Runtime copies the
// right operand into a packed form for several rows, but not for a single row.
const fewRows = 4

// dotDirect emits a product without reshapes, each of which is an operation. The axes must be in MatMul's order:
// [batch..., m, k] by [batch..., k, n] or [batch..., n, k], or [..., k] by a matrix. Otherwise it returns nil.
func (f *onnxFunction) dotDirect(p product) (compute.Value, error) {
	l, r, batch := p.left.dims(), p.right.dims(), len(p.left.batch)
	lastBy := func(x factor, axis int) bool { return slices.Equal(x.contracted, []int{axis}) }
	leading := slices.Equal(p.left.batch, axisRange(0, batch)) && slices.Equal(p.right.batch, axisRange(0, batch))
	if !leading || len(r) != batch+2 || len(l) < batch+2 || batch > 0 && len(l) != batch+2 ||
		!lastBy(p.left, len(l)-1) {
		return nil, nil
	}
	left, right := compute.Value(p.left.node), compute.Value(p.right.node)
	var err error
	if lastBy(p.right, batch+1) {
		perm := append(axisRange(0, batch), batch+1, batch)
		if right, err = f.emitTranspose(right, perm...); err != nil {
			return nil, err
		}
		r = permute(r, perm)
	} else if rows := l[len(l)-2]; batch > 0 && 1 < rows && rows <= fewRows {
		return f.rowByRow(p, l[:batch], rows, l[len(l)-1], r[len(r)-1])
	}
	shape := shapes.Make(p.left.node.Shape().DType, append(slices.Clone(l[:len(l)-1]), r[len(r)-1])...)
	y := f.AddCustomNode("MatMul", []*onnxbackend.Node{left.(*onnxbackend.Node), right.(*onnxbackend.Node)}, shape)
	f.products[y] = p
	return y, nil
}

// rowByRow emits [batch..., rows, 1, k] by [batch..., 1, k, n].
func (f *onnxFunction) rowByRow(p product, batch []int, rows, k, n int) (compute.Value, error) {
	dims := func(last ...int) []int { return append(slices.Clone(batch), last...) }
	left, err := f.Reshape(p.left.node, dims(rows, 1, k)...)
	if err != nil {
		return nil, err
	}
	right, err := f.Reshape(p.right.node, dims(1, k, n)...)
	if err != nil {
		return nil, err
	}
	shape := shapes.Make(p.left.node.Shape().DType, dims(rows, 1, n)...)
	y := f.AddCustomNode("MatMul", []*onnxbackend.Node{left.(*onnxbackend.Node), right.(*onnxbackend.Node)}, shape)
	return f.Reshape(y, p.outDims()...)
}

// hasFewRows reports whether the product is weight × rows' for a few rows. That is faster than rows × weight', since
// ONNX Runtime packs its right operand in every run.
func (p product) hasFewRows() bool {
	if p.left.node.OpType() != "Parameter" || p.right.node.OpType() == "Parameter" || len(p.left.batch) > 0 {
		return false
	}
	n := groupSizes(p.right.dims(), p.right.free())[0]
	return n > 1 && n < 96
}

// arrange puts the axes of x into the order of the groups and joins each group to one axis: [batch, rows, columns], or
// [rows, columns] if the batch has one element. Neighbouring axes that stay together move as one, so that a matrix is
// transposed by its last two axes only, which ONNX Runtime fuses into the product.
func (f *onnxFunction) arrange(x *onnxbackend.Node, batch, rows, columns []int) (*onnxbackend.Node, []int, error) {
	source, perm := runs(x.Shape().Dimensions, slices.Concat(batch, rows, columns))
	target := groupSizes(x.Shape().Dimensions, batch, rows, columns)
	if target[0] == 1 {
		target = target[1:]
	}
	v, err := f.Reshape(x, source...)
	if err != nil {
		return nil, nil, err
	}
	if v, err = f.emitTranspose(v, perm...); err != nil {
		return nil, nil, err
	}
	if v, err = f.Reshape(v, target...); err != nil {
		return nil, nil, err
	}
	return v.(*onnxbackend.Node), target, nil
}

// groupSizes gives the number of elements of each group of axes.
func groupSizes(dims []int, groups ...[]int) []int {
	out := make([]int, len(groups))
	for i, axes := range groups {
		out[i] = 1
		for _, axis := range axes {
			out[i] *= dims[axis]
		}
	}
	return out
}

// run is a range of neighbouring axes, first to last counted without axes of one element, and its number of elements.
type run struct{ first, last, size int }

// runs reduces a transposition to as few axes as possible: the dimensions to reshape to, and their permutation. Axes of
// one element vanish.
func runs(dims, perm []int) (source, order []int) {
	target := targetRuns(dims, perm)
	sorted := slices.Clone(target)
	slices.SortFunc(sorted, func(a, b run) int { return a.first - b.first })
	for _, r := range sorted {
		source = append(source, r.size)
	}
	for _, r := range target {
		order = append(order, slices.Index(sorted, r))
	}
	return source, order
}

func targetRuns(dims, perm []int) []run {
	index := indicesOf(dims)
	var out []run
	for _, axis := range perm {
		if dims[axis] == 1 {
			continue
		}
		if n := len(out); n > 0 && out[n-1].last+1 == index[axis] {
			out[n-1].last, out[n-1].size = index[axis], out[n-1].size*dims[axis]
			continue
		}
		out = append(out, run{index[axis], index[axis], dims[axis]})
	}
	return out
}

// indicesOf numbers the axes, without counting axes of one element.
func indicesOf(dims []int) []int {
	out, next := make([]int, len(dims)), 0
	for axis, d := range dims {
		out[axis] = next
		if d != 1 {
			next++
		}
	}
	return out
}
