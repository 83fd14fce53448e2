package batch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSpreadHoldsEveryAnswerOnce: and every slot sees its own prompt and answer, whatever the row length.
func TestSpreadHoldsEveryAnswerOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for trial := range 60 {
		groups := randomGroups(r, 1+r.IntN(9), 1+r.IntN(12))
		groups[0].Answers[0] = nil // an empty answer has no place
		s := GroupLayout{Short: 32 + 16*(trial%5), Tokens: 64 + 64*(trial%4), Apart: trial%3 == 0}
		if trial%5 == 0 {
			s = fewSpreading(groups).Fit(groups, 16)
		}
		seen := map[string]bool{}
		for _, p := range PackGroups(groups, s) {
			checkSlots(t, p.Packed, p.groups(groups))
			checkSpread(t, p, s)
			for _, x := range p.Sets {
				for _, a := range x.Answers {
					if name := fmt.Sprint(x.Group, " ", a); seen[name] {
						t.Fatalf("answer %s is in two places", name)
					} else {
						seen[name] = true
					}
				}
			}
		}
		for g := range groups {
			for a := range groups[g].Answers {
				if name := fmt.Sprint(g, " ", a); seen[name] != (len(groups[g].Answers[a]) > 0) {
					t.Fatalf("answer %s of %d tokens: placed %v", name, len(groups[g].Answers[a]), seen[name])
				}
			}
		}
	}
}

// fewSpreading has few shapes, for groups like these.
func fewSpreading(groups []Group) GroupLayout {
	var prompts []int
	longest, answers := 0, 0
	for _, g := range groups {
		prompts, answers = append(prompts, len(g.Prompt)), answers+len(g.Answers)
		for _, a := range g.Answers {
			longest = max(longest, len(a))
		}
	}
	return GroupLayout{Tokens: 128}.Few(4, prompts, longest, answers, 16)
}

func checkSpread(t *testing.T, p GroupMicrobatch, s GroupLayout) {
	t.Helper()
	if p.Len != s.Short && p.Len != powerOfTwo(p.Len) && !slices.Contains(s.lens, p.Len) || p.Len < s.Short {
		t.Fatalf("a row of %d tokens, where short ones have %d", p.Len, s.Short)
	}
	if p.Rows > 1 && p.Rows*p.Len > s.Tokens+p.Len/2 {
		t.Fatalf("a microbatch of %d rows of %d tokens: want about %d", p.Rows, p.Len, s.Tokens)
	}
	for _, x := range p.Sets {
		if s.Apart && len(x.Answers) != 1 {
			t.Fatalf("%d answers share a prompt", len(x.Answers))
		}
	}
}

// TestSpreadRepeatsPromptsSeldom: 16 answers of 64 tokens to a prompt of 256 in rows of 768 stand in two rows,
// without waste.
func TestSpreadRepeatsPromptsSeldom(t *testing.T) {
	g := Group{Prompt: make([]int32, 256)}
	for range 16 {
		g.Answers = append(g.Answers, make([]int32, 64))
	}
	microbatches := PackGroups([]Group{g, g, g}, GroupLayout{Short: 768, Tokens: 1024})
	if len(microbatches) != 6 {
		t.Fatalf("%d microbatches: want 6", len(microbatches))
	}
	for _, p := range microbatches {
		if p.Rows != 1 || p.Count != 255+8*64 || p.Slots != 576 || p.Answers != 64 {
			t.Errorf("%d rows, %d tokens, %d slots, %d answers: want 1, 767, 576, 64", p.Rows, p.Count, p.Slots,
				p.Answers)
		}
	}
}

// TestSpreadNeedsFewShapes: over many batches of answers of random lengths, with few tokens that are padding or
// repeated.
func TestSpreadNeedsFewShapes(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	shapes, fed, once := map[string]bool{}, 0, 0
	for range 100 {
		groups := make([]Group, 8)
		for i := range groups {
			groups[i].Prompt = make([]int32, 200+r.IntN(100))
			for range 16 {
				groups[i].Answers = append(groups[i].Answers, make([]int32, 1+min(400, int(60*r.ExpFloat64()))))
			}
			once += groups[i].sharedLen()
		}
		for _, p := range PackGroups(groups, GroupLayout{Short: 768, Tokens: 1024}) {
			shapes[fmt.Sprint(p.Rows, p.Len, p.Slots, p.Answers)] = true
			fed += p.Rows * p.Len
		}
	}
	if share := float64(fed) / float64(once); len(shapes) > 4 || share > 1.45 {
		t.Errorf("%d shapes, %.2f times the tokens: want at most 4 and 1.45", len(shapes), share)
	}
}

func TestSpreadDependsOnItsArgumentsAlone(t *testing.T) {
	groups := randomGroups(rand.New(rand.NewPCG(5, 6)), 9, 7)
	s := GroupLayout{Short: 48, Tokens: 128}
	a, b := PackGroups(groups, s), PackGroups(groups, s)
	for i := range a {
		if !slices.Equal(a[i].Tokens, b[i].Tokens) || !slices.Equal(a[i].Source, b[i].Source) {
			t.Fatal("two layouts of the same groups differ")
		}
	}
}
