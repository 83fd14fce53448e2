package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/model"
)

// pieceTokens is the length of a piece: large enough for fast products, and small, since engines keep the memory of a
// layer's activations. It divides the compiled lengths of rows with long prompts.
const (
	pieceTokens = 512
	longPrompt  = 4 // longer prompts, in pieces, are read in pieces
)

// isLong says whether a prompt is read in pieces, written into the cache one after the other, so that a prefill needs
// little memory beside the cache. With the cache in the engine, prompts are padded to the length of the longest: then
// all of them are read in pieces.
func (w *wave) isLong(prompt int) bool {
	tokens := len(w.prompts[prompt])
	if w.planner.inGraph && w.feed == nil {
		tokens = w.layout.shape.Prefix
	}
	return tokens > longPrompt*w.piece
}

// readPieces reads a long prompt and draws the first token of its answers.
func (w *wave) readPieces(ctx context.Context, prompt int, joining []*seat) error {
	seats := seatsOf([]int{prompt}, joining)
	r, tokens := w.newPieceReader(seats[0]), seats[0].tokens
	for at := 0; at < len(tokens); at += w.piece {
		if err := cmp.Or(context.Cause(ctx), r.read(at, tokens[at:min(at+w.piece, len(tokens))], seats)); err != nil {
			return err
		}
	}
	return nil
}

// pieceReader reads the pieces of one prompt.
type pieceReader struct {
	*wave
	model.PieceGraphs
	row int // of the cache
}

func (w *wave) newPieceReader(s *seat) *pieceReader {
	shape := model.PieceShape{Tokens: w.piece, InGraph: w.planner.inGraph}
	shape.Suffix = !shape.InGraph && w.layout.shape.Prefix == 0
	shape.Rows, shape.Slots = w.store.promptSize()
	return &pieceReader{w, model.PieceGraphs{Config: w.config, PieceShape: shape, Options: w.options.Graph,
		Matrices: w.matrixType(), HostRows: w.engine.Wants.HostRows}, w.store.promptRow(s)}
}

// read reads the piece that begins at a position; after the last one the seats are read.
func (r *pieceReader) read(at int, tokens []int32, seats []*seat) error {
	in, err := r.newPrefillInputs(model.PrefillShape{Prompts: 1, Tokens: r.piece})
	defer in.close()
	if err != nil {
		return err
	}
	in.put(0, r.piece, tokens, seats[0].request)
	x, err := r.readLayers(in.all[:1], at, len(tokens))
	defer func() { backend.FinalizeAll(x...) }()
	if err != nil || at+len(tokens) < len(seats[0].tokens) {
		return err
	}
	out, err := r.run("head", r.Head, r.HeadTensors(), in.all[1:], x)
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(out...)
	if err := r.store.share(seats); err != nil {
		return err
	}
	for _, s := range seats {
		s.read, s.prefix = true, len(s.tokens)
	}
	return r.extend(out, in.temperatures, seats, func(*seat) int { return 0 }, make([]*drawnToken, len(seats)))
}

// readLayers gives the hidden states behind the last layer, as one buffer.
func (r *pieceReader) readLayers(tokens []*input, at, n int) (x []compute.Buffer, err error) {
	var table []int
	if !r.HostRows {
		table = []int{r.EmbedTable()}
	}
	x, err = r.run("embed", r.Embed, table, tokens, nil)
	for layer := 0; layer < r.Layers && err == nil; layer++ {
		x, err = r.readLayer(layer, x, at, n)
	}
	return x, err
}

// readLayer gives the hidden states behind a layer, and puts its keys and values into the cache. It frees x.
func (r *pieceReader) readLayer(layer int, x []compute.Buffer, at, n int) ([]compute.Buffer, error) {
	defer backend.FinalizeAll(x...)
	window, graphs := r.Window(layer), r.PieceGraphs
	first := graphs.FirstSeen(at, window)
	place := &input{dims: []int{3}, ints: []int32{int32(r.row), int32(at), int32(first)}}
	options := []backend.Option{r.cut(2, []int{r.Rows, r.KVHeads})}
	if r.InGraph {
		options = append(options, backend.UpdateLast(2))
	}
	if !model.HasLoops(r.engine.Backend) {
		graphs.Blocks = (at - first) / r.Tokens
	}
	name := fmt.Sprintf("%d of %dx%d, window %d, suffix %v", graphs.Blocks, r.Rows, r.Slots, window, r.Suffix)
	build := func(g *graph.Graph) []*graph.Node { return graphs.Layer(g, layer) }
	out, err := r.run(name, build, r.LayerTensors(layer), []*input{place},
		slices.Concat(x, r.store.takePrompts(layer)), options...)
	if err != nil {
		return nil, err
	}
	return out[:1], r.store.fillPiece(layer, out[1:], r.row, at, n)
}

// run runs a program of a piece on some of the weights, what the host writes, and other buffers.
func (r *pieceReader) run(part string, build func(g *graph.Graph) []*graph.Node, weights []int, inputs []*input,
	others []compute.Buffer, options ...backend.Option) ([]compute.Buffer, error) {
	name := fmt.Sprintf("piece/%d/%s", r.Tokens, part)
	r.trace(name)
	p, err := r.pieces.Program(name, build, options...)
	if err != nil {
		return nil, err
	}
	return r.execute(p, data.Pick(r.live, weights), inputs, others)
}
