package rollout

import (
	"slices"

	"github.com/posttrain/posttrain/model"
)

// Shapes that steps are compiled for. They are few, because each compiled step keeps memory, and on onnx threads that
// spin for a while after a run: changing between two steps costs more than padding.
var (
	stepRows    = []int{1, 4, 16, 32, 64, 128}
	stepSamples = []int{16, 8, 4} // of a prompt that is shared
	stepLengths = []int{32, 64, 96, 128, 192, 256, 384, 512, 768}
)

const (
	defaultSlots = 128
	// headroom is how many tokens a cache has room for when it is made, at least.
	headroom = 48
	// sharedPrompt is the least length of a prompt that is worth a part of its own in the attention.
	sharedPrompt = 32
	// cacheBytes bounds the cache of a wave.
	cacheBytes = 1 << 30
	// inGraphTokens bounds the prompts of a wave where they are read at once.
	inGraphTokens = 1 << 16
)

// lengthOf is the least compiled length of n tokens or more: beyond the table in steps of a quarter to a half.
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

// powerOf is the least power of two that is n or more.
func powerOf(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// powerUpTo is the greatest power of two that is n or less, at least 1.
func powerUpTo(n int) int { return powerOf(n/2 + 1) }

// plan makes layouts.
type plan struct {
	slots     int  // rows at most
	noSharing bool // a prompt of its own for every request
	inGraph   bool // the cache lives in the engine
	positions int  // of the model
	slotBytes int  // of the cache, a row and token
}

// rowsOf is the least compiled number of rows that holds n.
func (p plan) rowsOf(n int) int {
	for _, rows := range p.rowCounts() {
		if rows >= n {
			return rows
		}
	}
	return p.slots
}

// rowCounts are the numbers of rows that steps are compiled for.
func (p plan) rowCounts() []int {
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

// together is how many of the requests make a wave: as many as there are slots and memory for.
func (p plan) together(requests []Request) int {
	length, prompt := 0, 0
	for n, r := range requests {
		length, prompt = max(length, min(len(r.Prompt)+r.MaxNew, p.positions)), max(prompt, len(r.Prompt))
		big := p.rowsOf(n+1)*lengthOf(length)*p.slotBytes > cacheBytes || p.inGraph && powerOf(n+1)*lengthOf(prompt) > inGraphTokens
		if n == p.slots || n > 0 && big {
			return n
		}
	}
	return len(requests)
}

// seat is a row of a layout and the answer that grows there.
type seat struct {
	*answer
	prompt int // which of the wave's
	row    int // in the layout
}

// cached is how many of the text's tokens are in the cache, once the prompt is: all but the last one drawn.
func (s *seat) cached() int { return len(s.tokens) - 1 }

// suffix is how many of them are the row's own where the prompt has a part of its own.
func (s *seat) suffix() int { return s.cached() - len(s.request.Prompt) }

// layout is where the rows of a wave stand.
type layout struct {
	shape model.StepShape
	seats []*seat // [Rows], nil: vacant
}

// own is how many slots of its own part a row fills, before the next step.
func (l layout) own(s *seat) int {
	if l.shape.Prefix > 0 {
		return s.suffix()
	}
	return s.cached()
}

// fits tells whether the next step of every row has a slot for its token.
func (l layout) fits() bool {
	return !slices.ContainsFunc(l.seats, func(s *seat) bool { return s != nil && l.own(s) >= l.shape.Suffix })
}

// layout arranges rows; shared says whether the prompts have parts of their own so far, so that they still can.
func (p plan) layout(seats []*seat, shared bool) layout {
	l := layout{shape: model.StepShape{Prompts: p.rowsOf(len(seats)), Samples: 1, InGraph: p.inGraph}}
	if shared {
		l.shape = p.shared(seats, l.shape)
	}
	if l.shape.Samples > 1 {
		for _, s := range seats {
			l.shape.Prefix = max(l.shape.Prefix, lengthOf(len(s.request.Prompt)))
		}
	}
	l.shape.Suffix = suffixOf(l, seats)
	l.place(seats)
	return l
}

// shares tells whether rows are worth a layout with prompts of their own.
func (p plan) shares(seats []*seat) bool {
	longest := 0
	for _, s := range seats {
		longest = max(longest, len(s.request.Prompt))
	}
	return !p.noSharing && !p.inGraph && longest >= sharedPrompt
}

// shared is the shape with prompts of several samples that has the fewest rows, or the plain one where that has fewer.
func (p plan) shared(seats []*seat, plain model.StepShape) model.StepShape {
	best := plain
	for _, samples := range stepSamples {
		prompts := 0
		for _, n := range groupSizes(seats) {
			prompts += (n + samples - 1) / samples
		}
		shape := plain
		shape.Prompts, shape.Samples = p.promptsOf(prompts, samples), samples
		if shape.Prompts > 0 && (shape.Rows() < best.Rows() || shape.Rows() == best.Rows() && best.Samples == 1) {
			best = shape
		}
	}
	return best
}

// promptsOf is the least number of prompts, n or more, that makes a compiled number of rows; 0: there is none.
func (p plan) promptsOf(n, samples int) int {
	for _, rows := range p.rowCounts() {
		if rows%samples == 0 && rows/samples >= n {
			return rows / samples
		}
	}
	return 0
}

// groupSizes counts the rows of every prompt, in their order.
func groupSizes(seats []*seat) (sizes []int) {
	for i, s := range seats {
		if i == 0 || s.prompt != seats[i-1].prompt {
			sizes = append(sizes, 0)
		}
		sizes[len(sizes)-1]++
	}
	return sizes
}

// suffixOf is how many slots the rows' own parts have: enough for a while, or to the end where that is not much more.
func suffixOf(l layout, seats []*seat) int {
	now, end := 0, 0
	for _, s := range seats {
		now, end = max(now, l.own(s)), max(end, l.own(s)+s.most-len(s.tokens))
	}
	last := lengthOf(end)
	if soon := lengthOf(now + headroom); 2*soon < last {
		return soon
	}
	return last
}

// place gives every row its place: samples of a prompt stand together, and a prompt that has more than fit one place
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
