package batch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// Shape is that of a part; a program is compiled for each.
type Shape struct{ Rows, Len, Slots int }

// fewShapes chooses at most l.Few shapes for parts of groups like these. One has room for any of the groups. The others
// join one by one: each time the shape that saves most of the time of a sample of batches, while it saves more in all
// batches than it takes to compile for it.
func (l Layout) fewShapes(groups []Group) []Shape {
	l.Shapes = []Shape{l.roomForAll(groups)}
	offers, batches := l.offers(groups, l.Shapes[0].Len), l.sample(groups)
	compile := l.Compile * min(1, float64(len(batches)*max(1, l.Pad))/float64(len(groups)))
	for time := l.time(batches, nil); len(l.Shapes) < l.Few; {
		best, least := Shape{}, time-compile
		for _, s := range offers {
			if t := l.time(batches, &s); t < least {
				best, least = s, t
			}
		}
		if best == (Shape{}) {
			break
		}
		l.Shapes, time = append(l.Shapes, best), least
	}
	slices.SortFunc(l.Shapes, func(a, b Shape) int { return cmp.Or(cmp.Compare(a.Len, b.Len), cmp.Compare(b.Rows, a.Rows)) })
	return l.Shapes
}

// roomForAll is the smallest shape that has room for any of the groups.
func (l Layout) roomForAll(groups []Group) Shape {
	longest, rows, slots := 1, 1, 0
	for _, g := range groups {
		longest = max(longest, g.longest(l.Share))
	}
	longest = roundUp(longest, tile)
	for _, g := range groups {
		rows = max(rows, len(l.planOf(g, longest).used))
	}
	s := l.shape(roundUp(rows, l.blocks()), longest)
	for _, g := range groups {
		slots = max(slots, roundUp(l.planOf(g, longest).fullest(s.Rows), tile)*l.blocks())
	}
	s.Slots = min(max(s.Slots, slots), s.Rows*s.Len)
	return s
}

// shape has the usual share of slots.
func (l Layout) shape(rows, length int) Shape {
	slots := roundUp(rows/l.blocks()*length*l.Slots/16, tile) * l.blocks()
	return Shape{Rows: rows, Len: length, Slots: min(slots, rows*length)}
}

// offers are the shapes of at most l.Tokens tokens that fewShapes chooses from: rows of at most longest tokens, not more
// than l.Pad groups can need. From one to the next lengths grow by about a sixth, numbers of rows by a third.
func (l Layout) offers(groups []Group, longest int) (offers []Shape) {
	most := 1
	for _, g := range groups {
		most = max(most, l.Pad*len(g.units(l.Share)))
	}
	for n := tile; n <= longest; n += roundUp(max(1, n/6), tile) {
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
	n := min(len(groups), sampled*max(1, l.Pad))
	for part := range slices.Chunk(upTo(n), max(1, l.Pad)) {
		for k, i := range part {
			part[k] = i * len(groups) / n
		}
		batches = append(batches, l.packer(data.Pick(groups, part)))
	}
	return batches
}

// time estimates that of batches in the layout's shapes and one more, in tokens.
func (l Layout) time(batches []*packer, more *Shape) (sum float64) {
	shapes := l.Shapes
	if more != nil {
		shapes = append(slices.Clone(shapes), *more)
	}
	for _, b := range batches {
		for _, d := range b.drafts(shapes) {
			sum += l.cost(*d.shape)
		}
	}
	return sum
}

// cost estimates the time of a part, in tokens.
func (l Layout) cost(s Shape) float64 {
	return float64(l.Overhead) + (&Packed{Rows: s.Rows, Len: s.Len}).Cost(l.Hidden)
}

// packer divides groups among parts of few shapes.
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

// drafts divides the groups. Each part has the longest group that is left, and of all shapes that which then holds most
// tokens for its cost. A group that no shape holds is in a draft without a shape.
func (p *packer) drafts(shapes []Shape) (drafts []*draft) {
	for left := slices.Clone(p.order); len(left) > 0; {
		var best *draft
		density := 0.0
		for _, s := range shapes {
			d := p.fill(left, s)
			if x := float64(d.tokens()) / p.l.cost(s); x > density {
				best, density = d, x
			}
		}
		if best == nil {
			best = newDraft(p.groups[left[0]], p.l)
			best.add(left[0], p.groups[left[0]], p.l.Share)
		}
		drafts = append(drafts, best)
		left = slices.DeleteFunc(left, func(i int) bool { return slices.Contains(best.members, i) })
	}
	return drafts
}

// fill puts groups into a part of the shape, each that fits. It is empty where the first does not.
func (p *packer) fill(left []int, s Shape) *draft {
	d := &draft{plan: plan{len: s.Len, blocks: p.l.blocks()}, most: s.Rows, shape: &s}
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
	return fmt.Sprintf("batches go through the model in %d shapes (rows × tokens): %s", len(l.Shapes),
		strings.Join(text, ", "))
}
