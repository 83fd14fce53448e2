package batch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// visibleText is the text a slot is predicted from: every token that its source position may attend to, by position.
func visibleText(p *Packed, slot int) string {
	at := int(p.Source[slot])
	row := at / p.Len * p.Len
	var words []string
	for j := row; j <= at; j++ {
		if p.Groups[j] == p.Groups[at] && p.Groups[j] >= 0 && (p.Segments[j] == 0 || p.Segments[j] == p.Segments[at]) {
			words = append(words, fmt.Sprint(p.Positions[j], ":", p.Tokens[j]))
		}
	}
	return fmt.Sprint(words)
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

func checkSlots(t *testing.T, p *Packed, groups []Group) {
	t.Helper()
	slot, answer := 0, 0
	for _, g := range groups {
		for _, a := range g.Answers {
			for k, tok := range a {
				if p.Target[slot] != tok || p.Answer[slot] != int32(answer) {
					t.Fatalf("slot %d predicts %d of answer %d: want %d of %d", slot, p.Target[slot], p.Answer[slot],
						tok, answer)
				}
				if got, want := visibleText(p, slot), wantText(g.Prompt, a, k); got != want {
					t.Fatalf("slot %d sees %s\nwant %s", slot, got, want)
				}
				slot++
			}
			if int(p.Lengths[answer]) != len(a) {
				t.Fatalf("length of answer %d is %d: want %d", answer, p.Lengths[answer], len(a))
			}
			answer++
		}
	}
	for ; slot < p.Slots; slot++ {
		if p.Answer[slot] != -1 {
			t.Fatalf("padding slot %d belongs to answer %d", slot, p.Answer[slot])
		}
	}
}

func checkShape(t *testing.T, p *Packed, answers int) {
	t.Helper()
	if p.Answers != answers || len(p.Lengths) != answers {
		t.Fatalf("%d answers, %d lengths: want %d", p.Answers, len(p.Lengths), answers)
	}
	used := map[int32]bool{}
	for s, at := range p.Source {
		if used[at] {
			t.Fatalf("position %d feeds two slots: gradients would race on onnx", at)
		}
		used[at] = true
		if real := p.Answer[s] >= 0; real != (p.Inverse[at] == int32(s)) {
			t.Fatalf("slot %d, real %v: inverse of its source is %d", s, real, p.Inverse[at])
		}
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
