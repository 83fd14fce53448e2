package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/model"
)

// wave is a set of requests that are answered together.
type wave struct {
	*Cached
	planner planner
	live    []compute.Buffer // the weights
	seats   []*seat          // unfinished answers, in the order of the requests
	prompts [][]int32        // each is read once
	layout  layout
	store   store
	inputs  *stepInputs
}

// add takes a request in. If it has the prompt of the one before it, they share its prefill.
func (w *wave) add(a *answer) {
	n := len(w.prompts)
	if n == 0 || w.planner.noSharing || !slices.Equal(w.prompts[n-1], a.request.Prompt) {
		w.prompts = append(w.prompts, a.request.Prompt)
	}
	w.seats = append(w.seats, &seat{answer: a, prompt: len(w.prompts) - 1})
}

// run reads the prompts and steps until all answers have ended.
func (w *wave) run(ctx context.Context) (err error) {
	defer func() {
		w.store.close()
		w.freeInputs()
		if err != nil {
			w.pool.empty() // it may hold NaN
		}
	}()
	if err := w.readPrompts(ctx); err != nil {
		return err
	}
	for w.removeFinished(); len(w.seats) > 0; w.removeFinished() {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := w.rearrange(); err != nil {
			return err
		}
		if err := w.step(); err != nil {
			return err
		}
	}
	return nil
}

// freeInputs frees the inputs of the layout's steps.
func (w *wave) freeInputs() {
	if w.inputs != nil {
		w.inputs.close()
		w.inputs = nil
	}
}

func (w *wave) removeFinished() {
	for _, s := range w.seats {
		if s.isFinished() {
			w.layout.seats[s.row] = nil
		}
	}
	w.seats = slices.DeleteFunc(w.seats, func(s *seat) bool { return s.isFinished() })
}

// readPrompts reads the prompts and draws the first token of every answer.
func (w *wave) readPrompts(ctx context.Context) error {
	w.store = &hostStore{pool: w.pool, config: w.config}
	if w.planner.inGraph {
		w.store = &graphStore{Cached: w.Cached}
	}
	w.use(w.planner.plan(w.seats, w.planner.sharesPrompts(w.seats)))
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

// use makes a layout the present one.
func (w *wave) use(l layout) {
	w.layout = l
	for row, s := range l.seats {
		if s != nil {
			s.row = row
		}
	}
}

// chunks splits the prompts, the longest first, into prefills of about as many tokens as the engine wants.
func (w *wave) chunks() (out [][]int) {
	order := make([]int, len(w.prompts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(w.prompts[b]), len(w.prompts[a])) })
	for len(order) > 0 {
		n := len(order)
		if tokens := w.engine.Wants.Tokens; tokens > 0 && !w.planner.inGraph {
			n = min(n, powerUpTo(tokens/lengthOf(len(w.prompts[order[0]]))))
		}
		out, order = append(out, order[:n]), order[n:]
	}
	return out
}

// prefill reads some prompts and draws the first token of their answers.
func (w *wave) prefill(prompts []int) error {
	shape := model.PrefillShape{Prompts: powerOf(len(prompts)), Tokens: lengthOf(len(w.prompts[prompts[0]])),
		InGraph: w.planner.inGraph}
	var seats []*seat
	for _, s := range w.seats {
		if slices.Contains(prompts, s.prompt) {
			seats = append(seats, s)
		}
	}
	out, temperatures, err := w.runPrefill(shape, prompts, seats)
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(out...)
	if err := w.store.fill(out[headOutputs:], shape, prompts); err != nil {
		return err
	}
	return w.extend(out, temperatures, seats, func(s *seat) int { return slices.Index(prompts, s.prompt) })
}

// runPrefill returns the outputs of a prefill and the temperatures of its rows' sums.
func (w *wave) runPrefill(shape model.PrefillShape, prompts []int, seats []*seat) (out []compute.Buffer,
	temperatures []float64, err error) {
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
	out, err = w.execute(p, w.live, in.all, nil, false)
	return out, in.temperatures, err
}

// rearrange moves the rows into another layout if they outgrow the present one or fit one with fewer rows.
func (w *wave) rearrange() error {
	next := w.planner.plan(w.seats, w.layout.shape.Prefix > 0)
	rows := w.layout.shape.Rows()
	fewer := !w.options.NoCompaction && next.shape.Rows() < rows && rows > fewRows
	if !fewer && w.layout.hasRoom() {
		return nil
	}
	if err := w.store.move(next); err != nil {
		return err
	}
	w.use(next)
	w.freeInputs()
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
	out, err := w.execute(p, w.live, w.inputs.all, w.store.inputs(), w.planner.inGraph)
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(out[:headOutputs]...)
	if err := w.store.write(out[headOutputs:]); err != nil {
		return err
	}
	return w.extend(out, w.inputs.temperatures, w.seats, func(s *seat) int { return s.row })
}

// headOutputs is the number of outputs of a program that belong to its head.
const headOutputs = 4

// head is the part of a program's outputs that tokens are drawn from.
type head struct {
	logits, sums, maxima, logSumExp []float32
	temperatures                    []float64 // [rows] of the sums
	vocabulary                      int
}

// readHead reads a program's head without the logits.
func (w *wave) readHead(out []compute.Buffer, temperatures []float64) (*head, error) {
	h := &head{temperatures: temperatures, vocabulary: w.config.VocabSize}
	for i, to := range []*[]float32{&h.sums, &h.maxima, &h.logSumExp} {
		var err error
		if *to, err = backend.Floats(out[i+1]); err != nil {
			return nil, fmt.Errorf("output %d: %w", i+1, err)
		}
	}
	return h, nil
}

// extend draws a token for every seat from a program's outputs; place gives a seat's row.
func (w *wave) extend(out []compute.Buffer, temperatures []float64, seats []*seat, place func(s *seat) int) error {
	h, err := w.readHead(out, temperatures)
	if err != nil {
		return err
	}
	rows := make([]row, len(seats))
	answers := make([]*answer, len(seats))
	for i, s := range seats {
		rows[i], answers[i] = h.row(place(s)), s.answer
	}
	if err := w.readLogits(out[0], h, rows, seats, place); err != nil {
		return err
	}
	return extend(answers, func(i int) (int32, float32, error) {
		return rows[i].choose(answers[i].request.Sampling, answers[i].draw())
	})
}

// readLogits completes the seats' rows. Of logits on a device it reads only the deciding blocks, unless a seat needs
// more.
func (w *wave) readLogits(logits compute.Buffer, h *head, rows []row, seats []*seat,
	place func(s *seat) int) (err error) {
	blocks, ok := make([]int32, powerOf(len(seats))), w.planner.inGraph
	for i := 0; ok && i < len(seats); i++ {
		var at int
		at, _, ok = rows[i].decidingBlock(seats[i].request.Sampling, seats[i].draw())
		ok = ok && rows[i].check() == nil
		blocks[i] = int32(place(seats[i])*len(rows[i].sums) + at)
	}
	if ok {
		read, err := w.readBlocks(logits, len(h.temperatures), blocks)
		for i := 0; err == nil && i < len(seats); i++ {
			rows[i].only = read[i*block : (i+1)*block]
		}
		return err
	}
	if h.logits, err = backend.Floats(logits); err != nil {
		return err
	}
	for i, s := range seats {
		rows[i].logits = h.row(place(s)).logits
	}
	return nil
}

// readBlocks reads blocks of logits [rows, V] from a device, numbered through all rows: [len(blocks), block].
func (w *wave) readBlocks(logits compute.Buffer, rows int, blocks []int32) ([]float32, error) {
	index, err := w.engine.Int32(blocks, len(blocks), 1)
	if err != nil {
		return nil, err
	}
	defer backend.FinalizeAll(index)
	v := w.config.VocabSize
	name := fmt.Sprintf("blocks/%d/%d", rows, len(blocks))
	p, err := w.prefills.Program(name, func(g *graph.Graph) []*graph.Node {
		z := graph.Parameter(g, "logits", shapes.Make(dtypes.Float32, rows, v))
		i := graph.Parameter(g, "blocks", shapes.Make(dtypes.Int32, len(blocks), 1))
		if missing := (block - v%block) % block; missing > 0 {
			z = graph.Pad(z, graph.Infinity(g, dtypes.Float32, -1), graph.PadAxis{}, graph.PadAxis{End: missing})
		}
		return []*graph.Node{graph.Gather(graph.Reshape(z, -1, block), i)}
	})
	if err != nil {
		return nil, err
	}
	out, err := p.Run([]compute.Buffer{logits, index}, nil)
	if err != nil {
		return nil, err
	}
	defer backend.FinalizeAll(out...)
	read, err := backend.Floats(out[0])
	return slices.Clone(read), err // the outputs are freed
}

func (h *head) row(i int) row {
	of := func(x []float32) []float32 {
		if x == nil {
			return nil
		}
		n := len(x) / len(h.temperatures)
		return x[i*n : (i+1)*n]
	}
	return row{of(h.logits), nil, of(h.sums), of(h.maxima), h.logSumExp[i], h.temperatures[i], h.vocabulary}
}
