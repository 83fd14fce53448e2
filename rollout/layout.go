package rollout

import (
	"cmp"
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
	defaultSlots  = 128
	headroom      = 48      // least number of tokens that a new cache has room for
	sharedPrompt  = 32      // least length of a prompt that gets its own part in the attention
	cacheBytes    = 1 << 30 // bounds the cache of a wave
	inGraphTokens = 1 << 16 // bounds the prompts of a wave if they are read at once
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
	slots     int  // most rows
	noSharing bool // every request reads its own prompt
	inGraph   bool // the cache stays in the engine
	fed       bool // requests join: few lengths, since each is a program
	positions int  // of the model
	slotBytes int  // of the cache, per row and token
	most      int  // bytes of a wave's cache; 0: cacheBytes
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

// fit returns how many of the requests make a wave: as many as there are slots and memory for.
func (p planner) fit(requests []Request) int {
	length, prompt := 0, 0
	for n, r := range requests {
		length, prompt = max(length, min(len(r.Prompt)+r.MaxNew, p.positions)), max(prompt, len(r.Prompt))
		big := p.rowsOf(n+1)*lengthOf(length)*p.slotBytes > p.mostBytes() ||
			p.inGraph && powerOf(n+1)*lengthOf(prompt) > inGraphTokens
		if n == p.slots || n > 0 && big {
			return n
		}
	}
	return len(requests)
}

// seat is an answer and its row in a layout.
type seat struct {
	*answer
	prompt int  // index of the wave's
	row    int  // in the layout
	read   bool // its keys and values are in the row

	left <-chan struct{} // closed: nobody waits for the answer; may be nil
}

// isOver says whether the seat is to be vacated.
func (s *seat) isOver() bool {
	select {
	case <-s.left:
		return true
	default:
		return s.isFinished()
	}
}

// cachedTokens is the number of the text's tokens in the cache after the prefill: all but the last one drawn.
func (s *seat) cachedTokens() int { return len(s.tokens) - 1 }

// suffix is the number of cached tokens after the prompt.
func (s *seat) suffix() int { return s.cachedTokens() - len(s.request.Prompt) }

// layout says where the rows of a wave are.
type layout struct {
	shape model.StepShape
	seats []*seat // [Rows], nil: vacant
}

// ownSlots is the number of slots of its own part that a row fills before the next step.
func (l layout) ownSlots(s *seat) int {
	if l.shape.Prefix > 0 {
		return s.suffix()
	}
	return s.cachedTokens()
}

// hasRoom says whether every row has a slot for the token of the next step.
func (l layout) hasRoom() bool {
	return !slices.ContainsFunc(l.seats, func(s *seat) bool { return s != nil && l.ownSlots(s) >= l.shape.Suffix })
}

// plan arranges rows. share says whether prompts may have parts of their own: rows that have left such a layout cannot
// return to one.
func (p planner) plan(seats []*seat, share bool) layout {
	l := layout{shape: model.StepShape{Prompts: p.rowsOf(len(seats)), Samples: 1, InGraph: p.inGraph}}
	if share {
		l.shape = p.sharedShape(seats, l.shape)
	}
	if l.shape.Samples > 1 {
		for _, s := range seats {
			l.shape.Prefix = max(l.shape.Prefix, lengthOf(len(s.request.Prompt)))
		}
	}
	l.shape.Suffix = suffixOf(l, seats)
	if p.fed {
		l.shape.Suffix = max(2*sharedPrompt, powerOf(l.shape.Suffix))
	}
	l.place(seats)
	return l
}

// fits says whether a layout's cache is within the bound.
func (p planner) fits(l layout) bool {
	return l.shape.Rows()*l.shape.Suffix*p.slotBytes <= p.mostBytes()
}

func (p planner) mostBytes() int { return cmp.Or(p.most, cacheBytes) }

// hold gives seats vacant rows, if there are enough and their texts fit.
func (l layout) hold(joining []*seat) bool {
	var vacant []int
	for row, s := range l.seats {
		if s == nil {
			vacant = append(vacant, row)
		}
	}
	long := func(s *seat) bool { return len(s.tokens) >= l.shape.Suffix }
	if len(vacant) < len(joining) || slices.ContainsFunc(joining, long) {
		return false
	}
	for i, s := range joining {
		s.row = vacant[i]
		l.seats[s.row] = s
	}
	return true
}

// sharesPrompts says whether a layout with separate parts for the prompts is worthwhile.
func (p planner) sharesPrompts(seats []*seat) bool {
	longest := 0
	for _, s := range seats {
		longest = max(longest, len(s.request.Prompt))
	}
	return !p.noSharing && !p.inGraph && longest >= sharedPrompt
}

// sharedShape returns the shape with several samples per prompt that has the fewest rows, or plain if that has fewer.
func (p planner) sharedShape(seats []*seat, plain model.StepShape) model.StepShape {
	best := plain
	for _, samples := range stepSamples {
		prompts := 0
		for _, n := range groupSizes(seats) {
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
func groupSizes(seats []*seat) (sizes []int) {
	for i, s := range seats {
		if i == 0 || s.prompt != seats[i-1].prompt {
			sizes = append(sizes, 0)
		}
		sizes[len(sizes)-1]++
	}
	return sizes
}

// suffixOf returns the number of slots of the rows' own parts: enough for a while, or to the end if that is not much
// more.
func suffixOf(l layout, seats []*seat) int {
	now, end := 0, 0
	for _, s := range seats {
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
func (l *layout) place(seats []*seat) {
	l.seats = make([]*seat, l.shape.Rows())
	samples, at := l.shape.Samples, 0
	for i, s := range seats {
		if i > 0 && s.prompt != seats[i-1].prompt {
			at = (at + samples - 1) / samples * samples
		}
		l.seats[at] = s
		at++
	}
}
