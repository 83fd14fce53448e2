package batch

import (
	"cmp"
	"math"
	"slices"

	"github.com/posttrain/posttrain/data"
)

// Microbatch is what goes through the model in one run of a program.
type Microbatch struct {
	Members []int // its groups, as indices into those that were split, in the order of the packed answers
	*Packed
}

// Fit completes a layout for groups like these: with the share of predicted tokens and the shapes of microbatches.
func (l Layout) Fit(groups []Group) Layout {
	if l.Tokens == 0 || len(groups) == 0 {
		return l
	}
	mean, deviation := l.slotShare(groups)
	l.Slots = min(16, int(math.Ceil(16*(mean+0.75*deviation))))
	l.Shapes = l.fewShapes(groups)
	return l
}

// tile is the number of tokens that row lengths are multiples of where no table has them: matrix products like it.
const tile = 32

// slotShare is the share of the groups' tokens that have a slot, and its deviation between groups, weighted by tokens.
func (l Layout) slotShare(groups []Group) (mean, deviation float64) {
	tokens, slots, squares := 0.0, 0.0, 0.0
	for _, g := range groups {
		n, s := 0.0, float64(g.AnswerTokens())
		for _, u := range g.units(l.Share) {
			n += float64(u)
		}
		tokens, slots, squares = tokens+n, slots+s, squares+s*s/max(1, n)
	}
	mean = slots / max(1, tokens)
	return mean, math.Sqrt(max(0, squares/max(1, tokens)-mean*mean))
}

// Split lays groups out in microbatches of the layout's shapes with little padding. Each has the longest group that is
// left, others that fit in, and l.Pad groups at most. Where l.Tokens is 0, microbatches are l.Pad groups each, as they
// stand.
//
// The microbatches of a batch have the gradient of the whole: it is the sum of theirs. They come in the order of their
// shapes, the longest rows first, so that a program is used for all of its own before the next. The result depends on
// the groups and the layout alone.
func Split(groups []Group, l Layout) (microbatches []Microbatch) {
	if l.Pad == 0 {
		l.Pad = len(groups)
	}
	if l.Tokens == 0 {
		for members := range slices.Chunk(upTo(len(groups)), max(1, l.Pad)) {
			packed := Pack(data.Pick(groups, members), l)
			microbatches = append(microbatches, Microbatch{Members: members, Packed: packed})
		}
		return microbatches
	}
	for from := 0; from < len(groups); from += together {
		some := groups[from:min(from+together, len(groups))]
		for _, d := range l.packer(some).drafts(l.Shapes) {
			p := d.pack(some, l)
			for k := range p.Members {
				p.Members[k] += from
			}
			microbatches = append(microbatches, p)
		}
	}
	slices.SortStableFunc(microbatches, func(a, b Microbatch) int {
		return cmp.Or(cmp.Compare(b.Len, a.Len), cmp.Compare(b.Rows, a.Rows), cmp.Compare(b.Slots, a.Slots))
	})
	return microbatches
}

// together is how many groups at a time are divided among microbatches.
const together = 512

func upTo(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// byLength orders n things by their length, the longest first, equal ones as they are.
func byLength(n int, length func(i int) int) []int {
	order, lens := upTo(n), make([]int, n)
	for i := range lens {
		lens[i] = length(i)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(lens[b], lens[a]) })
	return order
}

// draft is a microbatch that is being filled.
type draft struct {
	plan
	shape   Shape
	members []int
}

// add places all stretches of group i, or none where the rows have no room for them.
func (d *draft) add(i int, g Group, share bool) bool {
	used, held, units := slices.Clone(d.used), slices.Clone(d.held), len(d.row)
	d.plan.add(g, share)
	if slices.Max(d.used) > d.len || !d.fits(d.shape) {
		d.used, d.held, d.row = used, held, d.row[:units]
		return false
	}
	d.members = append(d.members, i)
	return true
}

// room is how many tokens the emptiest row can take.
func (d *draft) room() int {
	if len(d.used) < d.shape.Rows {
		return d.len
	}
	return d.len - slices.Min(d.used)
}

// tokens is how many the draft holds.
func (d *draft) tokens() (sum int) {
	for _, n := range d.used {
		sum += n
	}
	return sum
}

// pack lays out what the draft holds.
func (d *draft) pack(groups []Group, l Layout) Microbatch {
	members, answers := data.Pick(groups, d.members), 0
	for _, g := range members {
		answers = max(answers, len(g.Answers))
	}
	d.rows, d.slots, d.answers = d.shape.Rows, d.shape.Slots, answers*l.Pad
	return Microbatch{Members: d.members, Packed: write(&d.plan, members, l)}
}
