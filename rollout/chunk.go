package rollout

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/model"
)

// chunkTokens is the length of a chunk: large enough for fast products, and small, since engines keep the memory of a
// layer's activations. It divides the compiled lengths of rows with long prompts.
const (
	chunkTokens = 512
	longPrompt  = 4 // longer prompts, in chunks, are read in chunks
)

// isLong says whether a prompt is read in chunks, written into the cache one after the other, so that a prefill needs
// little memory beside the cache. With the cache in the engine, prompts are padded to the length of the longest: then
// all of them are read in chunks.
func (w *runningBatch) isLong(prompt int) bool {
	tokens := len(w.prompts[prompt])
	if w.planner.inGraph && w.arrivals == nil {
		tokens = w.layout.shape.Prefix
	}
	return tokens > longPrompt*w.chunk
}

// readLong reads the long prompts, and draws the first token of their answers. All of them read their chunks at one
// position, with the same programs, before those at the next.
func (w *runningBatch) readLong(ctx context.Context, joining []*sequence) error {
	var readers []*chunkReader
	for prompt := range w.prompts {
		if w.isLong(prompt) {
			readers = append(readers, w.newChunkReader(sequencesOf([]int{prompt}, joining)))
		}
	}
	for at := 0; len(readers) > 0; at += w.chunk {
		for _, r := range readers {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if err := r.readChunk(at); err != nil {
				return err
			}
		}
		readers = slices.DeleteFunc(readers, func(r *chunkReader) bool { return r.sequences[0].read })
	}
	return nil
}

// chunkReader reads the chunks of the prompt of some sequences.
type chunkReader struct {
	*runningBatch
	model.ChunkGraphs
	sequences []*sequence
	row       int // of the cache
}

func (w *runningBatch) newChunkReader(sequences []*sequence) *chunkReader {
	shape := model.ChunkShape{Tokens: w.chunk, InGraph: w.planner.inGraph}
	shape.Suffix = !shape.InGraph && w.layout.shape.Prefix == 0
	shape.Rows, shape.Slots = w.store.promptSize()
	graphs := model.ChunkGraphs{Config: w.config, ChunkShape: shape, Options: w.options.Graph,
		Matrices: w.matrixType(), HostRows: w.engine.Wants.HostRows}
	return &chunkReader{w, graphs, sequences, w.store.promptRow(sequences[0])}
}

// readChunk reads the chunk that begins at a position; after the last one the sequences are read.
func (r *chunkReader) readChunk(at int) error {
	all := r.sequences[0].tokens
	tokens := all[at:min(at+r.Tokens, len(all))]
	in, err := r.newPrefillInputs(model.PrefillShape{Prompts: 1, Tokens: r.Tokens})
	defer in.close()
	if err != nil {
		return err
	}
	in.put(0, r.Tokens, tokens, r.sequences[0].request)
	x, err := r.readLayers(in.all[:1], at, len(tokens))
	defer func() { backend.FinalizeAll(x...) }()
	if err != nil || at+len(tokens) < len(all) {
		return err
	}
	return r.drawFirst(in, x)
}

// drawFirst draws the first token of the answers from the hidden states of the last chunk.
func (r *chunkReader) drawFirst(in *prefillInputs, x []compute.Buffer) error {
	head, err := r.program("head", r.Head)
	if err != nil {
		return err
	}
	out, err := r.execute(head, r.tensors(r.HeadTensors()), in.all[1:], x)
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(out...)
	if err := r.store.share(r.sequences); err != nil {
		return err
	}
	for _, s := range r.sequences {
		s.read, s.prefix = true, len(s.tokens)
	}
	drawn := make([]*drawnToken, len(r.sequences))
	return r.extend(out, in.temperatures, r.sequences, func(*sequence) int { return 0 }, drawn)
}

// readLayers gives the hidden states behind the last layer, as one buffer.
func (r *chunkReader) readLayers(tokens []*input, at, n int) (x []compute.Buffer, err error) {
	embed, err := r.program("embed", r.Embed)
	if err != nil {
		return nil, err
	}
	var table []int
	if !r.HostRows {
		table = []int{r.EmbedTable()}
	}
	x, err = r.execute(embed, r.tensors(table), tokens, nil)
	for _, group := range r.LayerGroups() {
		if err == nil {
			x, err = r.readGroup(group, x, at, n)
		}
	}
	return x, err
}

// readGroup gives the hidden states behind a group of layers, and puts keys and values into the cache. It frees x.
func (r *chunkReader) readGroup(group model.LayerGroup, x []compute.Buffer, at, n int) ([]compute.Buffer, error) {
	defer backend.FinalizeAll(x...)
	place := &input{dims: []int{2}, ints: []int32{int32(r.row), int32(at)}}
	graphs := r.ChunkGraphs
	if !model.HasLoops(r.engine.Backend) {
		graphs.Blocks = graphs.BlocksAt(at)
	}
	p, err := r.groupProgram(graphs, group)
	if err != nil {
		return nil, err
	}
	var weights []int
	for layer := group.First; layer < group.End; layer++ {
		weights = append(weights, r.LayerTensors(layer)...)
	}
	out, err := r.execute(p, r.tensors(weights), []*input{place}, slices.Concat(x, r.store.takePrompts(group)))
	if err != nil {
		return nil, err
	}
	return out[:1], r.store.fillChunk(group, out[1:], r.row, at, n)
}

// groupProgram is that of a group. Groups of as many layers have the same windows, so that they share it.
func (r *chunkReader) groupProgram(graphs model.ChunkGraphs, group model.LayerGroup) (*backend.Program, error) {
	n := group.Size()
	options := []backend.Option{r.cut(2*n, r.Rows)}
	if r.InGraph {
		options = append(options, backend.UpdateLast(2*n))
	}
	name := fmt.Sprintf("%d layers, %v of %dx%d, suffix %v", n, graphs.Blocks, r.Rows, r.Slots, r.Suffix)
	return r.program(name, func(g *graph.Graph) []*graph.Node { return graphs.Layers(g, group) }, options...)
}

func (r *chunkReader) program(part string, build func(g *graph.Graph) []*graph.Node,
	options ...backend.Option) (*backend.Program, error) {
	name := fmt.Sprintf("chunk/%d/%s", r.Tokens, part)
	r.trace(name)
	return r.chunks.Program(name, build, options...)
}

// tensors are some of the weights.
func (r *chunkReader) tensors(places []int) []compute.Buffer { return data.Pick(r.live, places) }
