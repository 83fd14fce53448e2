package rollout

import (
	"cmp"
	"context"
	"slices"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/model"
)

// wave is requests that are answered together.
type wave struct {
	*Cached
	plan    plan
	live    []compute.Buffer // the weights
	seats   []*seat          // under way, in the order of the requests
	prompts [][]int32        // each of them read once
	layout  layout
	store   store
	inputs  *stepInputs
}

// add takes a request in. One that has the prompt of the one before it shares its reading.
func (w *wave) add(a *answer) {
	n := len(w.prompts)
	if n == 0 || w.plan.noSharing || !slices.Equal(w.prompts[n-1], a.request.Prompt) {
		w.prompts = append(w.prompts, a.request.Prompt)
	}
	w.seats = append(w.seats, &seat{answer: a, prompt: len(w.prompts) - 1})
}

func (w *wave) close() {
	w.store.close()
	w.inputs.close()
}

// drop lets finished rows go; their places are vacant.
func (w *wave) drop() {
	for _, s := range w.seats {
		if s.finished() {
			w.layout.seats[s.row] = nil
		}
	}
	w.seats = slices.DeleteFunc(w.seats, func(s *seat) bool { return s.finished() })
}

// begin reads the prompts and draws everybody's first token.
func (w *wave) begin(ctx context.Context) error {
	if w.plan.inGraph {
		w.store = &graphStore{Cached: w.Cached}
	} else {
		w.store = &hostStore{pool: w.pool, config: w.config}
	}
	w.sit(w.plan.layout(w.seats, w.plan.shares(w.seats)))
	if err := w.store.open(w.layout); err != nil {
		return err
	}
	for _, chunk := range w.chunks() {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := w.prefill(chunk); err != nil {
			return err
		}
	}
	return nil
}

// sit takes a layout as the one in force.
func (w *wave) sit(l layout) {
	w.layout = l
	for row, s := range l.seats {
		if s != nil {
			s.row = row
		}
	}
}

// chunks are the prompts by length, the longest first, cut into parts of about as many tokens as the engine likes.
func (w *wave) chunks() (out [][]int) {
	order := make([]int, len(w.prompts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(w.prompts[b]), len(w.prompts[a])) })
	for len(order) > 0 {
		n := len(order)
		if tokens := w.engine.Wants.Tokens; tokens > 0 && !w.plan.inGraph {
			n = min(n, powerUpTo(tokens/lengthOf(len(w.prompts[order[0]]))))
		}
		out, order = append(out, order[:n]), order[n:]
	}
	return out
}

// prefill reads some prompts and draws the first token of all that have them.
func (w *wave) prefill(prompts []int) error {
	shape := model.PrefillShape{Prompts: powerOf(len(prompts)), Tokens: lengthOf(len(w.prompts[prompts[0]])), InGraph: w.plan.inGraph}
	var seats []*seat
	for _, s := range w.seats {
		if slices.Contains(prompts, s.prompt) {
			seats = append(seats, s)
		}
	}
	out, temperatures, err := w.read(shape, prompts, seats)
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(out...)
	if err := w.store.fill(out[headOutputs:], shape, prompts); err != nil {
		return err
	}
	return w.extend(out, temperatures, seats, func(s *seat) int { return slices.Index(prompts, s.prompt) })
}

// read runs a prefill. It gives its outputs, and the temperatures that the rows' sums were made at.
func (w *wave) read(shape model.PrefillShape, prompts []int, seats []*seat) (out []compute.Buffer, temperatures []float64, err error) {
	p, err := w.prefillProgram(shape, w.layout.shape.Rows())
	if err != nil {
		return nil, nil, err
	}
	set := &inputSet{engine: w.engine}
	defer func() { freeInputs(set.all) }()
	tokens := set.embedding(w.config.HiddenSize, w.live[w.config.EmbedTable()], shape.Prompts, shape.Tokens)
	source, inverse := set.ints(shape.Prompts), set.floats(shape.Prompts, 1)
	if set.err != nil {
		return nil, nil, set.err
	}
	temperatures = make([]float64, shape.Prompts)
	for i := range temperatures {
		source[i], temperatures[i], inverse[i] = int32(i*shape.Tokens), 1, 1
	}
	for i, prompt := range prompts {
		for k, token := range w.prompts[prompt] {
			tokens.put(i*shape.Tokens+k, token)
		}
		source[i] += int32(len(w.prompts[prompt]) - 1)
		first := slices.IndexFunc(seats, func(s *seat) bool { return s.prompt == prompt })
		temperatures[i], inverse[i] = summedAt(seats[first].request)
	}
	out, err = w.run(p, w.live, set.all, nil, false)
	return out, temperatures, err
}

// summedAt is the temperature that the sums of a request's row are made at, and its inverse: the request's own, unless
// that is greedy or too extreme for a float32.
func summedAt(r Request) (temperature float64, inverse float32) {
	if r.Temperature < 1e-6 || r.Temperature > 1e6 {
		return 1, 1
	}
	return r.Temperature, float32(1 / r.Temperature)
}

// arrange moves the rows into another layout where they outgrow the one in force, or fit one of fewer rows.
func (w *wave) arrange() error {
	next := w.plan.layout(w.seats, w.layout.shape.Prefix > 0)
	rows := w.layout.shape.Rows()
	fewer := !w.options.NoCompaction && next.shape.Rows() < rows && rows > fewRows
	if !fewer && w.layout.fits() {
		return nil
	}
	if err := w.store.move(next); err != nil {
		return err
	}
	w.sit(next)
	w.inputs.close()
	w.inputs = nil
	return nil
}

// step draws the next token of every row.
func (w *wave) step() error {
	p, err := w.stepProgram(w.layout.shape)
	if err != nil {
		return err
	}
	if w.inputs == nil {
		if w.inputs, err = w.newStepInputs(); err != nil {
			return err
		}
	}
	temperatures := w.inputs.write(w)
	cache := w.store.inputs()
	out, err := w.run(p, w.live, w.inputs.all, cache, w.plan.inGraph)
	if err != nil {
		return err
	}
	kept := headOutputs
	if !w.plan.inGraph {
		kept = len(out)
	}
	defer backend.FinalizeAll(out[:kept]...)
	if err := w.store.write(out[headOutputs:]); err != nil {
		return err
	}
	return w.extend(out, temperatures, w.seats, func(s *seat) int { return s.row })
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
}

func (w *wave) newStepInputs() (*stepInputs, error) {
	shape, c := w.layout.shape, w.config
	rows := shape.Rows()
	in := &stepInputs{inputSet: inputSet{engine: w.engine}, windows: c.Windows(), positions: make([]int32, rows)}
	in.tokens = in.embedding(c.HiddenSize, w.live[c.EmbedTable()], rows)
	in.cos, in.sin = in.floats(rows, c.HeadDim), in.floats(rows, c.HeadDim)
	for range in.windows {
		in.masks = append(in.masks, in.floats(rows, shape.Seen()))
	}
	in.inverse = in.floats(rows, 1)
	if shape.InGraph {
		in.slots = in.ints(rows)
	}
	if in.err != nil {
		in.close()
		return nil, in.err
	}
	return in, nil
}

func (in *stepInputs) close() {
	if in != nil {
		freeInputs(in.all)
	}
}

// write sets the inputs of the next step: every row reads the token that it drew last. It gives the temperatures that
// the rows' sums are made at.
func (in *stepInputs) write(w *wave) (temperatures []float64) {
	temperatures = make([]float64, len(w.layout.seats))
	for row, s := range w.layout.seats {
		temperatures[row], in.inverse[row], in.positions[row] = 1, 1, 0
		prompt, own := 0, 0
		if s != nil {
			temperatures[row], in.inverse[row] = summedAt(s.request)
			in.tokens.put(row, s.tokens[len(s.tokens)-1])
			in.positions[row] = int32(s.cached())
			own = w.layout.own(s)
			prompt = s.cached() - own
		}
		if in.slots != nil {
			in.slots[row] = int32(own)
		}
		for i, window := range in.windows {
			seen := w.layout.shape.Seen()
			w.layout.shape.Mask(in.masks[i][row*seen:(row+1)*seen], prompt, own, window)
		}
	}
	w.rotary.Rows(in.positions, in.cos, in.sin)
	return temperatures
}
