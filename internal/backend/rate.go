package backend

import (
	"fmt"
	"slices"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// ProductRate measures how fast the engine multiplies [rows, in] by [in, out] in a type, in operations a second, two for
// each multiplication: the fastest of a few runs.
func (e *Engine) ProductRate(rows, in, out int, dtype dtypes.DType) (rate float64, err error) {
	p, err := e.Compile("product", func(g *graph.Graph) []*graph.Node {
		x := graph.Parameter(g, "x", shapes.Make(dtype, rows, in))
		w := graph.Parameter(g, "w", shapes.Make(dtype, in, out))
		y := graph.Dot(x, w).Product()
		return []*graph.Node{graph.ConvertDType(graph.Slice(y, graph.AxisElem(0), graph.AxisElem(0)), dtypes.Float32), y}
	})
	if err != nil {
		return 0, err
	}
	defer p.Close()
	var inputs []compute.Buffer
	defer func() { FinalizeAll(inputs...) }()
	for _, dims := range [][]int{{rows, in}, {in, out}} {
		b, err := e.Floats(dtype, make([]float32, dims[0]*dims[1]), dims...)
		if err != nil {
			return 0, err
		}
		inputs = append(inputs, b)
	}
	var all []float64
	for begin := time.Now(); len(all) < 2 || time.Since(begin) < rateTime && len(all) < rateRuns; {
		seconds, err := e.timeRun(p, inputs)
		if err != nil {
			return 0, err
		}
		all = append(all, seconds)
	}
	return 2 * float64(rows) * float64(in) * float64(out) / slices.Min(all), nil
}

// How long ProductRate measures, and how often at most.
const (
	rateTime = 300 * time.Millisecond
	rateRuns = 20
)

// timeRun is the time of a run, in seconds, until its first output is on the host.
func (e *Engine) timeRun(p *Program, inputs []compute.Buffer) (float64, error) {
	begin := time.Now()
	out, err := p.Run(inputs, nil)
	if err != nil {
		return 0, fmt.Errorf("measure %s: %w", e.Name, err)
	}
	defer FinalizeAll(out...)
	_, err = Floats(out[0])
	return time.Since(begin).Seconds(), err
}

// ValueRate is how many bytes of values the engine writes in a second, beside its matrix products, on two cores.
func (e *Engine) ValueRate() float64 {
	switch e.Name {
	case "go":
		return 0.5e9
	case "onnx":
		return 3e9
	}
	return 6e9
}

// CompileSeconds is about how long the engine compiles a program of a number of operations, on two cores.
func (e *Engine) CompileSeconds(operations int) float64 {
	if e.Name == "xla" {
		return 0.004 * float64(operations)
	}
	return 2
}
