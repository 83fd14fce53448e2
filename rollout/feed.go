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
	joinMost   = 16   // prompts of a prefill
	calmSteps  = 8    // that a smaller layout must suffice for before the rows move: others may join
)

// Feed answers requests as they arrive. Between two steps it asks next for at most n requests, reads their prompts and
// answers them in free rows of the step, of which there are as many as Options.Slots and the rows allow; nothing waits
// for the answers under way. Feed returns when it has no request left and next gives none, and with an error at a
// request that no sampler accepts. Tokens go to OnToken; they are those of [Cached.Sample].
//
// If the answers outgrow the memory of the cache, the youngest ones give up their rows. They go on, from all tokens
// that they have, when others have ended.
func (s *Cached) Feed(ctx context.Context, rows int, next func(n int) []Arrival) (err error) {
	defer func() { err = adviseMemory(err) }()
	weights, free, err := s.compact(s.weights())
	if err != nil {
		return err
	}
	defer free()
	w := &wave{Cached: s, planner: s.planner(), live: weights, feed: &feed{next: next}}
	w.planner.slots, w.planner.fed = min(w.planner.slots, rows), true
	return w.run(ctx)
}

// CheckRoom refuses a request for which the cache of a Feed cannot hold one row to the end of its answer. A Feed itself
// does not look: its first request always gets a row.
func (s *Cached) CheckRoom(r Request) error {
	p := s.planner()
	p.fed = true
	return p.check(r)
}

// feed is where a wave's requests come from.
type feed struct {
	next    func(n int) []Arrival
	arrived int // requests so far
	budget  int // tokens of prompts that may still be read before the next step
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
	n, tokens, read := 0, 0, 0
	for ; n < len(w.waiting); n++ {
		if tokens += len(w.waiting[n].tokens); n > 0 {
			tokens -= commonLen(w.waiting[n].tokens, w.waiting[n-1].tokens)
		}
		first := n == 0 && w.feed.budget == joinTokens // of any length
		if tokens > w.feed.budget && !first || n+len(w.seats) > 0 && !w.holds(n+1) {
			break
		}
		read = tokens
	}
	w.feed.budget -= read
	return w.waiting[:n], nil
}

// joinAll lets requests join until none waits that may, since more arrive while prompts are read.
func (w *wave) joinAll(ctx context.Context) (joined bool, err error) {
	w.feed.budget = joinTokens
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
		w.trace("evict")
		youngest.read, w.layout.seats[youngest.row] = false, nil
		w.seats, w.waiting = w.seats[:last], slices.Insert(w.waiting, 0, youngest)
		l = w.planner.plan(w.seats, false)
	}
	return l
}

// packs says whether prompts of several requests lie in one row of a prefill.
func (w *wave) packs() bool { return w.feed != nil && !w.planner.inGraph }

// packedChunks splits the prompts, in their order, into prefills of one row. What the prompts of a row begin with, such
// as the chat template's, is read once.
func (w *wave) packedChunks() (out []chunk) {
	for at := 0; at < len(w.prompts); {
		if w.isLong(at) {
			at++
			continue
		}
		common, tokens, n := w.fitRow(at)
		shape := model.PrefillShape{Prompts: headsOf(n), Tokens: rowLength(tokens), Packed: true}
		c := chunk{common: common, shape: shape}
		for end := common; len(c.prompts) < n; at++ {
			c.prompts, c.starts = append(c.prompts, at), append(c.starts, end)
			end += len(w.prompts[at]) - common
		}
		out = append(out, c)
	}
	return out
}

// fitRow returns how many of the prompts from one on a row holds, what they have in common, and all of its tokens.
func (w *wave) fitRow(from int) (common, tokens, n int) {
	prompts := w.prompts[from:]
	common, sum := len(prompts[0])-1, 0
	for i, p := range prompts[:min(len(prompts), joinMost)] {
		// the last token is a prompt's own: it predicts the next
		shared := min(common, len(p)-1, commonLen(p, prompts[0]))
		now := sum + len(p) - n*shared
		if n > 0 && (now > joinChunk || w.isLong(from+i)) {
			break
		}
		sum, n, common, tokens = sum+len(p), n+1, shared, now
	}
	return common, tokens, n
}

// commonLen is the number of tokens that two texts begin with.
func commonLen(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// headsOf is the compiled number of prompts of a row.
func headsOf(n int) int {
	switch {
	case n == 1:
		return 1
	case n <= 4:
		return 4
	}
	return joinMost
}

// rowLength is the compiled length of a row: few short ones, since each is a program.
func rowLength(tokens int) int {
	if tokens > joinChunk {
		return lengthOf(tokens)
	}
	return max(32, powerOf(tokens))
}

// isCalm says whether a smaller layout has sufficed for a while.
func (f *feed) isCalm(now, next model.StepShape) bool {
	fewer := next.Rows() < now.Rows() && now.Rows() > fewRows
	shorter := 2*(next.Prefix+next.Suffix) <= now.Prefix+now.Suffix
	if f.calm++; !fewer && !shorter || f.calm > calmSteps {
		f.calm = 0
		return fewer || shorter
	}
	return false
}
