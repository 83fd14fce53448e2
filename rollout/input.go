package rollout

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/model"
)

// input is a program's input that the host writes: floats or ints.
type input struct {
	dims   []int
	floats []float32
	ints   []int32
	live   compute.Buffer // shares its memory with floats; nil: floats are copied for every run
}

func sizeOf(dims []int) int { return shapes.Make(dtypes.Float32, dims...).Size() }

// buffer returns the input's buffer, which the caller finalises unless it is live.
func (in *input) buffer(e *backend.Engine) (compute.Buffer, error) {
	switch {
	case in.live != nil:
		return in.live, nil
	case in.ints != nil:
		return e.Int32(slices.Clone(in.ints), in.dims...)
	}
	return e.Float32(slices.Clone(in.floats), in.dims...)
}

// inputSet makes inputs and keeps the first error.
type inputSet struct {
	engine *backend.Engine
	all    []*input
	err    error
}

// close frees the buffers shared with the engine.
func (s *inputSet) close() {
	for _, in := range s.all {
		backend.FinalizeAll(in.live)
	}
}

func (s *inputSet) fail(err error) { s.err = cmp.Or(s.err, err) }

// floats makes an input of zeros.
func (s *inputSet) floats(dims ...int) []float32 {
	in := &input{dims: dims}
	if s.engine.Wants.SharedMemory {
		var err error
		in.live, in.floats, err = s.engine.SharedFloat32(dims...)
		s.fail(err)
	} else {
		in.floats = make([]float32, sizeOf(dims))
	}
	s.all = append(s.all, in)
	return in.floats
}

func (s *inputSet) ints(dims ...int) []int32 {
	in := &input{dims: dims, ints: make([]int32, sizeOf(dims))}
	s.all = append(s.all, in)
	return in.ints
}

// embedding is the input of tokens: their ids, or, on engines that want it, their rows of the embedding table.
type embedding struct {
	tokens []int32   // [n]
	rows   []float32 // [n, H]
	table  []float32 // [V, H]
	width  int       // H
}

// embedding makes the input of tokens of some dimensions; rows are flat, [n, H].
func (s *inputSet) embedding(width int, table compute.Buffer, dims ...int) embedding {
	if !s.engine.Wants.HostRows {
		return embedding{tokens: s.ints(dims...)}
	}
	from, err := backend.Floats(table)
	s.fail(err)
	return embedding{rows: s.floats(sizeOf(dims), width), table: from, width: width}
}

// put sets token number i.
func (e embedding) put(i int, token int32) {
	if e.tokens != nil {
		e.tokens[i] = token
		return
	}
	copy(e.rows[i*e.width:(i+1)*e.width], e.table[int(token)*e.width:])
}

// prefillInputs are the inputs of a prefill.
type prefillInputs struct {
	inputSet
	tokens       embedding
	source       []int32
	inverse      []float32
	temperatures []float64 // of the rows' sums
}

func (w *runningBatch) newPrefillInputs(shape model.PrefillShape) (*prefillInputs, error) {
	in := &prefillInputs{inputSet: inputSet{engine: w.engine}, temperatures: make([]float64, shape.Prompts)}
	in.tokens = in.embedding(w.config.HiddenSize, w.live[w.config.EmbedTable()], shape.Prompts, shape.Tokens)
	in.source, in.inverse = in.ints(shape.Prompts), in.floats(shape.Prompts, 1)
	if in.err != nil {
		return in, in.err
	}
	for i := range in.temperatures {
		in.temperatures[i], in.inverse[i], in.source[i] = 1, 1, int32(i*shape.Tokens)
	}
	return in, nil
}

// put sets row i, of the given number of tokens, to a request's prompt.
func (in *prefillInputs) put(i, tokens int, prompt []int32, r Request) {
	for k, token := range prompt {
		in.tokens.put(i*tokens+k, token)
	}
	in.source[i] += int32(len(prompt) - 1)
	in.temperatures[i], in.inverse[i] = sumTemperature(r)
}

// sumTemperature returns the temperature of the sums of a request's row, and its inverse: the request's own, or 1 if
// that is too extreme for float32.
func sumTemperature(r Request) (temperature float64, inverse float32) {
	if r.Temperature < 1e-6 || r.Temperature > 1e6 {
		return 1, 1
	}
	return r.Temperature, float32(1 / r.Temperature)
}

// stepInputs are the inputs of a layout's steps.
type stepInputs struct {
	inputSet
	tokens       embedding
	cos, sin     [][]float32 // by rope
	inverse      []float32
	masks        [][]float32 // by window
	windows      []int
	positions    []int32
	temperatures []float64 // of the rows' sums
}

func (w *runningBatch) newStepInputs() (*stepInputs, error) {
	shape, c := w.layout.shape, w.config
	rows := shape.Rows()
	in := &stepInputs{inputSet: inputSet{engine: w.engine}, windows: c.Windows(), positions: make([]int32, rows),
		temperatures: make([]float64, rows)}
	in.tokens = in.embedding(c.HiddenSize, w.live[c.EmbedTable()], rows)
	for range w.rotaries {
		in.cos, in.sin = append(in.cos, in.floats(rows, c.HeadDim)), append(in.sin, in.floats(rows, c.HeadDim))
	}
	for range in.windows {
		in.masks = append(in.masks, in.floats(rows, shape.MaskLen()))
	}
	in.inverse = in.floats(rows, 1)
	return in, in.err
}

// put sets a row of the next step: its sequence, unless it is nil, reads the token it drew last.
func (in *stepInputs) put(row int, s *sequence, l layout) {
	in.temperatures[row], in.inverse[row], in.positions[row] = 1, 1, 0
	prompt, own := 0, 0
	if s != nil {
		in.temperatures[row], in.inverse[row] = sumTemperature(s.request)
		in.tokens.put(row, s.tokens[len(s.tokens)-1])
		in.positions[row] = int32(s.cachedTokens())
		own = l.ownSlots(s)
		prompt = s.cachedTokens() - own
	}
	for i, window := range in.windows {
		seen := l.shape.MaskLen()
		l.shape.Mask(in.masks[i][row*seen:(row+1)*seen], prompt, own, window)
	}
}

// Upload copies a model's weights to an engine for sampling without training, on engines with memory of their own with
// the matrices in the type in which a sampler of these options computes. The caller finalises the buffers.
func Upload(e *backend.Engine, m *model.Model, o model.GraphOptions) (weights []compute.Buffer, err error) {
	dtype := o.ComputeType()
	if e.Wants.SharedMemory {
		dtype = dtypes.Float32
	}
	u := backend.NewUploader(m.Largest())
	for _, p := range m.Params {
		b, err := u.Floats(e.On(nil), model.MatrixType(p.Shape, dtype), p.Read, p.Shape...)
		if err != nil {
			backend.FinalizeAll(weights...)
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		weights = append(weights, b)
	}
	return weights, nil
}
