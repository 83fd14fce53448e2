package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/model"
)

// product is a linear layer [rows, in] to [rows, out], and how often a step has it. peer_torch.py has the same list.
type product struct{ rows, in, out, count int }

// products lists a model's linear layers in a step on a packed batch. After attention in the last layer, and in the
// head, there are only the positions that predict something. Attention's own products are left out.
func products(c *model.Config, p *batch.Packed) []product {
	return productsOf(c, p.Rows*p.Len, p.Slots)
}

// productsOf is products of n tokens, of which slots predict something.
func productsOf(c *model.Config, n, slots int) []product {
	heads, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	all := []product{{n, c.HiddenSize, heads, c.Layers}, {n, c.HiddenSize, kv, 2 * c.Layers}}
	for _, after := range []struct{ rows, layers int }{{n, c.Layers - 1}, {slots, 1}} {
		all = append(all, product{after.rows, heads, c.HiddenSize, after.layers},
			product{after.rows, c.HiddenSize, c.IntermediateSize, 2 * after.layers},
			product{after.rows, c.IntermediateSize, c.HiddenSize, after.layers})
	}
	return append(all, product{slots, c.HiddenSize, c.VocabSize, 1})
}

// gflop is the work of a list's forward and backward products.
func gflop(all []product) (sum float64) {
	for _, p := range all {
		sum += 6 * float64(p.rows) * float64(p.in) * float64(p.out) * float64(p.count) / 1e9
	}
	return sum
}

// products is the time that the engine takes for the step's matrix products alone, each at its fastest of five.
func (t *trainer) products() (d did, err error) {
	for _, part := range t.parts {
		for _, p := range products(t.learner.Config(), part.Packed) {
			d.GFLOP += gflop([]product{p})
			for backward := range 3 {
				seconds, err := p.fastest(t.engine, t.dtype, backward)
				if err != nil {
					return d, err
				}
				d.Seconds += float64(p.count) * seconds
			}
		}
	}
	return d, nil
}

// sides are the two sides of the product forward (0), of the input's gradient (1) and of the weight's (2), and the axes
// that are summed over. In bfloat16 the last one has its left side transposed in memory, as the model has it.
func (p product) sides(backward int, dtype dtypes.DType) (left, right []int, axes [2]int) {
	switch {
	case backward == 0:
		return []int{p.rows, p.in}, []int{p.out, p.in}, [2]int{1, 1}
	case backward == 1:
		return []int{p.rows, p.out}, []int{p.out, p.in}, [2]int{1, 0}
	case dtype == bfloat16:
		return []int{p.out, p.rows}, []int{p.rows, p.in}, [2]int{1, 0}
	}
	return []int{p.rows, p.out}, []int{p.rows, p.in}, [2]int{0, 0}
}

// fastest is the time of one of the three products.
func (p product) fastest(e *backend.Engine, dtype dtypes.DType, backward int) (seconds float64, err error) {
	left, right, axes := p.sides(backward, dtype)
	program, err := e.Compile(fmt.Sprint("product", left, right), func(g *graph.Graph) []*graph.Node {
		a := graph.Parameter(g, "a", shapes.Make(dtype, left...))
		b := graph.Parameter(g, "b", shapes.Make(dtype, right...))
		dot := graph.Dot(a, b).WithAccumulatorDType(dtype)
		return []*graph.Node{dot.General(axes[:1], nil, axes[1:], nil)}
	})
	if err != nil {
		return 0, err
	}
	defer program.Close()
	var in []compute.Buffer
	defer func() { backend.FinalizeAll(in...) }()
	for _, dims := range [][]int{left, right} {
		x := make([]float32, dims[0]*dims[1])
		for i := range x {
			x[i] = float32(i%97) / 97
		}
		b, err := e.Floats(dtype, x, dims...)
		if err != nil {
			return 0, err
		}
		in = append(in, b)
	}
	seconds = math.Inf(1)
	for range 6 { // the first one may allocate
		begin := time.Now()
		out, err := program.Run(in, nil)
		if err != nil {
			return 0, err
		}
		seconds = min(seconds, time.Since(begin).Seconds())
		backend.FinalizeAll(out...)
	}
	return seconds, nil
}

// floor is what a side's library takes for a step's matrix products.
type floor struct {
	name    string
	seconds float64
	gflop   float64
}

// floorOf asks a side for its floor.
func floorOf(s *side) (floor, error) {
	d, err := s.ask("products")
	return floor{s.title(), d.Seconds, d.GFLOP}, err
}

// printFloors prints each step beside its two floors: the step's matrix products as fast as its own library has them,
// and as fast as any library here. least is the target for the first share of posttrain's last side; 0: no target.
func printFloors(out io.Writer, title string, all []*series, own, others []floor, least float64) {
	best := own[0]
	for _, f := range append(own, others...) {
		if f.seconds < best.seconds {
			best = f
		}
	}
	header := "side\tfastest step s\tits products s\tGFLOP/s\tshare of the step\tfastest products here s\t" +
		"share of the step\t"
	table(out, title, header, func(w io.Writer) {
		for i, s := range all {
			step := slices.Min(s.seconds)
			fmt.Fprintf(w, "%s\t%.4f\t%.4f\t%.0f\t%.0f%%\t%.4f\t%.0f%%\t\n", own[i].name, step, own[i].seconds,
				own[i].gflop/own[i].seconds, 100*own[i].seconds/step, best.seconds, 100*best.seconds/step)
		}
		for _, f := range others {
			fmt.Fprintf(w, "%s\t\t%.4f\t%.0f\t\t\t\t\n", f.name, f.seconds, f.gflop/f.seconds)
		}
	})
	fmt.Fprintln(out, "fastest products:", best.name)
	if least > 0 {
		reach(out, "products in the step of "+own[1].name, own[1].seconds/slices.Min(all[1].seconds), least)
	}
}

// otherFloors measures the products of a world on engines that take no part in the comparison, such as onnx or
// xla:amx=bfloat16. An engine that is not here is left out, with a line.
func otherFloors(out io.Writer, world string, engines []string) (all []floor) {
	for _, name := range engines {
		spec, dtype, _ := strings.Cut(name, "=")
		s, err := way{name, &form{backend: spec, bfloat16: dtype == "bfloat16"}}.on(world).start()
		if err == nil {
			var f floor
			if f, err = floorOf(s); err == nil {
				f.name = name
				all = append(all, f)
			}
			s.stop()
		}
		if err != nil {
			fmt.Fprintf(out, "the products of %s are not measured: %v\n", name, err)
		}
	}
	return all
}
