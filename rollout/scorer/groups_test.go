package scorer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/run"
)

// group is a plain prompt with answers.
func group(source string, answers ...string) Group {
	return Group{Prompt: data.Text{Plain: "Q"}, Answers: answers, Source: source}
}

// TestPairs: by hand. The unscored answer of the first prompt would be the best by its zero value.
func TestPairs(t *testing.T) {
	groups := []Group{group("a", "x", "y", "z"), group("b", "x", "y"), group("c", "x", "x"), group("d", "x", "y"),
		{Prompt: data.Text{Messages: []data.Message{{Role: "user", Content: "Q"}}}, Answers: []string{"u", "v"}}}
	none := Score{Why: "no"}
	scores := []Score{{Value: -3}, none, {Value: -1}, {Value: 2}, {Value: 2}, {Value: 1}, {Value: 2}, none,
		{Value: 4}, {Value: 5}, {Value: 1}}
	pairs, tally, err := Pairs(groups, scores)
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
	for want, c := range map[string]struct {
		groups []Group
		scores []Score
	}{
		"p:3: 1 answers: a pair wants two or more": {[]Group{group("p:3", "x")}, make([]Score, 1)},
		"no prompt of 2 gives a pair: 2 (all answers score the same) (mean score 0.5); sample more": {
			[]Group{group("a", "x", "y"), group("b", "x", "y")}, slices.Repeat([]Score{{Value: .5}}, 4)},
	} {
		if _, _, err := Pairs(c.groups, c.scores); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
}

// TestCISource: the reward of an item's keywords, mapped to [0, 1]; a prompt without an item has no score.
func TestCISource(t *testing.T) {
	o := Defaults()
	o.Kind = CI
	s, err := Open(o, Caller{})
	if err != nil {
		t.Fatal(err)
	}
	item := ci.Synthesize(1, 1)[0]
	perfect := ci.Reference(item, 0)
	g := Group{Prompt: data.Text{Messages: ci.Prompt(item, ci.PromptCompact, 0)}, Item: &item,
		Answers: []string{perfect, "no tags", "<think></think><answer></answer>"}}
	opened := Group{Item: &item, Prefilled: true, Answers: []string{strings.TrimPrefix(perfect, "<think>")}}
	scores, err := s.Score(t.Context(), Answers([]Group{g, opened, group("x", "y")}))
	if err != nil || fmt.Sprint(scores[:4]) != "[{1  []} {0  []} {0.5  []} {1  []}]" || scores[4].Why == "" {
		t.Errorf("%+v, %v", scores, err)
	}
}

// failing scores answers by their length, and fails from a call on.
type failing struct {
	calls int
	score func(a Answer) Score
}

func (f *failing) Batch() int   { return 5 }
func (f *failing) Close() error { return nil }
func (f *failing) Score(_ context.Context, answers []Answer) (scores []Score, err error) {
	if f.calls--; f.calls < 0 {
		return nil, errors.New("it died")
	}
	if len(answers)%2 != 0 {
		return nil, fmt.Errorf("%d answers, not those of whole pairs", len(answers))
	}
	for _, a := range answers {
		scores = append(scores, f.score(a))
	}
	return scores, nil
}

// TestKept: a source that fails loses its call alone; scores of other answers, and useless scores, are refused.
func TestKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scores")
	groups := []Group{group("a", "x", "xx"), group("b", "xxx", "xxxx"), group("c", "y", "yy")}
	keep := func(groups []Group, f *failing) (*Kept[Score], error) {
		return Scores(t.Context(), run.Listen(nil), path, f, Defaults(), Answers(groups), 2)
	}
	length := func(a Answer) Score { return Score{Value: float64(len(a.Response.Plain))} }
	if k, err := keep(groups, &failing{1, length}); err == nil || len(k.Done) != 4 {
		t.Fatal(k, err)
	}
	if _, err := keep(groups[1:], &failing{9, length}); err == nil || !strings.Contains(err.Error(), "other answers") {
		t.Error(err)
	}
	k, err := keep(groups, &failing{1, length})
	if err != nil || fmt.Sprint(k.Done) != "[{1  []} {2  []} {3  []} {4  []} {1  []} {2  []}]" {
		t.Error(k, err)
	}
	for want, score := range map[string]Score{"the score NaN to an answer of a: want a finite": {Value: math.NaN()},
		"4 of the first 4 answers have no score: no": {Why: "no"}} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		_, err := keep(groups, &failing{9, func(Answer) Score { return score }})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
}

// Answers that were drawn are not drawn again, and those of another run are refused.
func TestDrawnAnswersAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "answers")
	var calls [][2]int
	stop := errors.New("stop")
	draw := func(_ context.Context, from, to int) (answers [][]string, err error) {
		if calls = append(calls, [2]int{from, to}); len(calls) == 2 {
			return nil, stop
		}
		for i := from; i < to; i++ {
			answers = append(answers, []string{fmt.Sprint(i)})
		}
		return answers, nil
	}
	for _, want := range []error{stop, nil} {
		d, err := Keep[[]string](path, "these", 5, Drawn)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Fill(t.Context(), run.Listen(nil), "prompt", PromptsAtOnce(together/2), draw); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
		if got := fmt.Sprint(d.Done); want == nil && got != "[[0] [1] [2] [3] [4]]" {
			t.Errorf("answers %s", got)
		}
	}
	if got := fmt.Sprint(calls); got != "[[0 2] [2 4] [2 4] [4 5]]" {
		t.Errorf("calls %s: want two prompts a call, and those of the failed call again", got)
	}
	for _, other := range []struct {
		of      string
		prompts int
	}{{"others", 5}, {"these", 4}} {
		if _, err := Keep[[]string](path, other.of, other.prompts, Drawn); err == nil ||
			!strings.Contains(err.Error(), "has the answers of an interrupted run") {
			t.Errorf("%v: error %v", other, err)
		}
	}
}

// TestKeptOfOtherTools: scores of prompts with other tools are not taken.
func TestKeptOfOtherTools(t *testing.T) {
	with := func(tools string) []Answer {
		return []Answer{{Prompt: data.Text{Messages: []data.Message{{Role: "user", Content: "Q", Tools: tools}}}}}
	}
	o := Defaults()
	f, g, again := o.identify(with(`["f"]`)), o.identify(with(`["g"]`)), o.identify(with(`["f"]`))
	if f == g || f != again {
		t.Error("tools are not part of what scores are of")
	}
}

// TestScoresOfAnotherRubric: a rubric that was changed in its file gives other scores, which are not mixed.
func TestScoresOfAnotherRubric(t *testing.T) {
	dir := t.TempDir()
	path, rubric := filepath.Join(dir, "scores"), filepath.Join(dir, "rubric.txt")
	o := Defaults()
	o.Judge.Rubric = rubric
	for _, c := range []struct {
		text string
		same bool
	}{{"Rate {{.Answer}}.", true}, {"Rate {{.Answer}}.", true}, {"Rate {{.Answer}} harshly.", false}} {
		if err := os.WriteFile(rubric, []byte(c.text), 0o666); err != nil {
			t.Fatal(err)
		}
		length := func(a Answer) Score { return Score{Value: 1} }
		_, err := Scores(t.Context(), run.Listen(nil), path, &failing{9, length}, o, Answers([]Group{group("a", "x", "xx")}), 2)
		if (err == nil) != c.same {
			t.Errorf("%s: %v", c.text, err)
		}
	}
}
