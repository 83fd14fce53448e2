package batch

import (
	"cmp"
	"math"
	"slices"

	"github.com/posttrain/posttrain/data"
)

// Part is the share of a batch that one run of a program takes.
type Part struct {
	Members []int // its groups, as indices into those that were split, in the order of the packed answers
	*Packed
}

// Fit completes a layout for groups like these: with the shortest row that is worth a compiled shape of its own (most
// of the groups fit into it; shorter ones share it, as far as a part may hold several), with the share of predicted
// tokens, and with l.Few shapes at most where that is not 0.
func (l Layout) Fit(groups []Group) Layout {
	if l.Tokens == 0 || len(groups) == 0 {
		return l
	}
	lens := make([]int, len(groups))
	for i, g := range groups {
		lens[i] = g.longest(l.Share)
	}
	slices.Sort(lens)
	most := min(0.9, 0.2*float64(max(1, l.Pad)))
	l.Shortest = min(roundUp(lens[int(most*float64(len(lens)-1))], tile), l.Tokens)
	mean, deviation := l.slotShare(groups)
	l.Slots = min(16, int(math.Ceil(16*(mean+0.75*deviation))))
	if l.Few > 0 {
		l.Shapes = l.fewShapes(groups)
	}
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

// Split lays groups out in parts of about l.Tokens tokens each, in few different shapes and with little padding: long
// groups first, each in the first part with room, shorter ones into what is left of the rows. A part holds l.Pad groups
// at most. Where l.Tokens is 0, parts are l.Pad groups each, as they stand.
//
// The parts of a batch have the gradient of the whole: it is the sum of theirs. They come in the order of their
// shapes, the longest rows first, so that a program is used for all its parts before the next. The result depends on
// the groups and the layout alone.
func Split(groups []Group, l Layout) []Part {
	if l.Pad == 0 {
		l.Pad = len(groups)
	}
	if l.Tokens == 0 {
		return inOrder(groups, l)
	}
	var drafts []*draft
	if l.Shapes != nil {
		drafts = inShapes(groups, l)
	} else {
		drafts = firstFit(groups, l)
	}
	parts := make([]Part, len(drafts))
	for i, d := range drafts {
		parts[i] = d.part(groups, l)
	}
	slices.SortStableFunc(parts, func(a, b Part) int {
		return cmp.Or(cmp.Compare(b.Len, a.Len), cmp.Compare(b.Rows, a.Rows), cmp.Compare(b.Slots, a.Slots))
	})
	return parts
}

// together is how many groups at a time are divided among parts of few shapes.
const together = 512

// inShapes divides groups among parts of the layout's shapes.
func inShapes(groups []Group, l Layout) (drafts []*draft) {
	for from := 0; from < len(groups); from += together {
		some := l.packer(groups[from:min(from+together, len(groups))]).drafts(l.Shapes)
		for _, d := range some {
			for k := range d.members {
				d.members[k] += from
			}
		}
		drafts = append(drafts, some...)
	}
	return drafts
}

// firstFit divides groups among parts of any shape, each into the first with room.
func firstFit(groups []Group, l Layout) (drafts []*draft) {
	var open []*draft
	for _, i := range byLength(len(groups), func(i int) int { return groups[i].longest(l.Share) }) {
		k := slices.IndexFunc(open, func(d *draft) bool { return d.add(i, groups[i], l.Share) })
		if k < 0 {
			d := newDraft(groups[i], l)
			d.add(i, groups[i], l.Share)
			drafts, open = append(drafts, d), append(open, d)
			k = len(open) - 1
		}
		if len(open[k].members) == l.Pad {
			open = slices.Delete(open, k, k+1)
		}
	}
	return drafts
}

// inOrder makes parts of l.Pad groups each.
func inOrder(groups []Group, l Layout) (parts []Part) {
	for members := range slices.Chunk(upTo(len(groups)), max(1, l.Pad)) {
		parts = append(parts, Part{Members: members, Packed: Pack(data.Pick(groups, members), l)})
	}
	return parts
}

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

// draft is a part that is being filled.
type draft struct {
	plan
	most    int // rows
	members []int
	shape   *Shape // nil: any
}

// newDraft has rows for a group as the first and longest: as many as make up l.Tokens, at least those of the group,
// and not more than l.Pad groups can need. Both the length of rows, in units of the shortest, and their number are
// powers of two, times the blocks: shapes are few, and equal groups fill parts of equal shape.
func newDraft(g Group, l Layout) *draft {
	units := g.units(l.Share)
	longest := slices.Max(units)
	d := &draft{plan: plan{len: l.Shortest, blocks: l.blocks()}}
	if d.len == 0 {
		d.len = roundUp(longest, tile)
	}
	for d.len < longest {
		d.len *= 2
	}
	for d.most = d.blocks; 2*d.most*d.len <= l.Tokens; {
		d.most *= 2
	}
	d.most = roundUp(max(len(l.planOf(g, d.len).used), min(d.most, l.Pad*len(units))), d.blocks)
	return d
}

// add places all stretches of group i, or none where the rows have no room for them.
func (d *draft) add(i int, g Group, share bool) bool {
	used, held, units := slices.Clone(d.used), slices.Clone(d.held), len(d.row)
	d.plan.add(g, share)
	if len(d.used) > d.most || slices.Max(d.used) > d.len || d.shape != nil && !d.fits(*d.shape) {
		d.used, d.held, d.row = used, held, d.row[:units]
		return false
	}
	d.members = append(d.members, i)
	return true
}

// room is how many tokens the emptiest row can take.
func (d *draft) room() int {
	if len(d.used) < d.most {
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

// part packs what the draft holds.
func (d *draft) part(groups []Group, l Layout) Part {
	d.round(l)
	members, answers := make([]Group, len(d.members)), 0
	for k, i := range d.members {
		members[k], answers = groups[i], max(answers, len(groups[i].Answers))
	}
	d.answers = answers * l.Pad
	return Part{Members: d.members, Packed: write(&d.plan, members, l)}
}

// round makes the draft's shape one of few: the one that it has, or one with half of the rows, or a quarter, where they
// suffice, and the usual share of slots.
func (d *draft) round(l Layout) {
	if d.shape != nil {
		d.rows, d.slots = d.shape.Rows, d.shape.Slots
		return
	}
	d.rows = d.most
	half := func() int { return roundUp((d.rows+1)/2, d.blocks) }
	for half() < d.rows && len(d.used) <= half() {
		d.rows = half()
	}
	all := d.rows / d.blocks * d.len
	if few := all * l.Slots / 16; d.fullest(d.rows) <= few {
		all = few
	}
	d.slots = all * d.blocks
}
