package rollout

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/model"
)

// runningBatch is a set of requests that are answered together.
type runningBatch struct {
	*Cached
	planner   planner
	live      []compute.Buffer // the weights
	arrivals  *arrivals        // nil: no requests join
	waiting   []*sequence      // without a row
	sequences []*sequence      // unfinished answers with a row, in the order of the requests
	prompts   [][]int32        // of the sequences that joined last; each is read once
	layout    layout
	inputs    *stepInputs

	store    store       // one of these two; nil before the first step
	onHost   *hostStore  // or nil
	onDevice *graphStore // or nil
}

// wait adds a request that has no row yet.
func (w *runningBatch) wait(a *answer, left <-chan struct{}) {
	w.waiting = append(w.waiting, &sequence{answer: a, left: left})
}

// number gives every sequence the index of its prompt. Neighbours with the same prompt share its prefill.
func (w *runningBatch) number(sequences []*sequence) {
	w.prompts = nil
	for _, s := range sequences {
		n := len(w.prompts)
		if n == 0 || !slices.Equal(w.prompts[n-1], s.tokens) {
			w.prompts = append(w.prompts, s.tokens)
		}
		s.prompt = len(w.prompts) - 1
	}
}

// run steps until all answers have ended, and lets requests join between steps.
func (w *runningBatch) run(ctx context.Context) error {
	defer func() {
		if w.store != nil {
			w.store.close()
		}
		w.freeInputs()
	}()
	join := w.join
	if w.arrivals != nil {
		join = w.joinAll
	}
	for {
		joined, err := join(ctx)
		if err != nil {
			return err
		}
		w.removeFinished()
		switch {
		case len(w.sequences) > 0:
		case joined:
			continue // with those that wait
		default:
			return nil
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := w.rearrange(); err != nil {
			return err
		}
		if err := w.step(); err != nil {
			return err
		}
		w.removeFinished()
	}
}

// freeInputs frees the inputs of the layout's steps.
func (w *runningBatch) freeInputs() {
	if w.inputs != nil {
		w.inputs.close()
		w.inputs = nil
	}
}

func (w *runningBatch) removeFinished() {
	w.sequences = slices.DeleteFunc(w.sequences, func(s *sequence) bool {
		over := s.isOver() // once: a client may leave at any moment
		if over {
			w.layout.sequences[s.row] = nil
		}
		return over
	})
}

// join gives waiting requests rows, reads their prompts and draws the first token of their answers.
func (w *runningBatch) join(ctx context.Context) (joined bool, err error) {
	joining := w.waiting[:w.planner.admits(len(w.sequences), len(w.waiting))]
	if w.arrivals != nil {
		joining, err = w.admit()
	}
	if len(joining) == 0 || err != nil {
		return false, err
	}
	w.waiting = w.waiting[len(joining):]
	w.number(joining)
	if err := w.makeRoom(joining); err != nil {
		return false, err
	}
	return true, w.readPrompts(ctx, joining)
}

// makeRoom gives sequences their rows.
func (w *runningBatch) makeRoom(joining []*sequence) error {
	w.sequences = append(w.sequences, joining...)
	if w.store != nil && w.layout.hold(joining) {
		return nil
	}
	share := w.arrivals == nil && len(w.waiting) == 0 && w.planner.sharesPrompts(w.sequences)
	next := w.planner.plan(w.sequences, share)
	if w.arrivals != nil {
		next = w.roomFor(next)
	}
	w.freeInputs()
	if w.store != nil {
		err := w.store.move(next)
		w.use(next)
		return err
	}
	w.use(next)
	if w.planner.inGraph {
		w.onDevice = &graphStore{Cached: w.Cached}
		w.store = w.onDevice
	} else {
		w.onHost = &hostStore{engine: w.engine, config: w.config}
		w.store = w.onHost
	}
	return w.store.open(next)
}

// readPrompts reads the prompts of sequences that have rows.
func (w *runningBatch) readPrompts(ctx context.Context, joining []*sequence) error {
	for _, c := range w.groups() {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := w.prefill(c, joining); err != nil {
			return err
		}
	}
	return nil
}

// promptGroup are prompts that a prefill reads together.
type promptGroup struct {
	prompts []int
	shape   model.PrefillShape
}

// use makes a layout the present one.
func (w *runningBatch) use(l layout) {
	w.layout = l
	for row, s := range l.sequences {
		if s != nil {
			s.row = row
		}
	}
}

// groups splits the prompts, the longest first, into prefills of about as many tokens as the engine wants.
func (w *runningBatch) groups() (out []promptGroup) {
	order := make([]int, len(w.prompts))
	for i := range order {
		order[i] = i
	}
	if w.planner.inGraph {
		return w.deviceGroups(order)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(w.prompts[b]), len(w.prompts[a])) })
	for len(order) > 0 {
		n := len(order)
		length := lengthOf(len(w.prompts[order[0]]))
		if tokens := w.engine.Wants.Tokens; tokens > 0 {
			n = min(n, powerUpTo(tokens/length))
		}
		shape := model.PrefillShape{Prompts: powerOf(n), Tokens: length}
		out, order = append(out, promptGroup{prompts: order[:n], shape: shape}), order[n:]
	}
	return out
}

// deviceGroups splits the prompts into prefills on an engine with memory of its own. A call has two shapes of them,
// since each is a program: one for many prompts, and one for a single prompt.
func (w *runningBatch) deviceGroups(order []int) (out []promptGroup) {
	tokens := w.layout.shape.Prefix
	if w.arrivals != nil { // which does not know the longest prompt to come
		tokens = 0
		for _, i := range order {
			tokens = max(tokens, 2*sharedPrompt, powerOf(len(w.prompts[i])))
		}
	}
	fit := cmp.Or(w.engine.Wants.Tokens, deviceTokens) / max(1, tokens)
	most := min(deviceMost, powerUpTo(fit), powerOf(w.layout.shape.Prompts))
	for len(order) > 0 {
		n := most
		if 2*len(order) <= most {
			n = 1
		}
		shape, n := model.PrefillShape{Prompts: n, Tokens: tokens, InGraph: true}, min(n, len(order))
		out, order = append(out, promptGroup{prompts: order[:n], shape: shape}), order[n:]
	}
	return out
}

// prefill reads some prompts and draws the first token of their answers.
func (w *runningBatch) prefill(c promptGroup, joining []*sequence) error {
	sequences := sequencesOf(c.prompts, joining)
	out, temperatures, err := w.runPrefill(c, sequences)
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(out...)
	if err := w.store.fill(out[headOutputs:], c, sequences); err != nil {
		return err
	}
	for _, s := range sequences {
		s.read, s.prefix = true, len(s.tokens)
	}
	place := func(s *sequence) int { return slices.Index(c.prompts, s.prompt) }
	return w.extend(out, temperatures, sequences, place, make([]*drawnToken, len(sequences)))
}

// sequencesOf are the joining sequences of some prompts.
func sequencesOf(prompts []int, joining []*sequence) (sequences []*sequence) {
	for _, s := range joining {
		if slices.Contains(prompts, s.prompt) {
			sequences = append(sequences, s)
		}
	}
	return sequences
}

// runPrefill returns the outputs of a prefill and the temperatures of its rows' sums.
func (w *runningBatch) runPrefill(c promptGroup, sequences []*sequence) (out []compute.Buffer, temperatures []float64,
	err error) {
	from := w.prefills
	if w.arrivals != nil {
		from = w.joins
	}
	p, err := w.prefillProgram(from, c.shape)
	if err != nil {
		return nil, nil, err
	}
	in, err := w.newPrefillInputs(c.shape)
	defer in.close()
	if err != nil {
		return nil, nil, err
	}
	for i, prompt := range c.prompts {
		first := sequences[slices.IndexFunc(sequences, func(s *sequence) bool { return s.prompt == prompt })]
		in.put(i, c.shape.Tokens, w.prompts[prompt], first.request)
	}
	out, err = w.execute(p, w.live, in.all, nil)
	return out, in.temperatures, err
}

// rearrange moves the rows into another layout if they outgrow the present one or fit one with fewer rows.
func (w *runningBatch) rearrange() error {
	next := w.planner.plan(w.sequences, w.layout.shape.Samples > 1)
	fewer := len(w.waiting) == 0 && w.planner.isWorthMoving(w.layout.shape, next.shape)
	if w.arrivals != nil {
		fewer = w.arrivals.isCalm(w.layout.shape, next.shape)
	}
	if !fewer && w.layout.hasRoom() {
		return nil
	}
	if w.arrivals != nil {
		next = w.evict(next)
	}
	if err := w.store.move(next); err != nil {
		return err
	}
	w.use(next)
	w.freeInputs()
	return nil
}

// step draws the next token of every row.
func (w *runningBatch) step() error {
	p, err := w.stepProgram(w.layout.shape)
	if err != nil {
		return err
	}
	if w.onDevice != nil {
		return w.stepOnDevice(p)
	}
	if w.inputs == nil {
		if w.inputs, err = w.newStepInputs(); err != nil {
			return err
		}
	}
	for row, s := range w.layout.sequences {
		w.inputs.put(row, s, w.layout)
	}
	for i, r := range w.rotaries {
		r.Rows(w.inputs.positions, w.inputs.cos[i], w.inputs.sin[i])
	}
	out, err := w.execute(p, w.live, w.inputs.all, w.onHost.inputs())
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(out[:headOutputs]...)
	if err := w.onHost.write(out[headOutputs:]); err != nil {
		return err
	}
	return w.extend(out, w.inputs.temperatures, w.sequences, rowOfSequence, make([]*drawnToken, len(w.sequences)))
}

// stepOnDevice runs a step that draws in the graph. Only tokens and log-probs come back, and the logits if a sequence's
// rules drop tokens.
func (w *runningBatch) stepOnDevice(p *backend.Program) error {
	state, temperatures := model.NewStepState(len(w.layout.sequences)), make([]float64, len(w.layout.sequences))
	for row, s := range w.layout.sequences {
		temperatures[row] = 1
		if s == nil {
			state.Put(row, 0, 0, 0, 1, 0)
			continue
		}
		var inverse float32
		temperatures[row], inverse = sumTemperature(s.request)
		state.Put(row, s.tokens[len(s.tokens)-1], int32(s.cachedTokens()), int32(s.prefix), inverse, s.deviceDraw())
	}
	out, err := w.onDevice.step(p, w.live, state)
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(out...)
	drawn, err := w.readDrawn(out)
	if err != nil {
		return err
	}
	return w.extend(out, temperatures, w.sequences, rowOfSequence, drawn)
}

// drawnToken is a token and its log-prob.
type drawnToken struct {
	token int32
	logp  float32
}

// readDrawn reads what a step has drawn; nil for sequences whose rules drop tokens, and for broken rows.
func (w *runningBatch) readDrawn(out []compute.Buffer) ([]*drawnToken, error) {
	tokens, err := backend.Ints(out[headOutputs])
	if err != nil {
		return nil, err
	}
	logps, err := backend.Floats(out[headOutputs+1])
	if err != nil {
		return nil, err
	}
	drawn := make([]*drawnToken, len(w.sequences))
	for i, s := range w.sequences {
		logp := float64(logps[s.row])
		if s.drawsInGraph(w.config.VocabSize) && !math.IsNaN(logp) && !math.IsInf(logp, 0) {
			drawn[i] = &drawnToken{tokens[s.row], logps[s.row]}
		}
	}
	return drawn, nil
}

// The outputs of a program that belong to its head come first; drawnOutputs is their number with token and log-prob.
const (
	logitsOutput = iota
	sumsOutput
	maximaOutput
	logSumExpOutput
	headOutputs
	drawnOutputs = headOutputs + 2
)

// head is the part of a program's outputs that tokens are drawn from.
type head struct {
	logits, sums, maxima, logSumExp []float32
	temperatures                    []float64 // [rows] of the sums
	vocabulary                      int
}

func (w *runningBatch) readHead(out []compute.Buffer, temperatures []float64) (*head, error) {
	h := &head{temperatures: temperatures, vocabulary: w.config.VocabSize}
	for i, to := range []*[]float32{&h.logits, &h.sums, &h.maxima, &h.logSumExp} {
		var err error
		if *to, err = backend.Floats(out[i]); err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
	}
	return h, nil
}

// extend draws a token for every sequence that has none drawn, from a program's outputs; place gives a sequence's row.
func (w *runningBatch) extend(out []compute.Buffer, temperatures []float64, sequences []*sequence,
	place func(s *sequence) int, drawn []*drawnToken) (err error) {
	var h *head
	if slices.Contains(drawn, nil) {
		if h, err = w.readHead(out, temperatures); err != nil {
			return err
		}
	}
	answers := make([]*answer, len(sequences))
	for i, s := range sequences {
		answers[i] = s.answer
	}
	return extend(answers, func(i int) (int32, float32, error) {
		if c := drawn[i]; c != nil {
			return c.token, c.logp, nil
		}
		return answers[i].choose(h.row(place(sequences[i])))
	})
}

func rowOfSequence(s *sequence) int { return s.row }

func (h *head) row(i int) row {
	n := len(h.temperatures)
	of := func(x []float32) []float32 { return x[i*len(x)/n : (i+1)*len(x)/n] }
	return row{of(h.logits), of(h.sums), of(h.maxima), h.logSumExp[i], h.temperatures[i], h.vocabulary}
}
