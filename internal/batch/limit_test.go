package batch

import (
	"slices"
	"testing"
)

func groupOf(prompt int, answers ...int) Group {
	g := Group{Prompt: make([]int32, prompt)}
	for i := range g.Prompt {
		g.Prompt[i] = int32(i)
	}
	for i, n := range answers {
		g.Answers = append(g.Answers, slices.Repeat([]int32{int32(i)}, n))
	}
	return g
}

func TestLimit(t *testing.T) {
	for _, c := range []struct {
		name                                   string
		group                                  Group
		options                                Options
		positions                              int
		keep, dropped, empty, truncated, p, a0 int
	}{
		{"fits", groupOf(5, 5, 5), Options{MaxTokens: 10}, 0, 1, 0, 0, 0, 5, 5},
		{"total", groupOf(5, 5, 6), Options{MaxTokens: 10}, 0, 0, 1, 0, 0, 5, 5},
		{"prompt", groupOf(6, 1, 1), Options{MaxPromptTokens: 5}, 0, 0, 1, 0, 0, 6, 1},
		{"completion", groupOf(1, 1, 6), Options{MaxCompletionTokens: 5}, 0, 0, 1, 0, 0, 1, 1},
		{"positions", groupOf(5, 5, 5), Options{}, 8, 0, 1, 0, 0, 5, 5},
		{"positions just fit", groupOf(5, 5, 5), Options{}, 9, 1, 0, 0, 0, 5, 5},
		{"empty answer", groupOf(5, 0, 5), Options{}, 0, 0, 0, 1, 0, 5, 0},
		{"cut completions", groupOf(5, 9, 2), Options{MaxTokens: 10, Truncate: "completion"}, 0, 1, 0, 0, 1, 5, 5},
		{"never empties a completion", groupOf(12, 9, 2), Options{MaxTokens: 10, Truncate: "completion"}, 0, 0, 1, 0,
			0, 12, 9},
		{"cut prompt", groupOf(12, 4, 2), Options{MaxTokens: 10, Truncate: "prompt"}, 0, 1, 0, 0, 1, 6, 4},
		{"no room for a prompt", groupOf(12, 10, 2), Options{MaxTokens: 10, Truncate: "prompt"}, 0, 0, 1, 0, 0, 12, 10},
		{"cut both without a limit of their own", groupOf(3, 20, 5), Options{MaxTokens: 10, Truncate: "both"}, 0, 1, 0,
			0, 1, 1, 9},
		{"cut both", groupOf(12, 8, 2), Options{MaxTokens: 10, MaxCompletionTokens: 4, Truncate: "both"}, 0, 1, 0, 0,
			1, 6, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			groups := []Group{c.group}
			l := Limit(groups, c.options, c.positions, nil)
			if len(l.Keep) != c.keep || l.Dropped != c.dropped || l.Empty != c.empty || l.Truncated != c.truncated {
				t.Errorf("got %v", l)
			}
			if len(groups[0].Prompt) != c.p || len(groups[0].Answers[0]) != c.a0 {
				t.Errorf("prompt of %d, answer of %d tokens: want %d and %d", len(groups[0].Prompt),
					len(groups[0].Answers[0]), c.p, c.a0)
			}
			if n := len(groups[0].Prompt); n > 0 && groups[0].Prompt[n-1] != int32(len(c.group.Prompt)-1) {
				t.Error("truncation lost the prompt's last token")
			}
		})
	}
}

// TestLimitKeepsBOS: a prompt that is cut still begins as all texts do.
// TestLimitDropsEqualAnswers: of two answers that a cut makes equal none is preferred. One alone is trained on.
func TestLimitDropsEqualAnswers(t *testing.T) {
	groups := []Group{{Prompt: []int32{1}, Answers: [][]int32{{2, 3, 4}, {2, 3, 5}}}, groupOf(1, 2, 2), groupOf(1, 2)}
	l := Limit(groups, Options{MaxCompletionTokens: 2, Truncate: "completion"}, 0, nil)
	if want := "2 kept, 0 dropped as too long, 0 dropped as empty, 0 truncated, 1 dropped as equal"; l.String() != want {
		t.Errorf("%v, want %s", l, want)
	}
}

func TestLimitKeepsBOS(t *testing.T) {
	bos := int32(0)
	for _, c := range []struct {
		options Options
		want    []int32
	}{
		{Options{MaxPromptTokens: 3, Truncate: "prompt"}, []int32{0, 10, 11}},
		{Options{MaxPromptTokens: 1, Truncate: "prompt"}, []int32{11}},
		{Options{MaxTokens: 6, Truncate: "both"}, []int32{0, 11}},
	} {
		groups := []Group{groupOf(12, 8)}
		if l := Limit(groups, c.options, 0, &bos); !slices.Equal(groups[0].Prompt, c.want) || l.Truncated != 1 {
			t.Errorf("%+v: %v, want %v", c.options, groups[0].Prompt, c.want)
		}
	}
}
