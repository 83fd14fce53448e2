package ask

import (
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout"
)

// group are answers to a question.
func group(source string, texts ...string) (all []Answer) {
	q := &Question{Prompt: data.Text{Plain: "Q"}, Source: source}
	for _, text := range texts {
		all = append(all, Answer{Completion: rollout.Completion{Text: text}, To: q})
	}
	return all
}

// TestPairs: by hand. The unscored answer of the first prompt would be the best by its zero value.
func TestPairs(t *testing.T) {
	groups := [][]Answer{group("a", "x", "y", "z"), group("b", "x", "y"), group("c", "x", "x"), group("d", "x", "y"),
		group("e", "u", "v")}
	groups[4][0].To.Prompt = data.Text{Messages: []data.Message{{Role: "user", Content: "Q"}}}
	none := Score{Missing: "no"}
	Assign(groups, []Score{{Value: -3}, none, {Value: -1}, {Value: 2}, {Value: 2}, {Value: 1}, {Value: 2}, none,
		{Value: 4}, {Value: 5}, {Value: 1}})
	pairs, tally, err := Pairs(groups)
	if err != nil {
		t.Fatal(err)
	}
	if p := pairs[0]; p.Chosen.Plain != "z" || p.Rejected.Plain != "x" || p.ChosenScore != -1 ||
		p.RejectedScore != -3 || !p.Scored || p.Source != "a" {
		t.Errorf("%+v", p)
	}
	if p := pairs[1]; p.Chosen.Messages[0].Content != "u" || p.Rejected.Messages[0].Role != "assistant" {
		t.Errorf("%+v", p)
	}
	want := Tally{Prompts: 5, Pairs: 2, Ties: 1, Equal: 1, Short: 1, Unscored: 2, Mean: 13. / 9, Gap: 3}
	if tally != want {
		t.Errorf("%+v, want %+v", tally, want)
	}
	const line = "2 pairs of 5 prompts, mean score 1.444, mean gap 3; without a pair: 1 (all answers score the same), " +
		"1 (the best and the worst answer are equal), 1 (fewer than two answers have a score); 2 answers have no score"
	if tally.String() != line {
		t.Error(tally)
	}
}

func TestPairsRefuse(t *testing.T) {
	even := [][]Answer{group("a", "x", "y"), group("b", "x", "y")}
	Assign(even, slices.Repeat([]Score{{Value: .5}}, 4))
	for want, groups := range map[string][][]Answer{
		"p:3: 1 answers: a pair wants two or more": {group("p:3", "x")},

		"no prompt of 2 gives a pair: 2 (all answers score the same) (mean score 0.5); sample more": even,
	} {
		if _, _, err := Pairs(groups); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
}
