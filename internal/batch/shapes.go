package batch

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// Shape is the shape of a microbatch; a program is compiled for each.
type Shape struct{ Rows, Len, Slots int }

// fewShapes chooses at most l.Few shapes for microbatches of groups like these. The first has room for any of them. The
// others join one by one: each time the shape that saves most of the time of a sample of batches, while it saves more
// in all batches than compiling for it takes.
func (l Layout) fewShapes(groups []Group) []Shape {
	if l.Pad == 0 { // any number of groups in a microbatch
		l.Pad = len(groups)
	}
	batches, offers := l.sample(groups), l.offers(groups)
	compile := l.Compile * min(1, float64(len(batches)*l.Pad)/float64(len(groups)))
	first, time := l.fastest(batches, l.roomForAll(groups, offers))
	l.Shapes = []Shape{first}
	for l.Few == 0 || len(l.Shapes) < l.Few {
		next, t := l.fastest(batches, offers)
		if t >= time-compile {
			break
		}
		l.Shapes, time = append(l.Shapes, next), t
	}
	slices.SortFunc(l.Shapes, func(a, b Shape) int {
		return cmp.Or(cmp.Compare(a.Len, b.Len), cmp.Compare(b.Rows, a.Rows))
	})
	return l.Shapes
}

// fastest is the shape of some that saves most time beside the layout's, and the time of batches with it.
func (l Layout) fastest(batches []*packer, shapes []Shape) (best Shape, least float64) {
	least = math.Inf(1)
	for _, s := range shapes {
		if t := l.time(batches, append(slices.Clone(l.Shapes), s)); t < least {
			best, least = s, t
		}
	}
	return best, least
}

// roomForAll are the offers of the longest rows, with rows and slots for any of the groups.
func (l Layout) roomForAll(groups []Group, offers []Shape) (shapes []Shape) {
	longest, rows, slots := offers[len(offers)-1].Len, 1, 0
	for _, g := range groups {
		rows = max(rows, roundUp(len(l.planOf(g, longest).used), l.blocks()))
	}
	for _, g := range groups {
		slots = max(slots, roundUp(l.planOf(g, longest).fullest(rows), tile)*l.blocks())
	}
	for _, s := range append(slices.Clone(offers), l.shape(rows, longest)) {
		if s.Len == longest && s.Rows >= rows {
			s.Slots = min(max(s.Slots, slots), s.Rows*s.Len)
			shapes = append(shapes, s)
		}
	}
	return shapes
}

// shape has the usual share of slots.
func (l Layout) shape(rows, length int) Shape {
	slots := roundUp(rows/l.blocks()*length*l.Slots/16, tile) * l.blocks()
	return Shape{Rows: rows, Len: length, Slots: min(slots, rows*length)}
}

// offers are the shapes of at most l.Tokens tokens that fewShapes chooses from, the longest rows last: no longer than
// any group needs, and not more than l.Pad groups can need. From one to the next lengths grow by about a sixth, numbers
// of rows by a third.
func (l Layout) offers(groups []Group) (offers []Shape) {
	longest, most := 1, 1
	for _, g := range groups {
		longest, most = max(longest, roundUp(g.longest(l.Share), tile)), max(most, l.Pad*len(g.units(l.Share)))
	}
	for n := 0; n < longest; {
		n = min(longest, n+roundUp(max(1, n/6), tile))
		for rows := 1; rows == 1 || rows*n*l.blocks() <= l.Tokens && rows*l.blocks() <= most; rows += (rows + 2) / 3 {
			offers = append(offers, l.shape(rows*l.blocks(), n))
		}
	}
	return offers
}

// sampled is how many batches fewShapes tries shapes on.
const sampled = 32

// sample cuts groups, or some from all over a longer list, into batches of l.Pad.
func (l Layout) sample(groups []Group) (batches []*packer) {
	n := min(len(groups), sampled*l.Pad)
	for part := range slices.Chunk(upTo(n), l.Pad) {
		for k, i := range part {
			part[k] = i * len(groups) / n
		}
		batches = append(batches, l.packer(data.Pick(groups, part)))
	}
	return batches
}

// time estimates the time of batches in some shapes, in tokens.
func (l Layout) time(batches []*packer, shapes []Shape) (sum float64) {
	for _, b := range batches {
		for _, d := range b.drafts(shapes) {
			sum += l.cost(d.shape)
		}
	}
	return sum
}

// cost estimates the time of a microbatch, in tokens.
func (l Layout) cost(s Shape) float64 {
	return float64(l.Overhead) + (&Packed{Rows: s.Rows, Len: s.Len}).Cost(l.Hidden)
}

// packer divides groups among microbatches of few shapes.
type packer struct {
	l      Layout
	groups []Group
	order  []int // the longest first
	lens   []int // of their longest stretches
}

func (l Layout) packer(groups []Group) *packer {
	p := &packer{l: l, groups: groups, lens: make([]int, len(groups))}
	for i, g := range groups {
		p.lens[i] = g.longest(l.Share)
	}
	p.order = byLength(len(groups), func(i int) int { return p.lens[i] })
	return p
}

// drafts divides the groups among microbatches of the shapes. A group that no shape holds gets one of its own.
func (p *packer) drafts(shapes []Shape) (drafts []*draft) {
	for left := slices.Clone(p.order); len(left) > 0; {
		d := p.densest(left, shapes)
		if d == nil {
			d = p.fill(left[:1], p.l.shapeOf(p.groups[left[0]]))
		}
		drafts = append(drafts, d)
		left = slices.DeleteFunc(left, func(i int) bool { return slices.Contains(d.members, i) })
	}
	return drafts
}

// densest is a microbatch with the first group that is left, of the shape that then holds most tokens for its cost.
func (p *packer) densest(left []int, shapes []Shape) (best *draft) {
	most := 0.0
	for _, s := range shapes {
		d := p.fill(left, s)
		if density := float64(d.tokens()) / p.l.cost(s); density > most {
			best, most = d, density
		}
	}
	return best
}

// shapeOf is the smallest shape for a group alone.
func (l Layout) shapeOf(g Group) Shape {
	p := l.planOf(g, roundUp(g.longest(l.Share), tile))
	rows := roundUp(len(p.used), l.blocks())
	return Shape{rows, p.len, min(rows*p.len, roundUp(p.fullest(rows), tile)*l.blocks())}
}

// fill puts groups into a microbatch of the shape, each that fits. It is empty where the first does not.
func (p *packer) fill(left []int, s Shape) *draft {
	d := &draft{plan: plan{len: s.Len, blocks: p.l.blocks()}, shape: s}
	for k := 0; k < len(left) && len(d.members) < p.l.Pad; k++ {
		i := left[k]
		fits := p.lens[i] <= d.room() && d.add(i, p.groups[i], p.l.Share)
		if !fits && len(d.members) == 0 {
			break
		}
	}
	return d
}

// planOf has a group alone in rows of a length.
func (l Layout) planOf(g Group, length int) *plan {
	p := &plan{len: length, blocks: l.blocks()}
	p.add(g, l.Share)
	return p
}

// fullest is the number of slots of the fullest block of rows.
func (pl *plan) fullest(rows int) int {
	_, slots := pl.deal(rows)
	return slots
}

// fits says whether the plan's rows and slots have room in a shape.
func (pl *plan) fits(s Shape) bool {
	return len(pl.used) <= s.Rows && pl.fullest(s.Rows) <= s.Slots/pl.blocks
}

// DescribeShapes lists the shapes to which the layout is limited, and is "" for any other.
func (l Layout) DescribeShapes() string {
	if l.Shapes == nil {
		return ""
	}
	text := make([]string, len(l.Shapes))
	for i, s := range l.Shapes {
		text[i] = fmt.Sprintf("%d×%d", s.Rows, s.Len)
	}
	return fmt.Sprintf("the engine compiles %d programs, one for each shape of batches, which makes the first steps "+
		"slow (rows × tokens): %s", len(l.Shapes), strings.Join(text, ", "))
}
