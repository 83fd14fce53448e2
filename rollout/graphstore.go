package rollout

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/model"
)

// graphStore is a cache that stays in the engine: a step returns the whole cache in the same memory. Rows share
// nothing.
type graphStore struct {
	*Cached
	layout layout
	cache  []compute.Buffer // keys and values of every layer
}

func (g *graphStore) open(l layout) error {
	g.layout = l
	return nil
}

// fill takes all prompts of the wave at once.
func (g *graphStore) fill(keysAndValues []compute.Buffer, _ model.PrefillShape, prompts []int) error {
	place := map[int]int{}
	for i, p := range prompts {
		place[p] = i
	}
	return g.selectRows(keysAndValues, g.layout, func(s *seat) int { return place[s.prompt] })
}

// selectRows makes a layout's cache from the rows of another cache or of a prefill.
func (g *graphStore) selectRows(from []compute.Buffer, to layout, row func(s *seat) int) error {
	index := make([]int32, len(to.seats))
	for i, s := range to.seats {
		if s != nil {
			index[i] = int32(row(s))
		}
	}
	b, err := g.engine.Int32(index, len(index))
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(b)
	p, err := g.selector(from, to)
	if err != nil {
		return err
	}
	cache, err := p.Run(append(slices.Clone(from), b), nil)
	if err != nil {
		return err
	}
	backend.FinalizeAll(g.cache...)
	g.cache, g.layout = cache, to
	return nil
}

// selector is the program of selectRows.
func (g *graphStore) selector(from []compute.Buffer, to layout) (*backend.Program, error) {
	var have []shapes.Shape
	for _, b := range from {
		shape, err := b.Shape()
		if err != nil {
			return nil, err
		}
		have = append(have, shape)
	}
	name := fmt.Sprintf("rows/%v/%dx%d", have[0].Dimensions, len(to.seats), to.shape.Suffix)
	return g.prefills.Program(name, func(gr *graph.Graph) []*graph.Node {
		var keys, values []*graph.Node
		for i := 0; i < len(have); i += 2 {
			keys = append(keys, graph.Parameter(gr, fmt.Sprint("keys_", i/2), have[i]))
			values = append(values, graph.Parameter(gr, fmt.Sprint("values_", i/2), have[i+1]))
		}
		index := graph.Parameter(gr, "index", shapes.Make(dtypes.Int32, len(to.seats)))
		keys, values = model.SelectRows(keys, values, index, to.shape.Suffix)
		var out []*graph.Node
		for i := range keys {
			out = append(out, keys[i], values[i])
		}
		return out
	})
}

// inputs hands the cache to a step, whose outputs replace it.
func (g *graphStore) inputs() []compute.Buffer {
	cache := g.cache
	g.cache = nil
	return cache
}

func (g *graphStore) write(keysAndValues []compute.Buffer) error {
	g.cache = keysAndValues
	return nil
}

func (g *graphStore) move(to layout) error {
	return g.selectRows(g.cache, to, func(s *seat) int { return s.row })
}

func (g *graphStore) close() {
	backend.FinalizeAll(g.cache...)
	g.cache = nil
}
