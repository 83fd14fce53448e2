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
	w.forget()
}

// forget frees the inputs of the layout's steps.
func (w *wave) forget() {
	if w.inputs != nil {
		w.inputs.close()
		w.inputs = nil
	}
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

// read runs a prefill. It gives its outputs, and the temperatures that the rows' sums are made at.
func (w *wave) read(shape model.PrefillShape, prompts []int, seats []*seat) (out []compute.Buffer, temperatures []float64, err error) {
	p, err := w.prefillProgram(shape, w.layout.shape.Rows())
	if err != nil {
		return nil, nil, err
	}
	in, err := w.newPrefillInputs(shape)
	defer in.close()
	if err != nil {
		return nil, nil, err
	}
	for i, prompt := range prompts {
		first := slices.IndexFunc(seats, func(s *seat) bool { return s.prompt == prompt })
		in.put(i, shape.Tokens, w.prompts[prompt], seats[first].request)
	}
	out, err = w.run(p, w.live, in.all, nil, false)
	return out, in.temperatures, err
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
	w.forget()
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
	for row, s := range w.layout.seats {
		w.inputs.put(row, s, w.layout)
	}
	w.rotary.Rows(w.inputs.positions, w.inputs.cos, w.inputs.sin)
	out, err := w.run(p, w.live, w.inputs.all, w.store.inputs(), w.plan.inGraph)
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(out[:headOutputs]...)
	if err := w.store.write(out[headOutputs:]); err != nil {
		return err
	}
	return w.extend(out, w.inputs.temperatures, w.seats, func(s *seat) int { return s.row })
}
