package backend

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// Program is one compiled graph of fixed shapes. Runs are one at a time; Close waits for the one under way.
type Program struct {
	name    string
	engine  *Engine
	names   []string
	inputs  []shapes.Shape
	outputs []shapes.Shape

	mu   sync.Mutex
	exec compute.Executable // nil once closed
}

// Compile builds a graph and compiles it. The graph's parameters, in the order of their making, are the inputs of Run;
// the nodes that build returns are its outputs. All that a program computes from is an input or a constant of the
// graph: a weight passed as an input is read anew by each run.
//
// Panics of build and of the libraries become errors.
func (e *Engine) Compile(name string, build func(g *graph.Graph) []*graph.Node, options ...Option) (p *Program, err error) {
	g := graph.NewGraph(e.Backend, name)
	defer func() {
		if err != nil {
			g.Finalize()
		}
	}()
	defer recovered(&err, fmt.Sprintf("compile %s on %s", name, e.Name))
	outputs := build(g)
	if len(outputs) == 0 {
		return nil, fmt.Errorf("backend: compile %s on %s: the graph has no outputs", name, e.Name)
	}
	if err := e.check(g); err != nil {
		return nil, fmt.Errorf("backend: compile %s on %s: %w", name, e.Name, err)
	}
	exec, err := e.compiled(g, outputs, options)
	if err != nil {
		return nil, fmt.Errorf("backend: compile %s on %s: %s", name, e.Name, oneLine(err.Error()))
	}
	return newProgram(e, name, g, exec), nil
}

// Option says how a program is to run. An engine that cannot run it so does as it always does.
type Option int

// OneThread keeps a program from starting threads of its own. On onnx every program has some, and they look out for work
// for tens of milliseconds after a run, at the cost of whatever runs then: a small program between the runs of another
// one, as the prefill of a few rows is, is better off without.
const OneThread Option = 1

// compiled compiles a graph to run as the options say.
func (e *Engine) compiled(g *graph.Graph, outputs []*graph.Node, options []Option) (compute.Executable, error) {
	if o, ok := e.Backend.(interface {
		compileOneThread(compile func() (compute.Executable, error)) (compute.Executable, error)
	}); ok && slices.Contains(options, OneThread) {
		return o.compileOneThread(func() (compute.Executable, error) { err := g.Compile(outputs...); return g.Executable(), err })
	}
	err := g.Compile(outputs...)
	return g.Executable(), err
}

// check refuses what an engine is known to fail on at run time, where it could not be caught.
func (e *Engine) check(g *graph.Graph) error {
	if e.Name != "go" {
		return nil
	}
	for _, n := range g.Nodes() {
		if n.NumOutputs() == 1 && n.DType() == dtypes.Float16 {
			return fmt.Errorf("float16 in node %s: the go engine computes in float32, float64 or bfloat16", n)
		}
	}
	return nil
}

func newProgram(e *Engine, name string, g *graph.Graph, exec compute.Executable) *Program {
	p := &Program{name: name, engine: e, exec: exec}
	if g.NumParameters() > 0 { // compute-onnx gives a graph without parameters a dummy one
		p.names, p.inputs = p.exec.Inputs()
	}
	p.outputs = p.exec.Outputs()
	return p
}

// Inputs gives the names and shapes of the inputs of Run.
func (p *Program) Inputs() ([]string, []shapes.Shape) {
	return slices.Clone(p.names), slices.Clone(p.inputs)
}

// Outputs gives the shapes of the outputs of Run.
func (p *Program) Outputs() []shapes.Shape { return slices.Clone(p.outputs) }

// Run executes the program. Inputs must have the number, types and shapes of [Program.Inputs]; those marked in donate
// (nil: none) are given away and must not be used again. The outputs belong to the caller, who finalises each: on
// onnx their memory is not the garbage collector's.
func (p *Program) Run(inputs []compute.Buffer, donate []bool) (outputs []compute.Buffer, err error) {
	defer recovered(&err, fmt.Sprintf("run %s on %s", p.name, p.engine.Name))
	if err := p.checkInputs(inputs, donate); err != nil {
		return nil, fmt.Errorf("backend: run %s on %s: %w", p.name, p.engine.Name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exec == nil {
		return nil, fmt.Errorf("backend: run %s on %s: the program is closed", p.name, p.engine.Name)
	}
	outputs, err = p.exec.Execute(inputs, donate, 0)
	if err != nil {
		FinalizeAll(outputs...)
		return nil, fmt.Errorf("backend: run %s on %s: %s", p.name, p.engine.Name, oneLine(err.Error()))
	}
	return outputs, nil
}

func (p *Program) checkInputs(inputs []compute.Buffer, donate []bool) error {
	if len(inputs) != len(p.inputs) {
		return fmt.Errorf("%d inputs given, %d wanted", len(inputs), len(p.inputs))
	}
	if len(donate) != 0 && len(donate) != len(inputs) {
		return fmt.Errorf("donate has %d entries for %d inputs", len(donate), len(inputs))
	}
	for i, b := range inputs {
		if err := p.checkInput(b, p.inputs[i]); err != nil {
			return fmt.Errorf("input %d (%s): %w", i, p.names[i], err)
		}
	}
	return nil
}

func (p *Program) checkInput(b compute.Buffer, want shapes.Shape) error {
	if b == nil {
		return fmt.Errorf("nil given, %s wanted", want)
	}
	if b.Backend() != p.engine.owner {
		return fmt.Errorf("the buffer belongs to another engine")
	}
	have, err := b.Shape()
	if err != nil {
		return err
	}
	if !have.Ok() {
		return fmt.Errorf("the buffer has been finalised")
	}
	if !have.Equal(want) {
		return fmt.Errorf("%s given, %s wanted", have, want)
	}
	return nil
}

// Close frees the program and its memory. Outputs of earlier runs stay valid. Closing twice does nothing.
func (p *Program) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exec != nil {
		p.exec.Finalize()
		p.exec = nil
	}
}
