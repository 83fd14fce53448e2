package rollout

import (
	"context"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/model"
)

// pieceTokens is the length of a piece: large enough for fast products, and small, since ONNX Runtime keeps twice the
// memory of a piece for each program. Blocks of the cache divide the compiled lengths of rows with long prompts.
const (
	pieceTokens = 256
	blockPieces = 4
	longPrompt  = 2 * blockPieces // longer prompts are read in pieces
)

// isLong says whether a prompt is read in pieces, written into the cache one after the other, so that a prefill needs
// little memory beside the cache. With the cache in the engine, prompts are padded to the length of the longest: then
// all of them are read in pieces, with one program.
func (w *wave) isLong(prompt int) bool {
	tokens := len(w.prompts[prompt])
	if w.planner.inGraph && w.feed == nil {
		tokens = w.layout.shape.Prefix
	}
	return tokens > longPrompt*w.piece
}

// readPieces reads a long prompt and draws the first token of its answers.
func (w *wave) readPieces(ctx context.Context, prompt int, joining []*seat) error {
	seats, n := seatsOf([]int{prompt}, joining), len(w.prompts[prompt])
	for at := 0; at < n; at += w.piece {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := w.readPiece(at, seats); err != nil {
			return err
		}
	}
	return nil
}

// readPiece reads the piece of the seats' prompt that begins at a position; after the last one the seats are read.
func (w *wave) readPiece(at int, seats []*seat) error {
	tokens := seats[0].tokens
	end := min(at+w.piece, len(tokens))
	out, temperatures, err := w.runPiece(at, tokens[at:end], seats[0])
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(out[:headOutputs]...)
	if err := w.store.fillPiece(out[headOutputs:], seats[0], at, end-at); err != nil || end < len(tokens) {
		return err
	}
	if err := w.store.share(seats); err != nil {
		return err
	}
	for _, s := range seats {
		s.read, s.prefix = true, len(s.tokens)
	}
	return w.extend(out, temperatures, seats, func(*seat) int { return 0 }, make([]*drawnToken, len(seats)))
}

// runPiece returns the outputs of a piece that begins at a position, and the temperatures of its row's sums.
func (w *wave) runPiece(at int, tokens []int32, s *seat) (out []compute.Buffer, temperatures []float64, err error) {
	shape := model.PieceShape{Tokens: w.piece, Block: blockPieces * w.piece, InGraph: w.planner.inGraph}
	shape.Suffix = !shape.InGraph && w.layout.shape.Prefix == 0
	shape.Rows, shape.Slots = w.store.promptSize()
	shape.Seen = seenBy(at, shape)
	p, err := w.pieceProgram(w.prefillCache(), shape)
	if err != nil {
		return nil, nil, err
	}
	in, err := w.newPrefillInputs(model.PrefillShape{Prompts: 1, Tokens: w.piece})
	defer in.close()
	if err != nil {
		return nil, nil, err
	}
	place := in.ints(2)
	place[0], place[1] = int32(w.store.promptRow(s)), int32(at)
	in.put(0, w.piece, tokens, s.request)
	out, err = w.execute(p, w.live, in.all, w.store.takePrompts())
	return out, in.temperatures, err
}

// seenBy is the part of a row that the program of a piece reads: half or all of it. Engines with loops read what is
// filled, with one program.
func seenBy(at int, s model.PieceShape) int {
	if half := s.Slots / 2 / s.Block * s.Block; !s.InGraph && at <= half {
		return half
	}
	return s.Slots
}
