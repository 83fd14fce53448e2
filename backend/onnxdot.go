//go:build cgo && linux

package backend

import (
	"slices"

	"github.com/gomlx/compute"
	onnxbackend "github.com/gomlx/compute-onnx"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
)

// factor is one operand of a general product: its axes are batch axes, contracted ones, or free.
type factor struct {
	node              *onnxbackend.Node
	contracted, batch []int
}

func (x factor) dims() []int { return x.node.Shape().Dimensions }

// free lists the axes that are neither batch nor contracted.
func (x factor) free() []int {
	var out []int
	for axis := range x.dims() {
		if !slices.Contains(x.batch, axis) && !slices.Contains(x.contracted, axis) {
			out = append(out, axis)
		}
	}
	return out
}

// product is a general product [batch..., left free..., right free...].
type product struct{ left, right factor }

func (p product) swapped() product { return product{p.right, p.left} }

// outDims are the dimensions of the result.
func (p product) outDims() []int {
	out := permuted(p.left.dims(), p.left.batch)
	out = append(out, permuted(p.left.dims(), p.left.free())...)
	return append(out, permuted(p.right.dims(), p.right.free())...)
}

// swappedBy tells whether a transposition of the result gives that of the swapped product.
func (p product) swappedBy(perm []int) bool {
	batch, left := len(p.left.batch), len(p.left.free())
	want := append(upTo(0, batch), upTo(batch+left, len(perm))...)
	return slices.Equal(perm, append(want, upTo(batch, batch+left)...))
}

// DotGeneral multiplies floats by MatMul; other types are left to compute-onnx.
func (f *onnxFunction) DotGeneral(lhs compute.Value, lhsContracted, lhsBatch []int, rhs compute.Value, rhsContracted, rhsBatch []int, config compute.DotGeneralConfig) (compute.Value, error) {
	l, _, ok1 := static(lhs)
	r, _, ok2 := static(rhs)
	if !ok1 || !ok2 || !matMulTypes(l.Shape().DType, r.Shape().DType, config) {
		return f.Function.DotGeneral(lhs, lhsContracted, lhsBatch, rhs, rhsContracted, rhsBatch, config)
	}
	return f.dot(product{factor{l, lhsContracted, lhsBatch}, factor{r, rhsContracted, rhsBatch}})
}

// matMulTypes tells whether a product is one of float32 or float64 throughout.
func matMulTypes(l, r dtypes.DType, c compute.DotGeneralConfig) bool {
	same := func(d dtypes.DType) bool { return d == dtypes.InvalidDType || d == l }
	return l == r && (l == dtypes.Float32 || l == dtypes.Float64) && same(c.AccumulatorDType) && same(c.OutputDType)
}

// dot emits a product as a MatMul: of the operands as they are where their axes stand right, else of [batch, m, k] by
// [batch, k, n], without the batch axis where it has one element.
func (f *onnxFunction) dot(p product) (compute.Value, error) {
	if y, err := f.direct(p); y != nil || err != nil {
		return y, err
	}
	left, m, err := f.arranged(p.left.node, p.left.batch, p.left.free(), p.left.contracted)
	if err != nil {
		return nil, err
	}
	right, n, err := f.arranged(p.right.node, p.right.batch, p.right.contracted, p.right.free())
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

// fewRows is up to how many rows a matrix is multiplied row by row, its partner repeated: the library packs its right
// operand for several rows, and has a kernel for one that does not.
const fewRows = 4

// direct emits a product whose axes stand as MatMul takes them, [batch..., m, k] by [batch..., k, n] or [batch..., n, k], or
// any rows by a matrix; nil where they do not. No reshape is needed then, and each is an operation.
func (f *onnxFunction) direct(p product) (compute.Value, error) {
	l, r, batch := p.left.dims(), p.right.dims(), len(p.left.batch)
	lastBy := func(x factor, axis int) bool { return slices.Equal(x.contracted, []int{axis}) }
	leading := slices.Equal(p.left.batch, upTo(0, batch)) && slices.Equal(p.right.batch, upTo(0, batch))
	if !leading || len(r) != batch+2 || len(l) < batch+2 || batch > 0 && len(l) != batch+2 || !lastBy(p.left, len(l)-1) {
		return nil, nil
	}
	left, right := compute.Value(p.left.node), compute.Value(p.right.node)
	var err error
	if lastBy(p.right, batch+1) {
		perm := append(upTo(0, batch), batch+1, batch)
		if right, err = f.transpose(right, perm...); err != nil {
			return nil, err
		}
		r = permuted(r, perm)
	} else if rows := l[len(l)-2]; batch > 0 && rows > 1 && rows <= fewRows {
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

// ofFewRows tells whether a product is that of a weight with the transposition of a few rows, which is faster than that of
// the rows with the weight's: the library packs its right operand anew at every run.
func (p product) ofFewRows() bool {
	if p.left.node.OpType() != "Parameter" || p.right.node.OpType() == "Parameter" || len(p.left.batch) > 0 {
		return false
	}
	n := joined(p.right.dims(), p.right.free())[0]
	return n > 1 && n < 96
}

// arranged brings the axes of x into the order of the groups and joins each group to one axis: [batch, rows, columns],
// or [rows, columns] where there is no batch. Runs of axes that stay together are moved as one, so that the
// transposition of a matrix is one of the last two axes only, which ONNX Runtime takes into the product.
func (f *onnxFunction) arranged(x *onnxbackend.Node, batch, rows, columns []int) (*onnxbackend.Node, []int, error) {
	source, perm := runs(x.Shape().Dimensions, slices.Concat(batch, rows, columns))
	target := joined(x.Shape().Dimensions, batch, rows, columns)
	if target[0] == 1 {
		target = target[1:]
	}
	v, err := f.Reshape(x, source...)
	if err != nil {
		return nil, nil, err
	}
	if v, err = f.transpose(v, perm...); err != nil {
		return nil, nil, err
	}
	if v, err = f.Reshape(v, target...); err != nil {
		return nil, nil, err
	}
	return v.(*onnxbackend.Node), target, nil
}

// joined gives the number of elements of each group of axes.
func joined(dims []int, groups ...[]int) []int {
	out := make([]int, len(groups))
	for i, axes := range groups {
		out[i] = 1
		for _, axis := range axes {
			out[i] *= dims[axis]
		}
	}
	return out
}

// run is a stretch of neighbouring axes: first..last among those of more than one element, and its number of elements.
type run struct{ first, last, size int }

// runs splits a transposition into as few axes as it needs: the dimensions to reshape to, and their permutation. Axes
// of one element vanish.
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
	place := places(dims)
	var out []run
	for _, axis := range perm {
		if dims[axis] == 1 {
			continue
		}
		if n := len(out); n > 0 && out[n-1].last+1 == place[axis] {
			out[n-1].last, out[n-1].size = place[axis], out[n-1].size*dims[axis]
			continue
		}
		out = append(out, run{place[axis], place[axis], dims[axis]})
	}
	return out
}

// places numbers the axes of more than one element.
func places(dims []int) []int {
	out, next := make([]int, len(dims)), 0
	for axis, d := range dims {
		out[axis] = next
		if d != 1 {
			next++
		}
	}
	return out
}
