package batch

import (
	"fmt"
	"slices"
	"strings"
)

// Shape is that of a part; a program is compiled for each.
type Shape struct{ Rows, Len, Slots int }

// fewShapes lists at most l.Few shapes for parts of groups like these, the shortest rows first. Of one length, the
// first shape holds each group that needs rows of that length; half and a quarter of it are for what is left over at
// the end of a batch.
func (l Layout) fewShapes(groups []Group) (shapes []Shape) {
	lens := l.rowLengths(groups)
	for k, length := range lens {
		full := l.largest(groups, length, slices.Concat([]int{0}, lens)[k])
		for n, cut := min(3, max(1, l.Few/len(lens))), 1; n > 0; n, cut = n-1, 2*cut {
			s := Shape{Rows: roundUp((full.Rows+cut-1)/cut, l.blocks()), Len: length}
			s.Slots = min(roundUp((full.Slots*s.Rows+full.Rows-1)/full.Rows, tile*l.blocks()), s.Rows*s.Len)
			if !slices.Contains(shapes, s) {
				shapes = append(shapes, s)
			}
		}
	}
	return shapes
}

// rowLengths are l.Shortest and its doublings up to the longest group. Short ones are left out where they are more than
// half of l.Few, and one that is near the last.
func (l Layout) rowLengths(groups []Group) (lens []int) {
	longest := 1
	for _, g := range groups {
		longest = max(longest, g.longest(l.Share))
	}
	n := l.Shortest
	for ; n < longest; n *= 2 {
		lens = append(lens, n)
	}
	last := max(l.Shortest, min(n, roundUp(longest, tile)))
	if n > l.Shortest && 2*last < 3*n/2 {
		lens = lens[:len(lens)-1]
	}
	lens = append(lens, last)
	return lens[max(0, len(lens)-max(1, l.Few/2)):]
}

// largest is the shape of about l.Tokens tokens in rows of a length, with room for each group that is longer than over
// and fits.
func (l Layout) largest(groups []Group, length, over int) Shape {
	s, most, need := Shape{Rows: l.blocks(), Len: length}, 1, 1
	for 2*s.Rows*length <= l.Tokens {
		s.Rows *= 2
	}
	var fit []*plan // of a group alone
	for _, g := range groups {
		most = max(most, l.Pad*len(g.units(l.Share)))
		if n := g.longest(l.Share); n > over && n <= length {
			p := l.planOf(g, length)
			fit, need = append(fit, p), max(need, len(p.used))
		}
	}
	s.Rows = roundUp(max(need, min(s.Rows, most)), l.blocks())
	for _, p := range fit {
		s.Slots = max(s.Slots, p.fullest(s.Rows)*l.blocks())
	}
	s.Slots = max(s.Slots, s.Rows/l.blocks()*length*l.Slots/16*l.blocks())
	return s
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

// shapesFor are the shapes of the row length for a group, the largest first; none where no shape holds it.
func (l Layout) shapesFor(g Group) []Shape {
	first := slices.IndexFunc(l.Shapes, func(s Shape) bool { return s.Len >= g.longest(l.Share) })
	if first < 0 || !l.planOf(g, l.Shapes[first].Len).fits(l.Shapes[first]) {
		return nil
	}
	same := l.Shapes[first:]
	if other := slices.IndexFunc(same, func(s Shape) bool { return s.Len != same[0].Len }); other > 0 {
		same = same[:other]
	}
	return same
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
