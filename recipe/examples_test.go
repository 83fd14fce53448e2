package recipe

import (
	"slices"
	"testing"

	"github.com/posttrain/posttrain/train"
)

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
