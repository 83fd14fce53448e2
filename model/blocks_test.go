package model

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
)

// Attention in blocks gives the log-probs and gradients of whole attention, for all model types, packed rows with
// padding, and blocks that divide a row or not. The limits are the engines': processors round float32 differently.
func TestBlocksInTraining(t *testing.T) {
	p, forms := repeatedTokens(true), []GraphOptions{{AttentionBlock: 5}, {AttentionBlock: 16, Checkpoint: true}}
	sameInForms(t, p, forms, 1e-4, 1e-4)
}

// In float64 nothing but the order of sums differs.
func TestBlocksInFloat64(t *testing.T) {
	e := backendtest.Go(t)
	for name, m := range variedModels(t) {
		t.Run(name, func(t *testing.T) {
			p := repeatedTokens(true)
			want := gradientsOf(t, e, m, p, GraphOptions{DType: dtypes.Float64}, 1)[0]
			for _, block := range []int{1, 8, p.tokens - 1} {
				got := gradientsOf(t, e, m, p, GraphOptions{DType: dtypes.Float64, AttentionBlock: block}, 1)[0]
				sameStep(t, m, got, want, 1e-6, 1e-6)
			}
		})
	}
}

// A prefill in blocks gives the head, keys and values of a whole one, also with rotations for long texts.
func TestBlocksInPrefill(t *testing.T) {
	models := variedModels(t)
	models["llama3"] = sharpModel(t, "llama", "rope_scaling", map[string]any{"rope_type": "llama3", "factor": 8.0,
		"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16})
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		eachModel(t, models, func(t *testing.T, i int, m *Model) {
			c := texts(1)
			want := c.prefill(t, backendtest.Go(t), m)
			for _, c.options.AttentionBlock = range backendtest.Some(t, e, i, 1, 5) {
				for i, got := range c.prefill(t, e, m) {
					near(t, fmt.Sprint("output ", i), worst(got, want[i]), 1e-4)
				}
			}
		})
	})
}

// elementsOf builds a graph and gives the number of elements of its largest node.
func elementsOf(e *backend.Engine, build func(g *graph.Graph)) (most int) {
	g := graph.NewGraph(e.Backend, "sizes")
	defer g.Finalize()
	build(g)
	for _, n := range g.Nodes() {
		if n.NumOutputs() == 1 {
			most = max(most, n.Shape().Size())
		}
	}
	return most
}

// trainingElements and prefillElements are for one row of tokens.
func trainingElements(e *backend.Engine, c *Config, tokens int, o GraphOptions) int {
	return elementsOf(e, func(g *graph.Graph) {
		params := c.Parameters(g)
		loss := graph.ReduceAllSum(c.LogProbs(params, c.Inputs(g, 1, tokens, 8, true), o))
		graph.Gradient(loss, params...)
	})
}

func prefillElements(e *backend.Engine, c *Config, tokens int, o GraphOptions) int {
	return elementsOf(e, func(g *graph.Graph) {
		s := PrefillShape{Prompts: 1, Tokens: tokens}
		c.Prefill(c.Parameters(g), c.PrefillInputs(g, s, true), o)
	})
}

// No node of a long row's graph holds a number for every pair of tokens, forward, backward or in a prefill: up to 32k
// tokens every node is within the bound of a block or has some numbers for each token.
func TestNoWholeScores(t *testing.T) {
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		for name, m := range variedModels(t) {
			c := *m.Config
			c.Layers = 2
			for _, tokens := range []int{4096, 32768} {
				bound := max(blockElements, 2*tokens*c.IntermediateSize)
				for _, o := range []GraphOptions{{}, {Checkpoint: true}} {
					if got := trainingElements(e, &c, tokens, o); got > bound {
						t.Errorf("%s: training on %d tokens: a node of %d, want at most %d", name, tokens, got, bound)
					}
				}
				if got := prefillElements(e, &c, tokens, GraphOptions{}); got > bound {
					t.Errorf("%s: prefill of %d tokens: a node of %d, want at most %d", name, tokens, got, bound)
				}
			}
		}
	})
	e, c := backendtest.Go(t), tiny(t, "llama").Config
	if got := prefillElements(e, c, 512, GraphOptions{}); got < 512*512 {
		t.Errorf("a short row: at most %d elements, want its whole scores", got)
	}
}

// Short rows are computed whole, so that their bits do not depend on blocks; longer ones in even blocks within the
// bound.
func TestBlockOf(t *testing.T) {
	for _, c := range []struct {
		option, rows, heads, tokens int
		loops                       bool
		want                        int
	}{
		{0, 64, 32, plainTokens, false, 0},
		{0, 1, 9, 12288, false, 1760}, {0, 1, 9, 12288, true, 960}, {0, 1, 9, 3000, false, 1504},
		{0, 1, 9, plainTokens + 1, true, 704}, {0, 64, 64, 4096, true, 64},
		{512, 1, 9, 2048, false, 512}, {2048, 1, 9, 2048, false, 0}, {1 << 20, 1, 9, 1 << 15, false, 0},
	} {
		got := GraphOptions{AttentionBlock: c.option}.blockOf(c.rows, c.heads, c.tokens, c.loops)
		if got != c.want {
			t.Errorf("%+v: got blocks of %d", c, got)
		}
		if c.option == 0 && c.rows*c.heads*got*got > blockElements+blockElements/8 {
			t.Errorf("%+v: %d scores in a block", c, c.rows*c.heads*got*got)
		}
	}
}

// Rows of any length are cut, at multiples of 32.
func TestQueryEnds(t *testing.T) {
	for tokens, want := range map[int][]int{96: {96}, 288: {128, 288}, 416: {128, 256, 416}, 512: {128, 256, 384, 512}} {
		if got := queryEnds(tokens); !slices.Equal(got, want) {
			t.Errorf("%d tokens: %v, want %v", tokens, got, want)
		}
	}
}

// Blocks that a causal mask or a window leaves empty are not in the graph, and those that are full have no mask. Packed
// rows have all up to the diagonal, since positions are inputs there.
func TestEmptyBlocks(t *testing.T) {
	count := func(c tiling) (blocks, full int) {
		for _, queries := range c.spans() {
			for _, keys := range c.spans() {
				if c.isEmpty(queries, keys) {
					continue
				}
				blocks++
				if c.isFull(queries, keys) {
					full++
				}
			}
		}
		return blocks, full
	}
	for _, c := range []struct {
		tiling
		blocks, full int
	}{
		{tiling{tokens: 64, block: 8}, 36, 28},
		{tiling{tokens: 60, block: 8}, 36, 28},
		{tiling{tokens: 64, block: 8, window: 8}, 15, 0},
		{tiling{tokens: 64, block: 8, window: 16}, 21, 7},
		{tiling{tokens: 64, block: 8, window: 16, packed: &codes{}}, 36, 0},
	} {
		if blocks, full := count(c.tiling); blocks != c.blocks || full != c.full {
			t.Errorf("%d tokens, window %d: %d blocks, %d of them full, want %d and %d", c.tokens, c.window, blocks,
				full, c.blocks, c.full)
		}
	}
}
