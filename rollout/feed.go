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

// Bounds of a Feed.
const (
	joinTokens = 1024 // of the prompts that are read between two steps, so that running answers go on
	joinChunk  = 256  // of a prefill: the first of many requests get their first token early
	calmSteps  = 8    // that a smaller layout must suffice for before the rows move: others may join
)

// Feed answers requests as they arrive. Between two steps it asks next for at most n requests, reads their prompts and
// answers them in free rows of the step, of which there are as many as Options.Slots and the rows allow; nothing waits
// for the answers under way. Feed returns when it has no request left and next gives none, and with an error at a
// request that no sampler accepts. Tokens go to OnToken; they are those of [Cached.Sample].
//
// If the answers outgrow the memory of the cache, the youngest ones give up their rows. They go on, from all tokens
// that they have, when others have ended.
func (s *Cached) Feed(ctx context.Context, rows int, next func(n int) []Arrival) error {
	w := &wave{Cached: s, planner: s.planner(), live: s.weights(), feed: &feed{next: next}}
	w.planner.slots, w.planner.fed = min(w.planner.slots, rows), true
	return w.run(ctx)
}

// feed is where a wave's requests come from.
type feed struct {
	next    func(n int) []Arrival
	arrived int // requests so far
	calm    int // steps for which a smaller layout would have sufficed
}

// admit returns those of the waiting requests that join now.
func (w *wave) admit() ([]*seat, error) {
	w.waiting = slices.DeleteFunc(w.waiting, (*seat).isOver)
	l := limits{w.config.VocabSize, w.config.MaxPositions, w.options.Decoder != nil}
	for _, a := range w.feed.next(w.planner.slots - len(w.seats) - len(w.waiting)) {
		if err := l.check(a.Request); err != nil {
			return nil, fmt.Errorf("request %d: %w", w.feed.arrived, err)
		}
		w.wait(newAnswer(a.Request, w.feed.arrived, w.config, w.options.Decoder, &Completion{}), a.Left)
		w.feed.arrived++
	}
	w.waiting = slices.DeleteFunc(w.waiting, (*seat).isOver)
	n, tokens := 0, 0
	for ; n < len(w.waiting); n++ {
		if s := w.waiting[n]; n == 0 || !slices.Equal(s.tokens, w.waiting[n-1].tokens) {
			tokens += w.promptLength(len(s.tokens))
		}
		if n > 0 && tokens > joinTokens || n+len(w.seats) > 0 && !w.holds(n+1) {
			break
		}
	}
	return w.waiting[:n], nil
}

// holds says whether the cache's memory suffices for the first n waiting requests too.
func (w *wave) holds(n int) bool {
	return w.planner.fits(w.planner.plan(slices.Concat(w.seats, w.waiting[:n]), false))
}

// roomFor returns a layout with room for those that wait, too, so that the rows move once: or l if they do not fit.
func (w *wave) roomFor(l layout) layout {
	if !w.holds(len(w.waiting)) {
		return l
	}
	l = w.planner.plan(slices.Concat(w.seats, w.waiting), false)
	l.place(w.seats)
	return l
}

// evict takes rows from the youngest answers until the others fit the memory, and returns their layout.
func (w *wave) evict(l layout) layout {
	for len(w.seats) > 1 && !w.planner.fits(l) {
		last := len(w.seats) - 1
		youngest := w.seats[last]
		youngest.read, w.layout.seats[youngest.row] = false, nil
		w.seats, w.waiting = w.seats[:last], slices.Insert(w.waiting, 0, youngest)
		l = w.planner.plan(w.seats, false)
	}
	return l
}

// chunkOf returns how many of n prompts of a length a prefill reads: one or as many as it should, since every number
// needs a program.
func chunkOf(n, length int) int {
	if most := min(4, powerUpTo(joinChunk/length)); n > most/2 {
		return min(n, most)
	}
	return 1
}

// isCalm says whether a smaller layout has sufficed for a while.
func (f *feed) isCalm(now, next model.StepShape) bool {
	fewer := next.Rows() < now.Rows() && now.Rows() > fewRows
	if f.calm++; !fewer && 2*next.Suffix > now.Suffix || f.calm > calmSteps {
		f.calm = 0
		return fewer || 2*next.Suffix <= now.Suffix
	}
	return false
}
