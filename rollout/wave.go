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
	feed    *feed            // nil: no requests join
	waiting []*seat          // without a row
	seats   []*seat          // unfinished answers with a row, in the order of the requests
	prompts [][]int32        // of the seats that joined last; each is read once
	layout  layout
	store   store // nil before the first step
	inputs  *stepInputs
}

// wait adds a request that has no row yet.
func (w *wave) wait(a *answer, left <-chan struct{}) {
	w.waiting = append(w.waiting, &seat{answer: a, left: left})
}

// number gives every seat the index of its prompt. Neighbours with the same prompt share its prefill.
func (w *wave) number(seats []*seat) {
	w.prompts = nil
	for _, s := range seats {
		n := len(w.prompts)
		if n == 0 || w.planner.noSharing || !slices.Equal(w.prompts[n-1], s.tokens) {
			w.prompts = append(w.prompts, s.tokens)
		}
		s.prompt = len(w.prompts) - 1
	}
}

// run steps until all answers have ended, and lets requests join between steps.
func (w *wave) run(ctx context.Context) (err error) {
	defer func() {
		if w.store != nil {
			w.store.close()
		}
		w.freeInputs()
		if err != nil {
			w.pool.empty() // it may hold NaN
		}
	}()
	join := w.join
	if w.feed != nil {
		join = w.joinAll
	}
	for {
		joined, err := join(ctx)
		if err != nil {
			return err
		}
		w.removeFinished()
		switch {
		case len(w.seats) > 0:
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
func (w *wave) freeInputs() {
	if w.inputs != nil {
		w.inputs.close()
		w.inputs = nil
	}
}

func (w *wave) removeFinished() {
	w.seats = slices.DeleteFunc(w.seats, func(s *seat) bool {
		over := s.isOver() // once: a client may leave at any moment
		if over {
			w.layout.seats[s.row] = nil
		}
		return over
	})
}

// join gives waiting requests rows, reads their prompts and draws the first token of their answers.
func (w *wave) join(ctx context.Context) (joined bool, err error) {
	joining := w.waiting
	if w.feed != nil {
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

// makeRoom gives seats their rows.
func (w *wave) makeRoom(joining []*seat) error {
	w.seats = append(w.seats, joining...)
	if w.store != nil && w.layout.hold(joining) {
		return nil
	}
	next := w.planner.plan(w.seats, w.feed == nil && w.planner.sharesPrompts(w.seats))
	if w.feed != nil {
		next = w.roomFor(next)
	}
	w.freeInputs()
	if w.store != nil {
		err := w.store.move(next)
		w.use(next)
		return err
	}
	w.store = &hostStore{pool: w.pool, config: w.config}
	if w.planner.inGraph {
		w.store = &graphStore{Cached: w.Cached}
	}
	w.use(next)
	return w.store.open(next)
}

// readPrompts reads the prompts of seats that have rows.
func (w *wave) readPrompts(ctx context.Context, joining []*seat) error {
	chunks := w.chunks
	if w.packs() {
		chunks = w.packedChunks
	}
	for _, c := range chunks() {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := w.prefill(c, joining); err != nil {
			return err
		}
	}
	return nil
}

// chunk are prompts that a prefill reads together.
type chunk struct {
	prompts []int
	shape   model.PrefillShape
	common  int   // packed: tokens that all of them begin with
	starts  []int // packed: where the rest of each begins in the row
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
func (w *wave) chunks() (out []chunk) {
	order := make([]int, len(w.prompts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(w.prompts[b]), len(w.prompts[a])) })
	for len(order) > 0 {
		n := len(order)
		length := lengthOf(len(w.prompts[order[0]]))
		if tokens := w.engine.Wants.Tokens; tokens > 0 && !w.planner.inGraph {
			n = min(n, powerUpTo(tokens/length))
		}
		shape := model.PrefillShape{Prompts: powerOf(n), Tokens: length, InGraph: w.planner.inGraph}
		out, order = append(out, chunk{prompts: order[:n], shape: shape}), order[n:]
	}
	return out
}

// prefill reads some prompts and draws the first token of their answers.
func (w *wave) prefill(c chunk, joining []*seat) error {
	var seats []*seat
	for _, s := range joining {
		if slices.Contains(c.prompts, s.prompt) {
			seats = append(seats, s)
		}
	}
	out, temperatures, err := w.runPrefill(c, seats)
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(out...)
	if err := w.store.fill(out[headOutputs:], c, seats); err != nil {
		return err
	}
	for _, s := range seats {
		s.read = true
	}
	return w.extend(out, temperatures, seats, func(s *seat) int { return slices.Index(c.prompts, s.prompt) })
}

// runPrefill returns the outputs of a prefill and the temperatures of its rows' sums.
func (w *wave) runPrefill(c chunk, seats []*seat) (out []compute.Buffer, temperatures []float64, err error) {
	cache := w.prefills
	if w.feed != nil {
		cache = w.joins
	}
	p, err := w.prefillProgram(cache, c.shape, w.layout.shape.Rows())
	if err != nil {
		return nil, nil, err
	}
	in, err := w.newPrefillInputs(c.shape)
	defer in.close()
	if err != nil {
		return nil, nil, err
	}
	for i, prompt := range c.prompts {
		first := seats[slices.IndexFunc(seats, func(s *seat) bool { return s.prompt == prompt })]
		if c.shape.Packed {
			in.putPacked(i, c, w.prompts[prompt], first.request)
		} else {
			in.put(i, c.shape.Tokens, w.prompts[prompt], first.request)
		}
	}
	out, err = w.execute(p, w.live, in.all, nil, false)
	return out, in.temperatures, err
}

// rearrange moves the rows into another layout if they outgrow the present one or fit one with fewer rows.
func (w *wave) rearrange() error {
	next := w.planner.plan(w.seats, w.layout.shape.Prefix > 0)
	rows := w.layout.shape.Rows()
	fewer := !w.options.NoCompaction && next.shape.Rows() < rows && rows > fewRows
	if w.feed != nil {
		fewer = w.feed.isCalm(w.layout.shape, next.shape)
	}
	if !fewer && w.layout.hasRoom() {
		return nil
	}
	if w.feed != nil {
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
