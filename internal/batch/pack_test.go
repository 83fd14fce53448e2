package batch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/data"
)

// visibleText is the text a slot is predicted from: every token that its source position may attend to, by position.
func visibleText(p *Packed, slot int) string {
	at := flat(p, slot)
	row := at / p.Len * p.Len
	var words []string
	for j := row; j <= at; j++ {
		if p.Groups[j] == p.Groups[at] && p.Groups[j] >= 0 && (p.Segments[j] == 0 || p.Segments[j] == p.Segments[at]) {
			words = append(words, fmt.Sprint(p.Positions[j], ":", p.Tokens[j]))
		}
	}
	return fmt.Sprint(words)
}

// flat is the flat index of the position that predicts a slot.
func flat(p *Packed, slot int) int {
	blocks := max(1, p.Blocks)
	return slot/(p.Slots/blocks)*(len(p.Tokens)/blocks) + int(p.Source[slot])
}

// wantText is the same text by definition: the prompt and the answer's tokens before the predicted one.
func wantText(prompt, answer []int32, k int) string {
	var words []string
	for i, t := range append(append([]int32{}, prompt...), answer[:k]...) {
		words = append(words, fmt.Sprint(i, ":", t))
	}
	return fmt.Sprint(words)
}

func randomGroups(r *rand.Rand, n, answers int) []Group {
	ids := func(n int) []int32 {
		s := make([]int32, n)
		for i := range s {
			s[i] = r.Int32N(1000)
		}
		return s
	}
	gs := make([]Group, n)
	for i := range gs {
		gs[i].Prompt = ids(1 + r.IntN(40))
		for range answers {
			gs[i].Answers = append(gs[i].Answers, ids(1+r.IntN(30)))
		}
	}
	return gs
}

func TestPackSlotsSeeTheirOwnText(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for trial := range 16 {
		answers := 1 + trial%4
		groups := randomGroups(r, 1+r.IntN(6), answers)
		for _, share := range []bool{false, true} {
			p := Pack(groups, Layout{Share: share, Pad: len(groups) + trial%3})
			checkSlots(t, p, groups)
			checkShape(t, p, (len(groups)+trial%3)*answers)
		}
	}
}

// TestPackReadsUntrained: tokens that are not predicted have no slots, and are read by those that are: by no other
// group's in the row.
func TestPackReadsUntrained(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for trial := range 16 {
		groups := randomGroups(r, 1+r.IntN(6), 1+trial%2)
		for i, g := range groups {
			for _, a := range g.Answers {
				trained := make([]bool, len(a))
				for k := range trained {
					trained[k] = k == 0 || r.IntN(2) == 0
				}
				groups[i].Trained = append(groups[i].Trained, trained)
			}
		}
		for _, share := range []bool{false, true} {
			checkSlots(t, Pack(groups, Layout{Share: share}), groups)
			for _, part := range Split(groups, Layout{Share: share, Tokens: 256, Pad: 8}.Fit(groups)) {
				checkSlots(t, part.Packed, data.Pick(groups, part.Members))
			}
		}
	}
}

// checkSlots: every answer's tokens have slots, in order, in the block of their row.
func checkSlots(t *testing.T, p *Packed, groups []Group) {
	t.Helper()
	slots := make([][]int, p.Answers)
	for s, a := range p.Answer {
		if a >= 0 {
			slots[a] = append(slots[a], s)
		}
	}
	answer := 0
	for _, g := range groups {
		for i, a := range g.Answers {
			predicted := slices.DeleteFunc(upTo(len(a)), func(k int) bool { return !g.IsPredicted(i, k) })
			if len(slots[answer]) != len(predicted) || int(p.Lengths[answer]) != len(predicted) {
				t.Fatalf("answer %d of length %d has %d slots: want %d", answer, p.Lengths[answer],
					len(slots[answer]), len(predicted))
			}
			for n, slot := range slots[answer] {
				k := predicted[n]
				if p.Target[slot] != a[k] {
					t.Fatalf("slot %d of answer %d predicts %d: want %d", slot, answer, p.Target[slot], a[k])
				}
				if got, want := visibleText(p, slot), wantText(g.Prompt, a, k); got != want {
					t.Fatalf("slot %d sees %s\nwant %s", slot, got, want)
				}
			}
			answer++
		}
	}
	for ; answer < p.Answers; answer++ {
		if len(slots[answer]) > 0 {
			t.Fatalf("padding answer %d has slots", answer)
		}
	}
	checkSources(t, p)
}

// checkSources: no position feeds two slots, or gradients would race on onnx, and the inverse inverts the sources.
func checkSources(t *testing.T, p *Packed) {
	t.Helper()
	used, blocks := map[int]bool{}, max(1, p.Blocks)
	if p.Rows%blocks != 0 || p.Slots%blocks != 0 {
		t.Fatalf("%d rows and %d slots do not divide into %d blocks", p.Rows, p.Slots, blocks)
	}
	for s := range p.Source {
		at := flat(p, s)
		if used[at] {
			t.Fatalf("position %d feeds two slots", at)
		}
		used[at] = true
		if real := p.Answer[s] >= 0; real != (int(p.Inverse[at]) == s%(p.Slots/blocks)) {
			t.Fatalf("slot %d, real %v: inverse of its source is %d", s, real, p.Inverse[at])
		}
	}
	for at, s := range p.Inverse {
		if !used[at] && int(s) != p.Slots/blocks {
			t.Fatalf("position %d feeds no slot, but has the inverse %d", at, s)
		}
	}
}

func checkShape(t *testing.T, p *Packed, answers int) {
	t.Helper()
	if p.Answers != answers || len(p.Lengths) != answers {
		t.Fatalf("%d answers, %d lengths: want %d", p.Answers, len(p.Lengths), answers)
	}
	if !slices.Contains(lengths, p.Len) {
		t.Fatalf("row length %d is no bucket", p.Len)
	}
}

func TestSharingHoldsThePromptOnce(t *testing.T) {
	g := Group{Prompt: make([]int32, 192), Answers: [][]int32{make([]int32, 64), make([]int32, 64)}}
	apart, shared := Pack([]Group{g}, Layout{}), Pack([]Group{g}, Layout{Share: true})
	if apart.Count != 2*(192+63) || shared.Count != 191+2*64 {
		t.Errorf("%d tokens apart, %d shared: want 510 and 319", apart.Count, shared.Count)
	}
	if !SharePays([]Group{g, g, g, g}, 4, 256) {
		t.Error("sharing a prompt of 192 tokens between two answers of 64 is said not to pay")
	}
	if SharePays([]Group{{Prompt: []int32{1}, Answers: [][]int32{make([]int32, 64), make([]int32, 64)}}}, 1, 64) {
		t.Error("sharing a prompt of one token is said to pay")
	}
}

func TestBucketsAreFew(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	shapes := map[string]bool{}
	for range 300 {
		p := Pack(randomGroups(r, 8, 2), Layout{Share: true, Pad: 8})
		shapes[fmt.Sprint(p.Rows, p.Len, p.Slots)] = true
	}
	if len(shapes) > 16 {
		t.Errorf("300 like batches need %d compiled shapes: want at most 16", len(shapes))
	}
}
