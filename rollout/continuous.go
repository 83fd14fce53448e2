package rollout

import (
	"context"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/model"
)

// Arrival is a request that joins others under way.
type Arrival struct {
	Request
	Left <-chan struct{} // closed when nobody waits for the answer any more; nil: never
}

// Bounds of SampleContinuously.
const (
	joinTokens = 1024 // of the prompts that are read between two steps, so that running answers go on
	calmSteps  = 8    // that a smaller layout must suffice for before the rows move: others may join
)

// SampleContinuously answers requests as they arrive (continuous batching). Between two steps it asks next for at most
// n requests, reads their prompts and answers them in free rows of the step, of which there are as many as
// Options.Slots and the rows allow; nothing waits for the answers under way. It returns when it has no request left and
// next gives none, and with an error at a request that no sampler accepts. Tokens go to OnToken; they are the tokens of
// [Cached.Sample].
//
// If the answers outgrow the memory of the cache, the youngest ones give up their rows. They go on, from all tokens
// that they have, when others have ended.
func (s *Cached) SampleContinuously(ctx context.Context, rows int, next func(n int) []Arrival) (err error) {
	defer func() { err = adviseMemory(err) }()
	weights, free, err := s.compact(s.weights())
	if err != nil {
		return err
	}
	defer free()
	w := &runningBatch{Cached: s, planner: s.planner(), live: weights, arrivals: &arrivals{next: next}}
	w.planner.slots, w.planner.continuous = min(w.planner.slots, rows), true
	return w.run(ctx)
}

// CheckRoom refuses a request for which the cache of [Cached.SampleContinuously] cannot hold one row to the end of its
// answer. That itself does not look: its first request always gets a row.
func (s *Cached) CheckRoom(r Request) error {
	p := s.planner()
	p.continuous = true
	return p.check(r)
}

// arrivals is where a batch's requests come from.
type arrivals struct {
	next    func(n int) []Arrival
	arrived int // requests so far
	budget  int // tokens of prompts that may still be read before the next step
	calm    int // steps for which a smaller layout would have sufficed
}

// admit returns the waiting requests that join now.
func (w *runningBatch) admit() ([]*sequence, error) {
	w.waiting = slices.DeleteFunc(w.waiting, (*sequence).isOver)
	for _, a := range w.arrivals.next(w.planner.slots - len(w.sequences) - len(w.waiting)) {
		if err := a.check(w.config, w.options.Decoder); err != nil {
			return nil, fmt.Errorf("request %d: %w", w.arrivals.arrived, err)
		}
		w.wait(newAnswer(a.Request, w.arrivals.arrived, w.config, w.options.Decoder, &Completion{}), a.Left)
		w.arrivals.arrived++
	}
	w.waiting = slices.DeleteFunc(w.waiting, (*sequence).isOver)
	n, tokens, read := 0, 0, 0
	for ; n < len(w.waiting); n++ {
		tokens += len(w.waiting[n].tokens)
		first := n == 0 && w.arrivals.budget == joinTokens // of any length
		if tokens > w.arrivals.budget && !first || n+len(w.sequences) > 0 && !w.holds(n+1) {
			break
		}
		read = tokens
	}
	w.arrivals.budget -= read
	return w.waiting[:n], nil
}

// joinAll lets requests join until none waits that may, since more arrive while prompts are read.
func (w *runningBatch) joinAll(ctx context.Context) (joined bool, err error) {
	w.arrivals.budget = joinTokens
	for {
		more, err := w.join(ctx)
		if !more || err != nil {
			return joined, err
		}
		joined = true
		w.removeFinished()
	}
}

// holds says whether the cache's memory suffices for the first n waiting requests too.
func (w *runningBatch) holds(n int) bool {
	return w.planner.fits(w.planner.plan(slices.Concat(w.sequences, w.waiting[:n]), false))
}

// roomFor returns a layout with room for those that wait, too, so that the rows move once: or l if they do not fit.
func (w *runningBatch) roomFor(l layout) layout {
	if !w.holds(len(w.waiting)) {
		return l
	}
	l = w.planner.plan(slices.Concat(w.sequences, w.waiting), false)
	l.place(w.sequences)
	return l
}

// evict takes rows from the youngest answers until the others fit the memory, and returns their layout.
func (w *runningBatch) evict(l layout) layout {
	for len(w.sequences) > 1 && !w.planner.fits(l) {
		last := len(w.sequences) - 1
		youngest := w.sequences[last]
		w.trace("evict")
		youngest.read, w.layout.sequences[youngest.row] = false, nil
		w.sequences, w.waiting = w.sequences[:last], slices.Insert(w.waiting, 0, youngest)
		l = w.planner.plan(w.sequences, false)
	}
	return l
}

// isCalm says whether a smaller layout has sufficed for a while.
func (f *arrivals) isCalm(now, next model.StepShape) bool {
	fewer := next.Rows() < now.Rows() && now.Rows() > fewRows
	shorter := 2*(next.Prefix+next.Suffix) <= now.Prefix+now.Suffix
	if f.calm++; !fewer && !shorter || f.calm > calmSteps {
		f.calm = 0
		return fewer || shorter
	}
	return false
}
