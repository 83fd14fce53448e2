package rollout

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/model"
)

// graphStore is a cache that stays in the engine. A step writes one slot of the ring in place. What changes more than a
// slot runs for one tensor after the other, with one program for all of them, so that two whole caches never exist at
// once.
type graphStore struct {
	*Cached
	layout       layout
	steps        int              // so far; they number the slots
	prefix, ring []compute.Buffer // keys and values of every layer
}

// prefixDims and ringDims are the dimensions of keys and values.
func (g *graphStore) prefixDims(s model.StepShape) []int {
	return []int{s.Prompts, g.config.KVHeads, s.Prefix, g.config.HeadDim}
}

func (g *graphStore) ringDims(s model.StepShape) []int {
	return []int{s.Prompts, g.config.KVHeads, s.Samples, s.Suffix, g.config.HeadDim}
}

// open fills the cache with zeros: slots that are not seen must be finite.
func (g *graphStore) open(l layout) (err error) {
	g.layout = l
	if g.prefix, err = g.zeros(g.prefixDims(l.shape)); err != nil {
		return err
	}
	g.ring, err = g.zeros(g.ringDims(l.shape))
	return err
}

// zeros makes a part of every layer.
func (g *graphStore) zeros(dims []int) (out []compute.Buffer, err error) {
	p, err := g.small(fmt.Sprint("zeros/", dims), func(gr *graph.Graph) *graph.Node {
		zero := graph.Parameter(gr, "zero", shapes.Make(dtypes.Float32))
		return graph.BroadcastToDims(graph.ConvertDType(zero, g.options.Graph.ComputeType()), dims...)
	}, g.cut(1, dims[0]))
	if err != nil {
		return nil, err
	}
	zero, err := g.engine.Float32([]float32{0})
	if err != nil {
		return nil, err
	}
	defer backend.FinalizeAll(zero)
	for range 2 * g.config.Layers {
		one, err := p.Run([]compute.Buffer{zero}, nil)
		if err != nil {
			backend.FinalizeAll(out...)
			return nil, err
		}
		out = append(out, one[0])
	}
	return out, nil
}

// small returns a program of one output that has nothing of the model.
func (s *Cached) small(name string, build func(g *graph.Graph) *graph.Node,
	options ...backend.Option) (*backend.Program, error) {
	s.trace(name)
	return s.prefills.Program(name, func(g *graph.Graph) []*graph.Node { return []*graph.Node{build(g)} }, options...)
}

// tensor makes a parameter of the cache's type.
func (g *graphStore) tensor(gr *graph.Graph, name string, dims []int) *graph.Node {
	return model.CacheParameter(gr, name, shapes.Make(g.options.Graph.ComputeType(), dims...))
}

func index(g *graph.Graph, name string, n int) *graph.Node {
	return graph.Parameter(g, name, shapes.Make(dtypes.Int32, n))
}

// fill takes the prompts of sequences from a prefill. The samples of a prompt share a row of the prefix.
func (g *graphStore) fill(keysAndValues []compute.Buffer, c promptGroup, sequences []*sequence) error {
	s := g.layout.shape
	rows := slices.Repeat([]int32{-1}, s.Prompts)
	for _, sequence := range sequences {
		rows[sequence.row/s.Samples] = int32(slices.Index(c.prompts, sequence.prompt))
	}
	from := []int{c.shape.Prompts, g.config.KVHeads, c.shape.Tokens, g.config.HeadDim}
	name := fmt.Sprintf("fill/%v/%v", from, g.prefixDims(s))
	p, err := g.small(name, func(gr *graph.Graph) *graph.Node {
		x, at := g.tensor(gr, "new", from), index(gr, "rows", s.Prompts)
		return model.MovePrefix(x, at, g.tensor(gr, "kept", g.prefixDims(s)), s.Prefix)
	}, backend.UpdateLast(1), g.cut(1, s.Prompts))
	if err != nil {
		return err
	}
	at, err := g.engine.Int32(rows, len(rows))
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(at)
	for i, kept := range g.prefix {
		g.prefix[i] = nil // donated
		out, err := p.Run([]compute.Buffer{keysAndValues[i], at, kept}, nil)
		if err != nil {
			return err
		}
		g.prefix[i] = out[0]
	}
	return nil
}

// move takes the rows of the present layout to another one.
func (g *graphStore) move(to layout) error {
	from := g.layout.shape
	rows, prompts := make([]int32, to.shape.Rows()), make([]int32, to.shape.Prompts)
	moved := to.shape.Prompts != from.Prompts || to.shape.Prefix != from.Prefix
	for i, s := range to.sequences {
		if s != nil && s.read {
			rows[i], prompts[i/to.shape.Samples] = int32(s.row), int32(s.row/from.Samples)
			moved = moved || s.row/from.Samples != i/to.shape.Samples
		}
	}
	g.layout = to
	if moved {
		if err := g.movePrefix(from, to.shape, prompts); err != nil {
			return err
		}
	}
	return g.moveRing(from, to.shape, rows)
}

func (g *graphStore) movePrefix(from, to model.StepShape, prompts []int32) error {
	have, want := g.prefixDims(from), g.prefixDims(to)
	p, err := g.small(fmt.Sprintf("prefix/%v/%v", have, want), func(gr *graph.Graph) *graph.Node {
		return model.MovePrefix(g.tensor(gr, "prefix", have), index(gr, "rows", to.Prompts), nil, to.Prefix)
	}, g.cut(1, to.Prompts))
	if err != nil {
		return err
	}
	return g.run(p, g.prefix, prompts)
}

func (g *graphStore) moveRing(from, to model.StepShape, rows []int32) error {
	have, want := g.ringDims(from), g.ringDims(to)
	p, err := g.small(fmt.Sprintf("ring/%v/%v", have, want), func(gr *graph.Graph) *graph.Node {
		x := g.tensor(gr, "ring", have)
		return model.MoveRing(x, index(gr, "rows", len(rows)), index(gr, "slots", to.Suffix), to)
	}, g.cut(1, to.Prompts))
	if err != nil {
		return err
	}
	return g.run(p, g.ring, rows, g.slotsOf(from.Suffix, to.Suffix))
}

// slotsOf gives the slots of a ring of n slots that another one takes its slots from: each the youngest step's that is
// not younger than the last.
func (g *graphStore) slotsOf(n, to int) []int32 {
	slots := make([]int32, to)
	for j := range slots {
		back := ((g.steps-1-j)%to + to) % to
		slots[j] = int32(((g.steps-1-back)%n + n) % n)
	}
	return slots
}

// run runs a program for every buffer, with the same indices, and puts the results in their places.
func (g *graphStore) run(p *backend.Program, buffers []compute.Buffer, indices ...[]int32) error {
	inputs := make([]compute.Buffer, 1)
	defer func() { backend.FinalizeAll(inputs[1:]...) }()
	for _, x := range indices {
		b, err := g.engine.Int32(x, len(x))
		if err != nil {
			return err
		}
		inputs = append(inputs, b)
	}
	for i, old := range buffers {
		inputs[0] = old
		out, err := p.Run(inputs, nil)
		if err != nil {
			return err
		}
		backend.FinalizeAll(old)
		buffers[i] = out[0]
	}
	return nil
}

// step runs a step's program. The ring's memory belongs to the outputs after it.
func (g *graphStore) step(p *backend.Program, weights []compute.Buffer, state model.StepState) ([]compute.Buffer,
	error) {
	state.SetSlot(int32(g.steps % g.layout.shape.Suffix))
	ints, err := g.engine.Int32(slices.Clone(state.Ints), 4, state.Rows)
	if err != nil {
		return nil, err
	}
	defer backend.FinalizeAll(ints)
	reals, err := g.engine.Float32(slices.Clone(state.Reals), 2, state.Rows)
	if err != nil {
		return nil, err
	}
	defer backend.FinalizeAll(reals)
	ring := g.ring
	g.ring = nil // donated
	out, err := p.Run(slices.Concat(weights, []compute.Buffer{ints, reals}, g.prefix, ring), nil)
	if err != nil {
		return nil, err
	}
	g.steps++
	g.ring = out[drawnOutputs:]
	return out[:drawnOutputs], nil
}

func (g *graphStore) close() {
	backend.FinalizeAll(g.prefix...)
	backend.FinalizeAll(g.ring...)
	g.prefix, g.ring = nil, nil
}
