package backend

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// Program is one compiled graph of fixed shapes. It runs once at a time, and Close waits for the current run.
type Program struct {
	name    string
	engine  *Engine
	names   []string
	inputs  []shapes.Shape
	outputs []shapes.Shape
	donate  []bool // by the options, unless Run says otherwise

	specs []*compute.ShardingSpec     // of the inputs on a mesh
	cut   []*distributed.ShardingSpec // of the outputs on a mesh

	mu   sync.Mutex
	exec compute.Executable // nil once closed

	compiled *Compiled // for a device that is not there; nil: for one that is
}

// Compile builds a graph and compiles it. The graph's parameters, in the order in which build makes them, are the
// inputs of Run, and the nodes that build returns are its outputs. A weight that is an input is read again in each run.
//
// On a mesh a parameter is whole on every device unless graph.ShardedParameter cuts it, and so is an output without
// [CutLast].
//
// Panics of build and of the libraries become errors.
func (e *Engine) Compile(name string, build func(g *graph.Graph) []*graph.Node, options ...Option) (p *Program,
	err error) {
	if err := e.failed.err(); err != nil {
		return nil, err
	}
	held := &builderHolder{Backend: e.Backend, rows: e.rows, gpu: e.gpu}
	g := graph.NewGraph(held, name)
	defer func() {
		if err != nil {
			g.Finalize()
		}
	}()
	defer catchPanic(&err, fmt.Sprintf("compile %s on %s", name, e.Name))
	if e.Mesh != nil {
		if err := g.SetAutoSharding(e.Mesh); err != nil {
			return nil, fmt.Errorf("backend: compile %s on %s: %w", name, e.Name, err)
		}
	}
	outputs := build(g)
	if len(outputs) == 0 {
		return nil, fmt.Errorf("backend: compile %s on %s: the graph has no outputs", name, e.Name)
	}
	if err := e.checkGraph(g); err != nil {
		return nil, fmt.Errorf("backend: compile %s on %s: %w", name, e.Name, err)
	}
	donated, output := 0, -1
	for _, o := range options {
		if donated += o.donated; o.inPlace {
			output = len(outputs) - donated
		}
	}
	markDonated(held.builder, donated, output)
	if e.Mesh != nil && g.NumParameters() > 0 {
		if err := markWhole(held.builder, e.Mesh.Name()); err != nil {
			return nil, fmt.Errorf("backend: compile %s on %s: %w", name, e.Name, err)
		}
	}
	cut := e.outputSpecs(len(outputs), options)
	if e.target != nil {
		return e.compileForTarget(g, outputs, cut)
	}
	if err := g.CompileWithSharding(outputs, cut); err != nil {
		return nil, fmt.Errorf("backend: compile %s on %s: %w", name, e.Name, engineError(err))
	}
	exec := g.Executable()
	p = &Program{name: name, engine: e, exec: exec, outputs: exec.Outputs(), cut: cut}
	if e.Mesh != nil {
		if p.specs, err = inputSpecs(exec); err != nil {
			return nil, fmt.Errorf("backend: compile %s on %s: %w", name, e.Name, err)
		}
	}
	if g.NumParameters() > 0 { // compute-onnx adds a dummy to a graph without parameters
		p.names, p.inputs = exec.Inputs()
	}
	for i := range p.inputs {
		p.donate = append(p.donate, i >= len(p.inputs)-donated)
	}
	return p, nil
}

// compileForTarget is the rest of Compile where the device is not there.
func (e *Engine) compileForTarget(g *graph.Graph, outputs []*graph.Node, cut []*distributed.ShardingSpec) (*Program, error) {
	p := &Program{name: g.Name(), engine: e, cut: cut}
	for _, n := range outputs {
		p.outputs = append(p.outputs, n.Shape())
	}
	for _, n := range g.Nodes() {
		if n.Type() == graph.NodeTypeParameter {
			p.names, p.inputs = append(p.names, n.GetParameterName()), append(p.inputs, n.Shape())
		}
	}
	c, err := e.target.during(func() error { return g.CompileWithSharding(outputs, cut) })
	g.Finalize()
	if err != nil {
		return nil, fmt.Errorf("backend: compile %s for %s: %w", p.name, e.target.Name, engineError(err))
	}
	c.Name, p.compiled = p.name, c
	return p, nil
}

// Compiled is what the compiler made of the program; nil where it was compiled to run.
func (p *Program) Compiled() *Compiled { return p.compiled }

// builderHolder is a backend that holds the builder of a graph.
type builderHolder struct {
	compute.Backend
	builder compute.Builder
	rows    bool
	gpu     bool
}

// WantsRows says that bfloat16 products are fast only if they sum over the rows of their left side as they are in
// memory, as in libraries for CPUs. Whoever builds a graph finds it in the graph's backend.
func (b *builderHolder) WantsRows() bool { return b.rows }

// OnGPU says that XLA compiles for a GPU, and so keeps barriers until operations have their order.
func (b *builderHolder) OnGPU() bool { return b.gpu }

// FusedRMSNorm says that the engine has the norm as one operation.
func (b *builderHolder) FusedRMSNorm() bool {
	engine, ok := b.Backend.(interface{ FusedRMSNorm() bool })
	return ok && engine.FusedRMSNorm()
}

func (b *builderHolder) Builder(name string) compute.Builder {
	b.builder = b.Backend.Builder(name)
	return b.builder
}

// Option says how a program runs. Engines ignore options that they do not have.
type Option struct {
	donated int
	inPlace bool
	cut     []*distributed.ShardingSpec
}

// CutLast cuts the program's last outputs over the engine's mesh, one spec each; nil: whole on every device.
func CutLast(specs ...*distributed.ShardingSpec) Option { return Option{cut: specs} }

// outputSpecs gives the specs of n outputs; nil without a mesh.
func (e *Engine) outputSpecs(n int, options []Option) (specs []*distributed.ShardingSpec) {
	if e.Mesh == nil {
		return nil
	}
	for range n {
		specs = append(specs, distributed.NewReplicatedShardingSpec(e.Mesh))
	}
	for _, o := range options {
		for i, spec := range o.cut {
			if spec != nil {
				specs[n-len(o.cut)+i] = spec
			}
		}
	}
	return specs
}

// DonateLast donates the program's last n inputs in every run: they must not be used again. XLA puts outputs of their
// shapes into their memory, where an input that is donated in Run alone stays beside the outputs until the end.
func DonateLast(n int) Option { return Option{donated: n} }

// UpdateLast is DonateLast for inputs that the last n outputs are updates of: each output is written over its own
// input. XLA would not see by itself which belongs to which, and would copy them.
func UpdateLast(n int) Option { return Option{donated: n, inPlace: true} }

// checkGraph refuses what the engine go cannot do. Float16 crashes it while it runs, where nothing could catch it, and
// where a processor has AVX2 without AVX-512 its kernels leave half of the terms of bfloat16 products out.
func (e *Engine) checkGraph(g *graph.Graph) error {
	if e.Name != "go" {
		return nil
	}
	for _, n := range g.Nodes() {
		product := n.Type() == graph.NodeTypeDotGeneral && n.Inputs()[0].DType() == dtypes.BFloat16
		if product || n.NumOutputs() == 1 && n.DType() == dtypes.Float16 {
			return fmt.Errorf("node %s: the go engine has no float16 and no products of bfloat16", n)
		}
	}
	return nil
}

// Inputs gives the names and shapes of the inputs of Run.
func (p *Program) Inputs() ([]string, []shapes.Shape) {
	return slices.Clone(p.names), slices.Clone(p.inputs)
}

// Outputs gives the shapes of the outputs of Run.
func (p *Program) Outputs() []shapes.Shape { return slices.Clone(p.outputs) }

// Run executes the program. Inputs must have the number, types and shapes of [Program.Inputs]. Inputs marked in donate
// (nil: as the program's options say) must not be used again. The caller owns the outputs and finalises each: on onnx
// the garbage collector does not free their memory.
func (p *Program) Run(inputs []compute.Buffer, donate []bool) (outputs []compute.Buffer, err error) {
	defer catchPanic(&err, fmt.Sprintf("run %s on %s", p.name, p.engine.Name))
	if err := p.engine.failed.err(); err != nil {
		return nil, err
	}
	if p.compiled != nil {
		p.compiled.Runs++
		return p.phantoms()
	}
	if err := p.checkInputs(inputs, donate); err != nil {
		return nil, fmt.Errorf("backend: run %s on %s: %w", p.name, p.engine.Name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exec == nil {
		return nil, fmt.Errorf("backend: run %s on %s: the program is closed", p.name, p.engine.Name)
	}
	if donate == nil {
		donate = p.donate
	}
	return p.runChecked(inputs, donate)
}

// runChecked is Run of inputs that were checked.
func (p *Program) runChecked(inputs []compute.Buffer, donate []bool) ([]compute.Buffer, error) {
	outputs, err := p.execute(inputs, donate)
	if err != nil {
		FinalizeAll(outputs...)
		return nil, p.engine.failed.set(fmt.Errorf("backend: run %s on %s: %w", p.name, p.engine.Name,
			engineError(err)))
	}
	return outputs, nil
}

// ErrMemory is the cause of an error of a device that is out of memory.
var ErrMemory = errors.New("the device is out of memory")

// engineError is an engine's error in one line.
func engineError(err error) error {
	text := fault.OneLine(err.Error())
	if _, reason, ok := strings.Cut(text, "PJRT error (code=8): "); ok { // RESOURCE_EXHAUSTED
		return fmt.Errorf("%w: %s", ErrMemory, strings.TrimSuffix(reason, "."))
	}
	const full = "Out of memory allocating " // what several devices say inside an error of another code
	if _, reason, ok := strings.Cut(text, full); ok {
		return fmt.Errorf("%w: %s", ErrMemory, full+strings.TrimSuffix(reason, "."))
	}
	return errors.New(text)
}

func (p *Program) checkInputs(inputs []compute.Buffer, donate []bool) error {
	if len(inputs) != len(p.inputs) {
		return fmt.Errorf("found %d inputs, want %d", len(inputs), len(p.inputs))
	}
	if len(donate) != 0 && len(donate) != len(inputs) {
		return fmt.Errorf("donate has %d entries, want %d or none", len(donate), len(inputs))
	}
	for i, b := range inputs {
		err := p.checkBuffer(b, p.inputs[i])
		if err == nil && p.engine.Mesh != nil {
			err = p.checkShards(b, p.inputs[i], p.specs[i])
		}
		if err != nil {
			return fmt.Errorf("input %d (%s): %w", i, p.names[i], err)
		}
	}
	return nil
}

func (p *Program) checkBuffer(b compute.Buffer, want shapes.Shape) error {
	if b == nil {
		return fmt.Errorf("found nil, want %s", want)
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
		return fmt.Errorf("found %s, want %s", have, want)
	}
	return nil
}

// Close frees the program and its memory. Outputs of earlier runs stay valid. Closing twice does nothing.
func (p *Program) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exec == nil || p.engine.failed.err() != nil {
		return
	}
	p.exec.Finalize()
	trimHeap()
	p.exec = nil
}

// Cache keeps the Wants.LiveGraphs programs used last and closes those that it drops. A program's key names the shapes
// of its batch.
//
// Use a program only until the next call of Cache.Program, which may drop it.
type Cache struct {
	engine *Engine
	live   int
	trim   func() // gives the system back what closed programs and earlier runs left

	mu       sync.Mutex
	programs map[string]*Program
	recent   []string // keys, the one used last at the end
}

// NewCache makes a cache of Wants.LiveGraphs programs, at least one.
func (e *Engine) NewCache() *Cache {
	return &Cache{engine: e, live: max(1, e.Wants.LiveGraphs), trim: trimHeap, programs: map[string]*Program{}}
}

// Program gives the program of a key. It compiles it, with the options, if the cache does not hold it.
func (c *Cache) Program(key string, build func(g *graph.Graph) []*graph.Node, options ...Option) (*Program, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.programs[key]; ok {
		if key != c.recent[len(c.recent)-1] {
			c.dropOutputs()
			kept := keptHeap()
			theHeap.check(key, kept, availableMemory() < max(HostMemory()/4, kept+kept/4), c.trim)
		}
		i := slices.Index(c.recent, key)
		c.recent = append(slices.Delete(c.recent, i, i+1), key)
		return p, nil
	}
	c.dropOutputs()
	c.trim()
	for len(c.recent) >= c.live { // before compiling: never both at once
		c.drop(c.recent[0])
	}
	p, err := c.engine.Compile(key, build, options...)
	c.trim() // the compiler's memory
	if err != nil {
		return nil, err
	}
	c.programs[key] = p
	c.recent = append(c.recent, key)
	return p, nil
}

// dropOutputs leaves outputs for later runs to none but the program that runs next.
func (c *Cache) dropOutputs() {
	for _, p := range c.programs {
		p.dropOutputs()
	}
}

func (c *Cache) drop(key string) {
	c.programs[key].Close()
	delete(c.programs, key)
	c.recent = slices.DeleteFunc(c.recent, func(k string) bool { return k == key })
}

// Len is the number of programs in the cache.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.recent)
}

// Close closes all programs in the cache.
func (c *Cache) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.recent) > 0 {
		c.drop(c.recent[0])
	}
	c.trim()
}

// PanicError is a panic of a library or of a function that builds a graph, turned into an error.
type PanicError struct {
	Value any // the panic's value; if it is an error, Unwrap gives it
	Stack []byte
}

func (p *PanicError) Error() string { return fault.OneLine(fmt.Sprint(p.Value)) }

func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// catchPanic, deferred, turns a panic into *err, which names what the program was doing.
func catchPanic(err *error, doing string) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("backend: %s: %w", doing, &PanicError{Value: v, Stack: debug.Stack()})
	}
}
