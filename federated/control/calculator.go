package control

import (
	"fmt"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
)

// Calculator computes batches on an engine, in float64: outputs, gradients and derivatives of all rows at once. The
// agents of a process share it. It is safe for concurrent use.
type Calculator struct {
	Engine   *backend.Engine
	mu       sync.Mutex
	programs map[string]*backend.Program
}

// OpenCalculator opens the engine of a spec, see [backend.Open].
func OpenCalculator(spec string) (*Calculator, error) {
	e, err := backend.Open(spec)
	if err != nil {
		return nil, err
	}
	return &Calculator{Engine: e, programs: map[string]*backend.Program{}}, nil
}

// Close closes the engine.
func (c *Calculator) Close() {
	for _, p := range c.programs {
		p.Close()
	}
	c.Engine.Close()
}

// Use makes the workload compute its batches with a calculator. What an episode needs of one observation at a time
// stays on the host.
func (w *Workload) Use(c *Calculator) {
	w.policy.net = dense{w.policy.one.(*mlp), c}
	w.critic.net = dense{w.critic.one, c}
}

// array is an input of a program, row by row.
type array struct {
	data []float64
	dims []int
}

// run computes an output of inputs. The key names the program and all that build depends on but the inputs' dimensions.
func (c *Calculator) run(key string, build func(inputs []*graph.Node) *graph.Node, inputs ...array) ([]float64, error) {
	p, err := c.program(key, build, inputs)
	if err != nil {
		return nil, err
	}
	var buffers []compute.Buffer
	defer func() { backend.FinalizeAll(buffers...) }()
	for _, in := range inputs {
		b, err := c.Engine.Float64(in.data, in.dims...)
		if err != nil {
			return nil, err
		}
		buffers = append(buffers, b)
	}
	outputs, err := p.Run(buffers, nil)
	if err != nil {
		return nil, err
	}
	defer backend.FinalizeAll(outputs...)
	return backend.Float64s(outputs[0])
}

// program is compiled at its first use.
func (c *Calculator) program(key string, build func([]*graph.Node) *graph.Node, inputs []array) (*backend.Program,
	error) {
	for _, in := range inputs {
		key += fmt.Sprint(" ", in.dims)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.programs[key]; p != nil {
		return p, nil
	}
	p, err := c.Engine.Compile(key, func(g *graph.Graph) []*graph.Node {
		var nodes []*graph.Node
		for i, in := range inputs {
			nodes = append(nodes, graph.Parameter(g, fmt.Sprint("input", i), shapes.Make(dtypes.Float64, in.dims...)))
		}
		return []*graph.Node{build(nodes)}
	})
	if err == nil {
		c.programs[key] = p
	}
	return p, err
}

// dense is an mlp that a calculator computes. A tape is a row's outputs; the layers before them are computed again.
type dense struct {
	*mlp
	calculator *Calculator
}

func (d dense) tape() int { return d.outputs() }

func (d dense) forward(theta, x, tapes []float64) error {
	out, err := d.run("outputs", func(in []*graph.Node) *graph.Node {
		values := d.values(d.layers(in[0]), in[1])
		return values[len(values)-1]
	}, d.vector(theta), d.matrix(x, tapes))
	copy(tapes, out)
	return err
}

func (d dense) backward(theta, x, tapes, slopes, gradient []float64) error {
	out, err := d.run("gradient", func(in []*graph.Node) *graph.Node {
		layers := d.layers(in[0])
		values := d.values(layers, in[1])
		return flat(graph.Gradient(graph.ReduceAllSum(graph.Mul(values[len(values)-1], in[2])), layers...))
	}, d.vector(theta), d.matrix(x, tapes), d.matrix(slopes, tapes))
	for i, g := range out {
		gradient[i] += g
	}
	return err
}

func (d dense) derivative(theta, x, tapes, v, out []float64) error {
	got, err := d.run("derivative", func(in []*graph.Node) *graph.Node {
		return d.push(d.layers(in[0]), in[1], d.layers(in[2]))
	}, d.vector(theta), d.matrix(x, tapes), d.vector(v))
	copy(out, got)
	return err
}

func (d dense) run(kind string, build func([]*graph.Node) *graph.Node, inputs ...array) ([]float64, error) {
	return d.calculator.run(fmt.Sprint(kind, d.sizes, d.hidden, d.last), build, inputs...)
}

// vector are a network's parameters. A policy's θ has more behind them.
func (d dense) vector(theta []float64) array {
	n := d.parameters()
	return array{theta[:n], []int{n}}
}

// matrix has as many rows as tapes.
func (d dense) matrix(values, tapes []float64) array {
	n := len(tapes) / d.tape()
	return array{values, []int{n, len(values) / n}}
}

// layers cut θ into the weights [out, in] and biases [out] of each layer.
func (d dense) layers(theta *graph.Node) (all []*graph.Node) {
	at := 0
	for l := 1; l < len(d.sizes); l++ {
		in, out := d.sizes[l-1], d.sizes[l]
		weights := graph.Slice(theta, graph.AxisRange(at, at+in*out))
		at += in * out
		all = append(all, graph.Reshape(weights, out, in), graph.Slice(theta, graph.AxisRange(at, at+out)))
		at += out
	}
	return all
}

// values are those of every layer, [rows, out].
func (d dense) values(layers []*graph.Node, x *graph.Node) (all []*graph.Node) {
	for l := range len(d.sizes) - 1 {
		x = d.activation(l + 1).of(affine(x, layers[2*l], layers[2*l+1]))
		all = append(all, x)
	}
	return all
}

// push is the derivative of the outputs along v, layer by layer as mlp.derivative does it.
func (d dense) push(layers []*graph.Node, x *graph.Node, v []*graph.Node) (dx *graph.Node) {
	values := d.values(layers, x)
	for l, y := range values {
		dy := affine(x, v[2*l], v[2*l+1])
		if l > 0 {
			dy = graph.Add(dy, graph.Einsum("ni,oi->no", dx, layers[2*l]))
		}
		x, dx = y, d.activation(l+1).slope(y, dy)
	}
	return dx
}

func affine(x, weights, biases *graph.Node) *graph.Node {
	return graph.Add(graph.Einsum("ni,oi->no", x, weights), graph.ExpandAxes(biases, 0))
}

// of is the activation of values.
func (a activation) of(x *graph.Node) *graph.Node {
	switch a {
	case tanh:
		return graph.Tanh(x)
	case relu:
		return graph.Where(graph.GreaterThan(x, graph.ZerosLike(x)), x, graph.ZerosLike(x))
	}
	return x
}

// slope multiplies d by the activation's derivative, from its values, as chain does.
func (a activation) slope(values, d *graph.Node) *graph.Node {
	switch a {
	case tanh:
		return graph.Mul(d, graph.OneMinus(graph.Square(values)))
	case relu:
		return graph.Where(graph.GreaterThan(values, graph.ZerosLike(values)), d, graph.ZerosLike(d))
	}
	return d
}

// flat puts tensors into one vector.
func flat(all []*graph.Node) *graph.Node {
	for i, x := range all {
		all[i] = graph.Reshape(x, -1)
	}
	return graph.Concatenate(all, 0)
}
