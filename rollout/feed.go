package rollout

import (
	"github.com/posttrain/posttrain/model"
)

// prefillInputs are the inputs of a prefill.
type prefillInputs struct {
	inputSet
	tokens       embedding
	source       []int32
	inverse      []float32
	temperatures []float64 // that the rows' sums are made at
}

func (w *wave) newPrefillInputs(shape model.PrefillShape) (*prefillInputs, error) {
	in := &prefillInputs{inputSet: inputSet{engine: w.engine}, temperatures: make([]float64, shape.Prompts)}
	in.tokens = in.embedding(w.config.HiddenSize, w.live[w.config.EmbedTable()], shape.Prompts, shape.Tokens)
	in.source, in.inverse = in.ints(shape.Prompts), in.floats(shape.Prompts, 1)
	if in.err != nil {
		return in, in.err
	}
	for i := range in.temperatures {
		in.source[i], in.temperatures[i], in.inverse[i] = int32(i*shape.Tokens), 1, 1
	}
	return in, nil
}

// put sets row number i of a prefill of so many tokens to a prompt, sums as the request wants them.
func (in *prefillInputs) put(i, tokens int, prompt []int32, r Request) {
	for k, token := range prompt {
		in.tokens.put(i*tokens+k, token)
	}
	in.source[i] += int32(len(prompt) - 1)
	in.temperatures[i], in.inverse[i] = summedAt(r)
}

// summedAt is the temperature that the sums of a request's row are made at, and its inverse: the request's own, unless
// that is greedy or too extreme for a float32.
func summedAt(r Request) (temperature float64, inverse float32) {
	if r.Temperature < 1e-6 || r.Temperature > 1e6 {
		return 1, 1
	}
	return r.Temperature, float32(1 / r.Temperature)
}

// stepInputs are the inputs of a layout's steps.
type stepInputs struct {
	inputSet
	tokens            embedding
	cos, sin, inverse []float32
	masks             [][]float32 // by window
	slots             []int32     // nil unless the cache lives in the engine
	windows           []int
	positions         []int32
	temperatures      []float64 // that the rows' sums are made at
}

func (w *wave) newStepInputs() (*stepInputs, error) {
	shape, c := w.layout.shape, w.config
	rows := shape.Rows()
	in := &stepInputs{inputSet: inputSet{engine: w.engine}, windows: c.Windows(), positions: make([]int32, rows), temperatures: make([]float64, rows)}
	in.tokens = in.embedding(c.HiddenSize, w.live[c.EmbedTable()], rows)
	in.cos, in.sin = in.floats(rows, c.HeadDim), in.floats(rows, c.HeadDim)
	for range in.windows {
		in.masks = append(in.masks, in.floats(rows, shape.Seen()))
	}
	in.inverse = in.floats(rows, 1)
	if shape.InGraph {
		in.slots = in.ints(rows)
	}
	return in, in.err
}

// put sets row number row for the next step of a layout: its seat, nil for none, reads the token that it drew last.
func (in *stepInputs) put(row int, s *seat, l layout) {
	in.temperatures[row], in.inverse[row], in.positions[row] = 1, 1, 0
	prompt, own := 0, 0
	if s != nil {
		in.temperatures[row], in.inverse[row] = summedAt(s.request)
		in.tokens.put(row, s.tokens[len(s.tokens)-1])
		in.positions[row] = int32(s.cached())
		own = l.own(s)
		prompt = s.cached() - own
	}
	if in.slots != nil {
		in.slots[row] = int32(own)
	}
	for i, window := range in.windows {
		seen := l.shape.Seen()
		l.shape.Mask(in.masks[i][row*seen:(row+1)*seen], prompt, own, window)
	}
}
