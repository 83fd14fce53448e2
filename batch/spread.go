package batch

import (
	"cmp"
	"slices"
)

// Share is some answers of a group, which stand in one row behind one copy of the prompt.
type Share struct {
	Group   int   // index into the groups that were spread
	Answers []int // indices into the group's answers, in the order of the packed ones
}

// Spreading says how large groups are laid out ([Spread]).
type Spreading struct {
	Short  int  // tokens of a row
	Tokens int  // tokens of a part, about: a part is at least one row
	Apart  bool // every answer brings a prompt of its own
}

// Spreaded is a part of what was spread: the shares, in the order of the packed answers, and their rows.
type Spreaded struct {
	Shares []Share
	*Packed
}

// Spread lays large groups out in rows of one length. A row holds a prompt once with as many of its answers as fit; a group
// that does not fit into one row goes on in others, which repeat the prompt; room that is left takes shares of other groups.
// An answer that is too long even alone goes, with its kind, to rows whose length is the next power of two.
//
// Shapes are few: all parts of a length have one shape, but for the last, which may have half the rows. Slots are counted in
// eighths of a part's tokens, answers in powers of two. The result depends on the arguments alone.
func Spread(groups []Group, s Spreading) []Spreaded {
	var short, long []Share
	longer := doubled(longestOver(groups, s.Short))
	for i, g := range groups {
		fits, over := g.divided(s.Short)
		short = append(short, g.shares(i, fits, s.Short, s.Apart)...)
		long = append(long, g.shares(i, over, longer, s.Apart)...)
	}
	return append(spreadAt(groups, long, longer, s.Tokens), spreadAt(groups, short, s.Short, s.Tokens)...)
}

// longestOver is the longest answer with its prompt among those that do not fit into a row, 0 where all do.
func longestOver(groups []Group, row int) (longest int) {
	for _, g := range groups {
		_, over := g.divided(row)
		for _, a := range over {
			longest = max(longest, g.with(a))
		}
	}
	return longest
}

// doubled is the smallest power of two, from 64 on, that is not below n.
func doubled(n int) int {
	p := 64
	for p < n {
		p *= 2
	}
	return p
}

// with is the length of the prompt and answer a alone in a row.
func (g Group) with(a int) int { return len(g.Prompt) - 1 + len(g.Answers[a]) }

// divided tells the answers that fit into a row with their prompt from those that do not. Empty ones are left out.
func (g Group) divided(length int) (fits, over []int) {
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

// shares divides some answers of group i among rows: the longest first, each into the first row with room.
func (g Group) shares(i int, answers []int, length int, apart bool) (shares []Share) {
	order := slices.Clone(answers)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(g.Answers[b]), len(g.Answers[a])) })
	var used []int
	for _, a := range order {
		n := len(g.Answers[a])
		k := slices.IndexFunc(used, func(u int) bool { return !apart && u+n <= length })
		if k < 0 {
			used, shares = append(used, len(g.Prompt)-1), append(shares, Share{Group: i})
			k = len(used) - 1
		}
		used[k] += n
		shares[k].Answers = append(shares[k].Answers, a)
	}
	return shares
}

// group is the share as a group of its own.
func (s Share) group(groups []Group) Group {
	g := Group{Prompt: groups[s.Group].Prompt}
	for _, a := range s.Answers {
		g.Answers = append(g.Answers, groups[s.Group].Answers[a])
	}
	return g
}

// spreadAt fills rows of one length with shares, the longest first, and cuts them into parts.
func spreadAt(groups []Group, shares []Share, length, tokens int) []Spreaded {
	lens := make([]int, len(shares))
	for k, s := range shares {
		lens[k] = s.group(groups).sharedLen()
	}
	order := upTo(len(shares))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(lens[b], lens[a]) })
	fill, rows := plan{len: length}, [][]Share{}
	for _, k := range order {
		r := fill.place(lens[k])
		if r == len(rows) {
			rows = append(rows, nil)
		}
		rows[r] = append(rows[r], shares[k])
	}
	return cutRows(groups, rows, length, max(1, (tokens+length/2)/max(1, length)))
}

// cutRows makes parts of most rows each, and one of half as many where the rest needs no more.
func cutRows(groups []Group, rows [][]Share, length, most int) (parts []Spreaded) {
	var plans []*plan
	for part := range slices.Chunk(rows, most) {
		n := most
		if len(part) <= (most+1)/2 {
			n = (most + 1) / 2
		}
		plans = append(plans, planned(groups, part, length, n))
		parts = append(parts, Spreaded{Shares: slices.Concat(part...)})
	}
	alike(plans)
	for i, p := range plans {
		parts[i].Packed = write(p, parts[i].groups(groups), Layout{Share: true})
	}
	return parts
}

// planned is the plan of a part whose rows hold these shares.
func planned(groups []Group, shares [][]Share, length, rows int) *plan {
	p := &plan{len: length, rows: rows}
	for r, row := range shares {
		for _, s := range row {
			p.row = append(p.row, r)
			p.answers, p.slots = p.answers+len(s.Answers), p.slots+s.group(groups).AnswerTokens()
		}
	}
	return p
}

// alike gives all plans the answers and the share of slots of the fullest.
func alike(plans []*plan) {
	answers, eighths := 0, 0
	for _, p := range plans {
		all := p.rows * p.len
		answers, eighths = max(answers, doubled(p.answers)), max(eighths, (8*p.slots+all-1)/all)
	}
	for _, p := range plans {
		p.answers, p.slots = answers, p.rows*p.len*eighths/8
	}
}

// groups are the part's shares as groups.
func (s Spreaded) groups(groups []Group) []Group {
	out := make([]Group, len(s.Shares))
	for i, x := range s.Shares {
		out[i] = x.group(groups)
	}
	return out
}
