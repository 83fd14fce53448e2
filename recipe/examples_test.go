package recipe

import (
	"slices"
	"testing"

	"github.com/posttrain/posttrain/train"
)

// TestHoldOutCopies: what weights repeat is trained on as often as they say, and held out once.
func TestHoldOutCopies(t *testing.T) {
	var all []train.Example
	for i := range 12 {
		row := int32(i % 4)
		g := train.Group{Prompt: []int32{row}, Answers: [][]int32{{row}}}
		all = append(all, train.Example{Group: g, Source: "a"})
	}
	s := Source{EvalFraction: 0.5, Files: Files{Weights: []float64{3}}}
	kept, held, err := Encoding[int]{}.split(s, all, 1)
	if err != nil || len(kept) != 6 || len(held) != 2 || held[0].Prompt[0] == held[1].Prompt[0] {
		t.Errorf("%v kept, %v held out, %v", kept, held, err)
	}
}

// A held-out prompt takes all its answers with it.
func TestHoldOutPrompts(t *testing.T) {
	var all []train.Example
	for i := range 12 {
		all = append(all, train.Example{Group: train.Group{Prompt: []int32{int32(i % 5)}, Answers: [][]int32{{int32(i)}}}})
	}
	kept, held, err := Encoding[int]{Prompts: true}.split(Source{EvalFraction: 0.4}, all, 1)
	if err != nil || len(kept)+len(held) != 12 {
		t.Fatal(err, kept, held)
	}
	for _, x := range held {
		if slices.ContainsFunc(kept, func(k train.Example) bool { return k.Prompt[0] == x.Prompt[0] }) {
			t.Errorf("prompt %d is in both", x.Prompt[0])
		}
	}
}
