package batch

import "slices"

// lengths are the row lengths that graphs are compiled for: few enough to be compiled once each, close enough that
// padding stays below a third.
var lengths = []int{32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384,
	24576, 32768}

// atLeast is the smallest length of a table that holds n; beyond the table it is n rounded up to a multiple.
func atLeast(table []int, n, multiple int) int {
	if i, _ := slices.BinarySearch(table, n); i < len(table) {
		return table[i]
	}
	return roundUp(n, multiple)
}

// bucket is the smallest compiled length that holds n; beyond the table it is n rounded up to whole 8,192s.
func bucket(n int) int { return atLeast(lengths, n, 8192) }

func roundUp(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }

// Layout says how groups are laid out in rows.
type Layout struct {
	Share bool // a group's prompt is there once, its answers blind to each other; else every answer repeats the prompt
	Pad   int  // groups in a full batch: a smaller one is padded to the same number of answers; 0: no padding

	Tokens int     // most tokens of a microbatch of Split, unless a group needs more; 0: all groups are one
	Few    int     // most shapes of microbatches; 0: any number
	Shapes []Shape // those that Split makes; see Fit
	Slots  int     // sixteenths of a microbatch's tokens that have a slot in most of them, or 16; see Fit

	// What Fit weighs shapes with.
	Overhead int     // tokens that take as long as what a microbatch costs apart from its own
	Compile  float64 // tokens that take as long as compiling for a shape
	Hidden   int     // size of the model's hidden states, for the cost of attention; 0: attention costs nothing

	Blocks int // equal blocks that rows and slots are dealt to, one for each shard of a mesh's data; 0 or 1: one
}

// Packed is a batch of groups laid out in rows, in the form that package model reads. Arrays are row-major int32.
type Packed struct {
	Rows, Len int // rows of Len tokens
	Slots     int // predicted tokens, padding slots included
	Answers   int // answers, padding ones included; answers are numbered group by group
	Blocks    int // D equal blocks, first rows and slots first; a slot is in the block of its row; 0 or 1: one

	Tokens    []int32 // [Rows*Len]
	Positions []int32 // [Rows*Len] position in the text: restarts for every answer
	Groups    []int32 // [Rows*Len] group within the row, -1 for padding
	Segments  []int32 // [Rows*Len] 0 prompt, k>0 the row's k-th answer of this group
	Source    []int32 // [Slots] flat index within its block of the position that predicts the slot, each at most once
	Target    []int32 // [Slots] token predicted
	Inverse   []int32 // [Rows*Len] slot within its block that the position feeds, or Slots/D where none
	Answer    []int32 // [Slots] answer that the slot belongs to, -1 for padding
	Lengths   []int32 // [Answers] predicted tokens of each answer; 0 for padding
	Count     int     // tokens that are no padding
}

// Pack lays groups out in rows. The row length is the bucket of the longest stretch; shorter ones share rows, first
// fit in the given order. The result depends on the groups and the layout alone.
func Pack(groups []Group, l Layout) *Packed {
	return write(newPlan(groups, l), groups, l)
}

// write fills the rows as planned.
func write(pl *plan, groups []Group, l Layout) *Packed {
	p := allocate(pl)
	rows, _ := pl.deal(pl.rows)
	w := writer{p: p, plan: pl, rows: rows, at: make([]int, p.Rows), groups: make([]int32, p.Rows),
		slots: make([]int, p.blocks())}
	for g := range groups {
		w.group(groups[g], l.Share)
	}
	w.finish()
	return p
}

// plan decides the rows: where every unit goes.
type plan struct {
	len, rows int
	blocks    int
	used      []int // tokens in every row
	held      []int // slots in every row
	row       []int // of every unit, in order
	slots     int
	answers   int
}

func newPlan(groups []Group, l Layout) *plan {
	longest := 1
	for _, g := range groups {
		longest = max(longest, g.longest(l.Share))
	}
	pl := &plan{len: bucket(longest), blocks: l.blocks()}
	for _, g := range groups {
		pl.add(g, l.Share)
		pl.answers += len(g.Answers)
	}
	pl.round(groups, len(pl.row), l)
	return pl
}

// add places all stretches of a group.
func (pl *plan) add(g Group, share bool) {
	slots := g.slots(share)
	for i, n := range g.units(share) {
		pl.row = append(pl.row, pl.place(n, slots[i]))
	}
}

// place puts n tokens into the first row with room.
func (pl *plan) place(n, slots int) int {
	for r, u := range pl.used {
		if u+n <= pl.len {
			pl.used[r] += n
			pl.held[r] += slots
			return r
		}
	}
	pl.used, pl.held = append(pl.used, n), append(pl.held, slots)
	return len(pl.used) - 1
}

// deal gives every row its index among rows, as many in each block, and the slots of the fullest block: rows of many
// slots first, each to the block that has the fewest. Within a block they keep their order.
func (pl *plan) deal(rows int) (at []int, fullest int) {
	at, slots, count := make([]int, len(pl.held)), make([]int, pl.blocks), make([]int, pl.blocks)
	for _, r := range byLength(len(pl.held), func(r int) int { return pl.held[r] }) {
		b := -1
		for k := range slots {
			if count[k] < rows/pl.blocks && (b < 0 || slots[k] < slots[b]) {
				b = k
			}
		}
		at[r], slots[b], count[b] = b, slots[b]+pl.held[r], count[b]+1
	}
	clear(count)
	for r, b := range at {
		at[r] = b*rows/pl.blocks + count[b]
		count[b]++
	}
	return at, slices.Max(slots)
}

// round makes the shape one of few: rows in quarters, slots in buckets, answers as in a full batch.
func (pl *plan) round(groups []Group, units int, l Layout) {
	most := units
	if l.Pad > len(groups) {
		most = units * l.Pad / len(groups)
		pl.answers = pl.answers * l.Pad / len(groups)
	}
	pl.rows = roundUp(min(most, roundUp(len(pl.used), max(1, (most+3)/4))), pl.blocks)
	_, slots := pl.deal(pl.rows)
	pl.slots = pl.blocks * min(bucket(slots), pl.rows/pl.blocks*pl.len)
}

// blocks is the number of blocks, at least one.
func (l Layout) blocks() int { return max(1, l.Blocks) }

func (p *Packed) blocks() int { return max(1, p.Blocks) }

func allocate(pl *plan) *Packed {
	n := pl.rows * pl.len
	return &Packed{Rows: pl.rows, Len: pl.len, Slots: pl.slots, Answers: pl.answers, Blocks: pl.blocks,
		Tokens: make([]int32, n), Positions: make([]int32, n), Groups: fill(n, -1), Segments: make([]int32, n),
		Source: make([]int32, pl.slots), Target: make([]int32, pl.slots), Answer: fill(pl.slots, -1),
		Inverse: fill(n, int32(pl.slots/pl.blocks)), Lengths: make([]int32, pl.answers)}
}

func fill(n int, v int32) []int32 { return slices.Repeat([]int32{v}, n) }

// writer fills the arrays, unit by unit.
type writer struct {
	p      *Packed
	plan   *plan
	rows   []int // index of every row of the plan
	unit   int
	slots  []int // of every block
	answer int
	at     []int   // next free position of every row
	groups []int32 // next group id of every row
}

func (w *writer) group(g Group, share bool) {
	if share {
		w.open(g.Prompt)
	}
	for a := range g.Answers {
		seg := int32(a + 1)
		if !share {
			w.open(g.Prompt)
			seg = 1
		}
		w.segment(g, a, seg)
	}
}

// open starts the next unit with the prompt, less its last token: every answer brings that one.
func (w *writer) open(prompt []int32) {
	r := w.rows[w.plan.row[w.unit]]
	w.unit++
	w.groups[r]++
	for i, t := range prompt[:len(prompt)-1] {
		w.put(r, t, int32(i), 0)
	}
}

// segment writes the prompt's last token and answer a, less the answer's last token, and the answer's slots.
func (w *writer) segment(g Group, a int, seg int32) {
	r := w.rows[w.plan.row[w.unit-1]]
	last := len(g.Prompt) - 1
	in := g.Prompt[last]
	for i, t := range g.Answers[a] {
		at := w.put(r, in, int32(last+i), seg)
		if g.IsPredicted(a, i) {
			w.predict(at, t)
		}
		in = t
	}
	w.p.Lengths[w.answer] = int32(g.Predicted(a))
	w.answer++
}

// put appends a token to row r and returns its flat index.
func (w *writer) put(r int, token, position, seg int32) int {
	i := r*w.p.Len + w.at[r]
	w.at[r]++
	w.p.Tokens[i], w.p.Positions[i], w.p.Groups[i], w.p.Segments[i] = token, position, w.groups[r]-1, seg
	w.p.Count++
	return i
}

func (w *writer) predict(from int, target int32) {
	p := w.p
	s := w.feed(from)
	p.Target[s], p.Answer[s] = target, int32(w.answer)
	p.Inverse[from] = int32(s % (p.Slots / p.blocks()))
}

// feed gives the block's next slot to a position, by its flat index.
func (w *writer) feed(from int) (slot int) {
	p := w.p
	tokens := len(p.Tokens) / p.blocks()
	b := from / tokens
	slot = b*p.Slots/p.blocks() + w.slots[b]
	p.Source[slot] = int32(from % tokens)
	w.slots[b]++
	return slot
}

// finish gives padding slots sources of their own, so that no source repeats: the first positions that feed none.
func (w *writer) finish() {
	p := w.p
	none := p.Slots / p.blocks()
	for b, tokens := 0, len(p.Tokens)/p.blocks(); b < p.blocks(); b++ {
		for i := b * tokens; w.slots[b] < none; i++ {
			if p.Inverse[i] == int32(none) {
				w.feed(i)
			}
		}
	}
}

// Ends gives the last slot of each answer its number, and all others -1 [Slots].
func (p *Packed) Ends() []int32 {
	ends, last := fill(p.Slots, -1), fill(p.Answers, -1)
	for s, a := range p.Answer { // an answer's slots come in order
		if a >= 0 {
			last[a] = int32(s)
		}
	}
	for a, s := range last {
		if s >= 0 {
			ends[s] = int32(a)
		}
	}
	return ends
}

// Cost estimates the time of a forward pass over the packed rows of a model with this hidden size, in units of one
// token through the layers' matrices: attention adds a share that grows with the row's length.
func (p *Packed) Cost(hidden int) float64 {
	tokens := float64(p.Rows * p.Len)
	if hidden == 0 {
		return tokens
	}
	return tokens * (1 + float64(p.Len)/float64(attentionShare*hidden))
}

// attentionShare is c: a row of c·H tokens spends as much on attention as on the layers' matrices.
const attentionShare = 4

// SharePays says whether laying out groups with shared prompts saves time, from a sample of batches of size n.
func SharePays(groups []Group, n, hidden int) bool {
	shared, apart := 0.0, 0.0
	for part := range slices.Chunk(groups[:min(len(groups), 64*n)], n) {
		shared += Pack(part, Layout{Share: true}).Cost(hidden)
		apart += Pack(part, Layout{}).Cost(hidden)
	}
	return shared < 0.98*apart
}
