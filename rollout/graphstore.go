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

func (g *graphStore) fill(keysAndValues []compute.Buffer, c chunk, seats []*seat) error {
	index := slices.Repeat([]int32{-1}, len(g.layout.seats))
	for _, s := range seats {
		index[s.row] = int32(slices.Index(c.prompts, s.prompt))
	}
	return g.selectRows(keysAndValues, g.layout, index, g.cache)
}

// selectRows makes a layout's cache from the rows of a prefill or of the present cache. Rows of index -1 are those of
// kept, or hold anything if that is nil.
func (g *graphStore) selectRows(from []compute.Buffer, to layout, index []int32, kept []compute.Buffer) error {
	b, err := g.engine.Int32(index, len(index))
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(b)
	p, err := g.selector(from, to, kept)
	if err != nil {
		return err
	}
	cache, err := p.Run(slices.Concat(from, []compute.Buffer{b}, kept), nil)
	if err != nil {
		return err
	}
	backend.FinalizeAll(g.cache...)
	g.cache, g.layout = cache, to
	return nil
}

// selector is the program of selectRows.
func (g *graphStore) selector(from []compute.Buffer, to layout, kept []compute.Buffer) (*backend.Program, error) {
	have, err := shapesOf(from)
	if err != nil {
		return nil, err
	}
	keep, err := shapesOf(kept)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("rows/%v/%dx%d/%v", have[0].Dimensions, len(to.seats), to.shape.Suffix, len(kept) > 0)
	return g.prefills.Program(name, func(gr *graph.Graph) []*graph.Node {
		parameters := func(name string, of []shapes.Shape) (out []*graph.Node) {
			for i, s := range of {
				out = append(out, graph.Parameter(gr, fmt.Sprint(name, "_", i), s))
			}
			return out
		}
		rows := parameters("cache", have)
		index := graph.Parameter(gr, "index", shapes.Make(dtypes.Int32, len(to.seats)))
		kept, isNew := parameters("kept", keep), graph.GreaterOrEqual(index, graph.ScalarZero(gr, dtypes.Int32))
		for i := 0; i < len(rows); i += 2 {
			k, v := model.SelectRows(rows[i:i+1], rows[i+1:i+2], graph.MaxScalar(index, 0), to.shape.Suffix)
			rows[i], rows[i+1] = k[0], v[0]
		}
		for i, old := range kept {
			all := graph.BroadcastToDims(graph.Reshape(isNew, -1, 1, 1, 1, 1), old.Shape().Dimensions...)
			rows[i] = graph.Where(all, rows[i], old)
		}
		return rows
	})
}

func shapesOf(buffers []compute.Buffer) (out []shapes.Shape, err error) {
	for _, b := range buffers {
		s, err := b.Shape()
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
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
	index := slices.Repeat([]int32{-1}, len(to.seats))
	for i, s := range to.seats {
		if s != nil && s.read {
			index[i] = int32(s.row)
		}
	}
	return g.selectRows(g.cache, to, index, nil)
}

func (g *graphStore) close() {
	backend.FinalizeAll(g.cache...)
	g.cache = nil
}
