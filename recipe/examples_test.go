package recipe

import (
	"fmt"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/train"
)

// TestHoldOutCopies: rows that weights repeat, or that several files have, are trained on as often as they come, and
// held out once. A text without a prompt, whose first token is in its place, is a row of its own.
func TestHoldOutCopies(t *testing.T) {
	for name, c := range map[string]struct {
		files  Files
		prompt func(row int32) int32
	}{
		"weights":                   {Files{Weights: []float64{3}}, func(row int32) int32 { return row }},
		"weights, without a prompt": {Files{Weights: []float64{3}}, func(int32) int32 { return 0 }},
		"named twice":               {Files{TrainFiles: config.Names{"a", "a"}}, func(int32) int32 { return 0 }},
	} {
		var all []train.Example
		for i := range 12 {
			row := int32(i % 4)
			g := train.Group{Prompt: []int32{c.prompt(row)}, Answers: [][]int32{{row}}}
			all = append(all, train.Example{Group: g, Source: fmt.Sprint("a:", i)})
		}
		kept, held, err := Encoding[int]{}.split(Source{EvalFraction: 0.5, Files: c.files}, all, 1)
		if err != nil || len(kept) != 6 || len(held) != 2 {
			t.Fatalf("%s: %v kept, %v held out, %v", name, kept, held, err)
		}
		rows := map[int32]bool{held[0].Answers[0][0]: true, held[1].Answers[0][0]: true}
		for _, x := range kept {
			if len(rows) != 2 || rows[x.Answers[0][0]] {
				t.Errorf("%s: %v kept, %v held out", name, kept, held)
			}
		}
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
