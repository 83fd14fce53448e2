package batch

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// AnswerSet is some answers of a group that are in one row behind one copy of the prompt.
type AnswerSet struct {
	Group   int   // index into the groups that were packed
	Answers []int // indices into the group's answers, in the order of the packed ones
}

// GroupLayout says how large groups are laid out ([PackGroups]).
type GroupLayout struct {
	Short  int  // tokens of a row; see Fit
	Tokens int  // tokens of a microbatch, about: it is at least one row
	Apart  bool // every answer brings a prompt of its own
	Blocks int  // see Layout

	// A run of few shapes; see Few.
	lens    []int // row lengths, in order; nil: any
	prompt  int   // tokens of the shortest prompt
	answers int   // of every microbatch
}

// Few limits all groups of a run to at most that many shapes, two for each row length. The lengths are halves of one
// that holds any prompt with any answer, and is the best for long answers. Prompts are the lengths of all prompts,
// longest is the length of an answer, answers the number of answers that are laid out together.
func (s GroupLayout) Few(shapes int, prompts []int, longest, answers, hidden int) GroupLayout {
	sum := 0
	for _, n := range prompts {
		sum += n
	}
	s.prompt, s.answers = slices.Min(prompts), powerOfTwo(answers)
	most := max(slices.Max(prompts)-1+longest, int(bestRow(float64(sum)/float64(len(prompts)), hidden)))
	for n := most; len(s.lens) < max(1, shapes/2) && (s.lens == nil || n >= tile); n = (n + 1) / 2 {
		s.lens = append(s.lens, roundUp(n, tile))
	}
	slices.Sort(s.lens)
	s.lens = slices.Compact(s.lens)
	return s
}

// DescribeShapes lists the shapes of a run of few, and is "" for any other.
func (s GroupLayout) DescribeShapes() string {
	var text []string
	for _, n := range s.lens {
		full := s.rows(n)
		text = append(text, fmt.Sprintf("%d×%d", full, n))
		if half := s.halfOf(full); half < full {
			text = append(text, fmt.Sprintf("%d×%d", half, n))
		}
	}
	if text == nil {
		return ""
	}
	return fmt.Sprintf("the engine compiles at most %d programs, one for each shape of batches, which makes the first "+
		"steps slow (rows × tokens): %s", len(text), strings.Join(text, ", "))
}

// rows is the number of rows of a full microbatch.
func (s GroupLayout) rows(length int) int {
	return roundUp(max(1, (s.Tokens+length/2)/max(1, length)), s.blocks())
}

func (s GroupLayout) halfOf(rows int) int { return roundUp((rows+1)/2, s.blocks()) }

func (s GroupLayout) blocks() int { return max(1, s.Blocks) }

// table are the row lengths to choose from.
func (s GroupLayout) table() []int {
	if s.lens != nil {
		return s.lens
	}
	return rowLengths
}

// GroupMicrobatch is a microbatch of large groups: the answers, in the order of the packed answers, and their rows.
type GroupMicrobatch struct {
	Sets []AnswerSet
	*Packed
}

// PackGroups lays large groups out in rows of one length. A row holds a prompt once with as many of its answers as fit; a
// group that does not fit into one row continues in others, which repeat the prompt; room that is left takes answers of
// other groups. An answer that is too long even alone goes, with its kind, to rows whose length is the next power of
// two.
//
// Shapes are few: all microbatches of a length have one shape, but for the last, which may have half the rows. Slots
// are counted in eighths of a microbatch's tokens, answers in powers of two. The result depends on the arguments alone.
func PackGroups(groups []Group, s GroupLayout) []GroupMicrobatch {
	var short, long []AnswerSet
	longer := longestOver(groups, s.Short)
	if s.lens != nil {
		longer = atLeast(s.lens, longer, tile)
	} else {
		longer = powerOfTwo(longer)
	}
	for i, g := range groups {
		fits, over := g.divide(s.Short)
		short = append(short, g.sets(i, fits, s.Short, s.Apart)...)
		long = append(long, g.sets(i, over, longer, s.Apart)...)
	}
	return append(s.packAt(groups, long, longer), s.packAt(groups, short, s.Short)...)
}

// rowLengths are those that Fit chooses from: few, since each is compiled for, and two more than elsewhere, since the
// time per answer token is flat around its least.
var rowLengths = slices.Sorted(slices.Values(append([]int{640, 1280}, lengths[1:]...)))

// Fit completes a layout with the row length for groups of a model of this hidden size, unless it has one. That is
// a function of the groups alone, so that a resumed run has the shapes, and the rounding, of one that was never
// stopped; and a coarse one, so that steps of like groups have the same shapes.
func (s GroupLayout) Fit(groups []Group, hidden int) GroupLayout {
	units := answerLengths(groups)
	switch {
	case len(units) == 0:
		s.Short = s.table()[0]
	case s.Apart:
		s.Short = roundUp(units[len(units)-1], tile)
	case s.Short == 0:
		s.Short = s.cheapest(groups, hidden, atLeast(s.table(), units[9*(len(units)-1)/10], 1))
	}
	return s
}

// answerLengths are the lengths of all answers with their prompts, in order.
func answerLengths(groups []Group) (units []int) {
	for _, g := range groups {
		for a := range g.Answers {
			if len(g.Answers[a]) > 0 {
				units = append(units, g.with(a))
			}
		}
	}
	slices.Sort(units)
	return units
}

// cheapest is the row length of at least least tokens that is nearest to the best, or another not far from it that
// saves an eighth of the time: groups that just fit into their rows waste nothing.
func (s GroupLayout) cheapest(groups []Group, hidden, least int) int {
	start := max(s.nearest(best(groups, hidden)), least)
	chosen, time := start, s.cost(groups, hidden, start)
	for _, l := range s.table() {
		if near := l >= least && 2*l > start && l < 2*start; !near {
			continue
		}
		if c := s.cost(groups, hidden, l); c < 0.875*time {
			chosen, time = l, c
		}
	}
	return chosen
}

// best estimates the row length at which an answer token costs least. A row of L tokens costs L·(1 + L/(c·H)), see
// [Packed.Cost], and holds L - P tokens of answers behind its prompt of P: the least per token is at P + √(P² +
// c·H·P). It is not longer than a group.
func best(groups []Group, hidden int) float64 {
	prompts, longest, n := 0.0, 0.0, 0.0
	for _, g := range groups {
		if g.AnswerTokens() > 0 {
			prompt, answers := float64(len(g.Prompt)), float64(g.AnswerTokens())
			prompts, longest, n = prompts+prompt, max(longest, prompt+answers), n+1
		}
	}
	return min(longest, bestRow(prompts/n, hidden))
}

// bestRow is best for prompts of p tokens and any number of answers.
func bestRow(p float64, hidden int) float64 {
	return p + math.Sqrt(p*p+attentionShare*float64(hidden)*p)
}

// cost estimates the time of a pass over the groups in rows of this length.
func (s GroupLayout) cost(groups []Group, hidden, row int) (sum float64) {
	s.Short = row
	for _, p := range PackGroups(groups, s) {
		sum += p.Cost(hidden)
	}
	return sum
}

// nearest is the row length of the smallest ratio to n.
func (s GroupLayout) nearest(n float64) int {
	return slices.MinFunc(s.table(), func(a, b int) int {
		return cmp.Compare(math.Abs(math.Log(float64(a)/n)), math.Abs(math.Log(float64(b)/n)))
	})
}

// longestOver is the longest answer with its prompt among those that do not fit into a row, 0 where all do.
func longestOver(groups []Group, row int) (longest int) {
	for _, g := range groups {
		_, over := g.divide(row)
		for _, a := range over {
			longest = max(longest, g.with(a))
		}
	}
	return longest
}

// powerOfTwo is the smallest power of two, from 64 on, that is not below n.
func powerOfTwo(n int) int { return max(64, 1<<bits.Len(uint(max(1, n)-1))) }

// divide separates the answers that fit into a row with their prompt from those that do not. Empty ones are left out.
func (g Group) divide(length int) (fits, over []int) {
	for a := range g.Answers {
		switch {
		case len(g.Answers[a]) == 0:
		case g.with(a) <= length:
			fits = append(fits, a)
		default:
			over = append(over, a)
		}
	}
	return fits, over
}

// sets divides some answers of group i among rows: the longest first, each into the first row with room.
func (g Group) sets(i int, answers []int, length int, apart bool) (sets []AnswerSet) {
	var used []int
	for _, k := range byLength(len(answers), func(k int) int { return len(g.Answers[answers[k]]) }) {
		a := answers[k]
		n := len(g.Answers[a])
		k := slices.IndexFunc(used, func(u int) bool { return !apart && u+n <= length })
		if k < 0 {
			used, sets = append(used, len(g.Prompt)-1), append(sets, AnswerSet{Group: i})
			k = len(used) - 1
		}
		used[k] += n
		sets[k].Answers = append(sets[k].Answers, a)
	}
	return sets
}

// group is the set as a group of its own.
func (s AnswerSet) group(groups []Group) Group {
	g := groups[s.Group]
	part := Group{Prompt: g.Prompt, Answers: data.Pick(g.Answers, s.Answers)}
	if g.Trained != nil {
		part.Trained = data.Pick(g.Trained, s.Answers)
	}
	return part
}

// packAt fills rows of one length with sets of answers, the longest first, and cuts them into microbatches.
func (s GroupLayout) packAt(groups []Group, sets []AnswerSet, length int) []GroupMicrobatch {
	lengthOf := func(k int) int { return sets[k].group(groups).sharedLen() }
	fill, rows := plan{len: length}, [][]AnswerSet{}
	for _, k := range byLength(len(sets), lengthOf) {
		r := fill.place(lengthOf(k), 0)
		if r == len(rows) {
			rows = append(rows, nil)
		}
		rows[r] = append(rows[r], sets[k])
	}
	return s.cutRows(groups, rows, length)
}

// cutRows makes microbatches of most rows each, and one of half as many where the rest needs no more.
func (s GroupLayout) cutRows(groups []Group, rows [][]AnswerSet, length int) (microbatches []GroupMicrobatch) {
	var plans []*plan
	most := s.rows(length)
	for part := range slices.Chunk(rows, most) {
		n := most
		if half := s.halfOf(most); len(part) <= half {
			n = half
		}
		plans = append(plans, s.planOf(groups, part, length, n))
		microbatches = append(microbatches, GroupMicrobatch{Sets: slices.Concat(part...)})
	}
	s.equalize(plans)
	for i, p := range plans {
		microbatches[i].Packed = write(p, microbatches[i].groups(groups), Layout{Share: true})
	}
	return microbatches
}

// planOf is the plan of a microbatch whose rows hold these sets.
func (s GroupLayout) planOf(groups []Group, sets [][]AnswerSet, length, rows int) *plan {
	p := &plan{len: length, rows: rows, blocks: s.blocks(), held: make([]int, len(sets))}
	for r, row := range sets {
		for _, set := range row {
			p.row = append(p.row, r)
			p.answers, p.held[r] = p.answers+len(set.Answers), p.held[r]+set.group(groups).AnswerTokens()
		}
	}
	return p
}

// equalize gives all plans the answers and the share of slots of the fullest; in a run of few shapes, the answers of
// all groups, and the slots beside the shortest prompt.
func (s GroupLayout) equalize(plans []*plan) {
	answers, eighths := s.answers, 0
	for _, p := range plans {
		all := p.rows / p.blocks * p.len
		answers, eighths = max(answers, powerOfTwo(p.answers)), max(eighths, (8*p.fullest(p.rows)+all-1)/all)
		if s.lens != nil {
			eighths = (8*(p.len-s.prompt+1) + p.len - 1) / p.len
		}
	}
	for _, p := range plans {
		p.answers, p.slots = answers, p.rows/p.blocks*p.len*eighths/8*p.blocks
	}
}

// groups are the microbatch's sets as groups.
func (s GroupMicrobatch) groups(groups []Group) []Group {
	out := make([]Group, len(s.Sets))
	for i, x := range s.Sets {
		out[i] = x.group(groups)
	}
	return out
}
