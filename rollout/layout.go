package rollout

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/posttrain/posttrain/model"
)

// Shapes that steps are compiled for. They are few: each compiled step keeps memory and, on onnx, threads that spin
// for a while after a run, so changing between two steps costs more than padding.
var (
	stepRows    = []int{1, 4, 16, 32, 64, 128}
	stepSamples = []int{16, 8, 4} // of a shared prompt
	stepLengths = []int{32, 64, 96, 128, 192, 256, 384, 512, 768}
)

const (
	defaultSlots = 128
	deviceSlots  = 512  // on engines with memory of their own
	headroom     = 48   // least number of tokens that a new cache has room for
	sharedPrompt = 32   // least length of a prompt that gets its own part in the attention
	deviceTokens = 8192 // of a prefill on an engine with memory of its own that wants no number
	deviceMost   = 16   // prompts of it
	ringStart    = 256  // slots of a ring at first; then four times as many, until it is long enough
)

// lengthOf returns the least compiled length of n tokens or more. Beyond the table, lengths grow by a third or a half.
func lengthOf(n int) int {
	if i, _ := slices.BinarySearch(stepLengths, n); i < len(stepLengths) {
		return stepLengths[i]
	}
	for power := 1024; ; power *= 2 {
		if n <= power {
			return power
		} else if n <= power/2*3 {
			return power / 2 * 3
		}
	}
}

// powerOf returns the least power of two that is n or more.
func powerOf(n int) int { return 1 << bits.Len(uint(max(1, n)-1)) }

// powerUpTo returns the greatest power of two that is n or less, at least 1.
func powerUpTo(n int) int { return powerOf(n/2 + 1) }

// planner makes layouts.
type planner struct {
	slots      int  // most rows
	inGraph    bool // the cache stays in the engine
	continuous bool // requests join: few lengths, since each is a program
	positions  int  // of the model
	slotBytes  int  // of the cache, per row and token
	most       int  // bytes of the cache

	// of a call whose cache stays in the engine; 0: unknown
	prompt int // tokens of the longest prompt
	after  int // most tokens after a prompt
}

// rowsOf returns the least compiled number of rows that holds n.
func (p planner) rowsOf(n int) int {
	for _, rows := range p.rowCounts() {
		if rows >= n {
			return rows
		}
	}
	return p.slots
}

// rowCounts returns the numbers of rows that steps are compiled for.
func (p planner) rowCounts() []int {
	var out []int
	for _, rows := range stepRows {
		if rows < p.slots {
			out = append(out, rows)
		}
	}
	for rows := 2 * stepRows[len(stepRows)-1]; rows < p.slots; rows *= 2 {
		out = append(out, rows)
	}
	return append(out, p.slots)
}

// fit returns how many of the requests make a batch: as many as there are slots and memory for.
func (p planner) fit(requests []Request) int {
	length := 0
	for n, r := range requests {
		length = max(length, p.lengthOf(r))
		if n == p.slots || n > 0 && p.rowsOf(n+1)*length*p.slotBytes > p.most {
			return n
		}
	}
	return len(requests)
}

// lengthOf is the number of slots of a row that answers a request alone.
func (p planner) lengthOf(r Request) int {
	round := lengthOf
	if p.continuous {
		round = func(n int) int { return max(2*sharedPrompt, powerOf(lengthOf(n))) }
	}
	if p.inGraph {
		return round(len(r.Prompt)) + round(p.afterOf(r))
	}
	return round(len(r.Prompt) + p.afterOf(r))
}

// afterOf is the most tokens after a request's prompt.
func (p planner) afterOf(r Request) int {
	return min(max(r.MaxNew, r.about), p.positions-len(r.Prompt))
}

func (p planner) check(r Request) error {
	need := p.lengthOf(r) * p.slotBytes
	if need <= p.most {
		return nil
	}
	return fmt.Errorf("cache_gb: %.3g: want %.3f or more for a completion of %d tokens after a prompt of %d, or a "+
		"smaller max_new_tokens", float64(p.most)/1e9, math.Ceil(float64(need)/1e6)/1e3, p.afterOf(r), len(r.Prompt))
}

// forAll is the planner of a call whose cache stays in the engine: one batch of as many rows as the memory has room
// for.
func (p planner) forAll(requests []Request) planner {
	for _, r := range requests {
		p.prompt, p.after = max(p.prompt, len(r.Prompt)), max(p.after, p.afterOf(r))
	}
	row := (lengthOf(p.prompt) + lengthOf(p.after)) * p.slotBytes
	rows := 1
	for _, n := range p.rowCounts() {
		if n*row <= p.most {
			rows = n
		}
	}
	p.slots = min(p.rowsOf(len(requests)), rows)
	return p
}

// sequence is an answer and its row in a layout.
type sequence struct {
	*answer
	prompt int  // index of the batch's
	row    int  // in the layout
	read   bool // its keys and values are in the row
	prefix int  // tokens that were read when it joined

	left <-chan struct{} // closed: nobody waits for the answer; may be nil
}

// isOver says whether the sequence is to be vacated.
func (s *sequence) isOver() bool {
	select {
	case <-s.left:
		return true
	default:
		return s.isFinished()
	}
}

// cachedTokens is the number of the text's tokens in the cache after the prefill: all but the last one drawn.
func (s *sequence) cachedTokens() int { return len(s.tokens) - 1 }

// prefixLen is the number of tokens that a prefill has read, or will.
func (s *sequence) prefixLen() int {
	if s.read {
		return s.prefix
	}
	return len(s.tokens)
}

// suffix is the number of cached tokens after the prompt.
func (s *sequence) suffix() int { return s.cachedTokens() - len(s.request.Prompt) }

// layout says where the rows of a batch are.
type layout struct {
	shape     model.StepShape
	sequences []*sequence // [rows], nil: vacant
}

// ownSlots is the number of slots of its own part that a row fills before the next step.
func (l layout) ownSlots(s *sequence) int {
	switch {
	case l.shape.InGraph:
		return max(0, s.cachedTokens()-s.prefixLen())
	case l.shape.Prefix > 0:
		return s.suffix()
	}
	return s.cachedTokens()
}

// hasRoom says whether every row has a slot for the token of the next step.
func (l layout) hasRoom() bool {
	return !slices.ContainsFunc(l.sequences, func(s *sequence) bool { return s != nil && l.ownSlots(s) >= l.shape.Suffix })
}

// plan arranges rows. share says whether prompts may have parts of their own: rows that have left such a layout cannot
// return to one.
func (p planner) plan(sequences []*sequence, share bool) layout {
	l := layout{shape: model.StepShape{Prompts: p.rowsOf(len(sequences)), Samples: 1, InGraph: p.inGraph}}
	if share {
		l.shape = p.sharedShape(sequences, l.shape)
	}
	if l.shape.Samples > 1 || p.inGraph {
		l.shape.Prefix = lengthOf(p.prompt)
		for _, s := range sequences {
			l.shape.Prefix = max(l.shape.Prefix, lengthOf(s.prefixLen()))
		}
	}
	l.shape.Suffix = suffixOf(l, sequences)
	switch {
	case p.continuous:
		l.shape.Suffix = max(2*sharedPrompt, powerOf(l.shape.Suffix))
	case p.inGraph:
		l.shape.Suffix = p.ringOf(l, sequences)
	}
	if p.continuous && p.inGraph {
		l.shape.Prefix = powerOf(l.shape.Prefix)
	}
	l.place(sequences)
	return l
}

// ringOf returns the slots of a ring: few at first, since every token reads them all, then four times as many, so that
// a call has few programs. Fewer rows than at first have all at once.
func (p planner) ringOf(l layout, sequences []*sequence) int {
	now, last := 0, lengthOf(p.after)
	for _, s := range sequences {
		now = max(now, l.ownSlots(s))
	}
	n := ringStart
	for n <= now {
		n *= 4
	}
	if l.shape.Rows() < p.slots {
		return last
	}
	return min(n, last)
}

// fits says whether a layout's cache is within the bound.
func (p planner) fits(l layout) bool { return p.bytesOf(l.shape) <= p.most }

func (p planner) bytesOf(s model.StepShape) int {
	return (s.Prompts*s.Prefix + s.Rows()*s.Suffix) * p.slotBytes
}

// admits returns how many of the waiting requests take rows now. A prefill between two steps is worthwhile for an
// eighth of the rows, or for the last requests.
func (p planner) admits(sequences, waiting int) int {
	if !p.inGraph {
		return waiting
	}
	free := p.slots - sequences
	if sequences > 0 && free < waiting && 8*free < p.slots {
		return 0
	}
	return min(free, waiting)
}

// isWorthMoving says whether the rows of a layout should move to one with fewer.
func (p planner) isWorthMoving(from, to model.StepShape) bool {
	if p.inGraph { // each number of rows is a program, and few more rows cost little
		return 8*to.Rows() <= from.Rows()
	}
	return to.Rows() < from.Rows() && from.Rows() > fewRows
}

// hold gives sequences vacant rows, if there are enough and their texts fit.
func (l layout) hold(joining []*sequence) bool {
	var vacant []int
	for row, s := range l.sequences {
		if s == nil {
			vacant = append(vacant, row)
		}
	}
	long := func(s *sequence) bool {
		if l.shape.InGraph {
			return len(s.tokens) > l.shape.Prefix
		}
		return len(s.tokens) >= l.shape.Suffix
	}
	if len(vacant) < len(joining) || slices.ContainsFunc(joining, long) {
		return false
	}
	for i, s := range joining {
		s.row = vacant[i]
		l.sequences[s.row] = s
	}
	return true
}

// sharesPrompts says whether a layout with separate parts for the prompts is worthwhile.
func (p planner) sharesPrompts(sequences []*sequence) bool {
	longest := 0
	for _, s := range sequences {
		longest = max(longest, len(s.request.Prompt))
	}
	return longest >= sharedPrompt
}

// sharedShape returns the shape with several samples per prompt that has the fewest rows, or plain if that has fewer.
func (p planner) sharedShape(sequences []*sequence, plain model.StepShape) model.StepShape {
	best := plain
	for _, samples := range stepSamples {
		prompts := 0
		for _, n := range groupSizes(sequences) {
			prompts += (n + samples - 1) / samples
		}
		shape := plain
		shape.Prompts, shape.Samples = p.promptsOf(prompts, samples), samples
		fewer, equal := shape.Rows() < best.Rows(), shape.Rows() == best.Rows()
		if shape.Prompts > 0 && (fewer || equal && best.Samples == 1) {
			best = shape
		}
	}
	return best
}

// promptsOf returns the least number of prompts, n or more, that makes a compiled number of rows, or 0.
func (p planner) promptsOf(n, samples int) int {
	for _, rows := range p.rowCounts() {
		if rows%samples == 0 && rows/samples >= n {
			return rows / samples
		}
	}
	return 0
}

// groupSizes counts the rows of each prompt, in order.
func groupSizes(sequences []*sequence) (sizes []int) {
	for i, s := range sequences {
		if i == 0 || s.prompt != sequences[i-1].prompt {
			sizes = append(sizes, 0)
		}
		sizes[len(sizes)-1]++
	}
	return sizes
}

// suffixOf returns the number of slots of the rows' own parts: enough for a while, or to the end if that is not much
// more.
func suffixOf(l layout, sequences []*sequence) int {
	now, end := 0, 0
	for _, s := range sequences {
		now, end = max(now, l.ownSlots(s)), max(end, l.ownSlots(s)+s.most-len(s.tokens))
	}
	last := lengthOf(end)
	if soon := lengthOf(now + headroom); 2*soon < last {
		return soon
	}
	return last
}

// place gives every row its place. Samples of a prompt are neighbours; a prompt with more samples than one place holds
// takes several.
func (l *layout) place(sequences []*sequence) {
	l.sequences = make([]*sequence, l.shape.Rows())
	samples, at := l.shape.Samples, 0
	for i, s := range sequences {
		if i > 0 && s.prompt != sequences[i-1].prompt {
			at = (at + samples - 1) / samples * samples
		}
		l.sequences[at] = s
		at++
	}
}
