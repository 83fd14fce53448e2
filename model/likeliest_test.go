package model

import (
	"cmp"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
)

// TestLikeliestBlocks: the blocks of the greatest maxima, the last one short and padded. A row is also taken alone.
func TestLikeliestBlocks(t *testing.T) {
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		if !e.Capabilities().Functions {
			return // it does not sort
		}
		const rows, vocabulary = 3, 4*SampleBlock + 10
		c := &Config{VocabSize: vocabulary}
		logits, maxima := make([]float32, rows*vocabulary), []float32{}
		for i := range logits {
			logits[i] = float32(i*i%211) - 100
		}
		for row := range slices.Chunk(logits, vocabulary) {
			for b := range slices.Chunk(row, SampleBlock) {
				maxima = append(maxima, slices.Max(b))
			}
		}
		in := []compute.Buffer{must(e.Float32(logits, rows, vocabulary)),
			must(e.Float32(maxima, rows, c.SampleBlocks())), must(e.Int32([]int32{2}, 1))}
		defer backend.FinalizeAll(in...)
		const n = 3
		p := compile(t, e, "likeliest", func(g *graph.Graph) []*graph.Node {
			x := graph.Parameter(g, "logits", shapes.Make(dtypes.Float32, rows, vocabulary))
			m := graph.Parameter(g, "maxima", shapes.Make(dtypes.Float32, rows, c.SampleBlocks()))
			blocks, numbers, greatest := c.LikeliestBlocks(x, m, n)
			index := graph.Parameter(g, "index", shapes.Make(dtypes.Int32, 1))
			return append(RowOf(index, x, m), blocks, numbers, greatest)
		})
		out, err := p.Run(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer backend.FinalizeAll(out...)
		if got := must(backend.Floats(out[0])); !slices.Equal(got, logits[2*vocabulary:]) {
			t.Errorf("other logits of row 2: %v", got)
		}
		if got := must(backend.Floats(out[1])); !slices.Equal(got, maxima[2*c.SampleBlocks():]) {
			t.Errorf("other maxima of row 2: %v", got)
		}
		blocks, greatest := must(backend.Floats(out[2])), must(backend.Floats(out[4]))
		numbers := must(backend.Ints(out[3]))
		for row := range rows {
			z, of := nth(logits, row, rows), nth(maxima, row, rows)
			most := nth(greatest, row, rows)
			if want := slices.SortedFunc(slices.Values(of), falling)[:n+1]; !slices.Equal(most, want) {
				t.Errorf("row %d: maxima %v, want %v", row, most, want)
			}
			for k, number := range nth(numbers, row, rows) {
				want := z[number*SampleBlock : min(int(number+1)*SampleBlock, vocabulary)]
				got := nth(blocks, row*n+k, rows*n)[:len(want)]
				if of[number] != most[k] || !slices.Equal(got, want) {
					t.Errorf("row %d, block %d: %v, want %v", row, number, got, want)
				}
			}
		}
	})
}

// nth is part i of n equal parts.
func nth[T any](x []T, i, n int) []T { return x[i*len(x)/n : (i+1)*len(x)/n] }

func falling(a, b float32) int { return cmp.Compare(b, a) }
