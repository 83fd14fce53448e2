package ask

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/run"
)

// failing scores answers and dies after some calls. Its calls want whole pairs.
type failing struct {
	calls int
	score Rule
}

func (f *failing) Batch() int   { return 5 }
func (f *failing) Close() error { return nil }
func (f *failing) Score(ctx context.Context, answers []Answer) ([]Score, error) {
	if f.calls--; f.calls < 0 {
		return nil, errors.New("it died")
	}
	if len(answers)%2 != 0 {
		return nil, fmt.Errorf("%d answers, not those of whole pairs", len(answers))
	}
	return f.score.Score(ctx, answers)
}

// TestKept: a judge that fails loses its call alone; scores of other answers, and useless scores, are refused.
func TestKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scores")
	answers := slices.Concat(group("a", "x", "xx"), group("b", "xxx", "xxxx"), group("c", "y", "yy"))
	keep := func(of string, f *failing) (*Kept[Score], error) {
		return Scores(t.Context(), run.Listen(nil), path, of, f, answers, 2)
	}
	length := func(_ *Question, text string) Score { return Score{Value: float64(len(text))} }
	if k, err := keep("these", &failing{1, length}); err == nil || len(k.Done) != 4 {
		t.Fatal(k, err)
	}
	if _, err := keep("others", &failing{9, length}); err == nil || !strings.Contains(err.Error(), "other answers") {
		t.Error(err)
	}
	k, err := keep("these", &failing{1, length})
	want := []Score{{Value: 1}, {Value: 2}, {Value: 3}, {Value: 4}, {Value: 1}, {Value: 2}}
	if err != nil || !reflect.DeepEqual(k.Done, want) {
		t.Error(k, err)
	}
	for want, score := range map[string]Score{
		"the reward of a completion of a is NaN: want a finite": {Value: math.NaN()},
		"4 of the first 4 answers have no score: no":            {Missing: "no"},
	} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		_, err := keep("these", &failing{9, func(*Question, string) Score { return score }})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
}

// TestDrawnAnswersAreKept: answers that were drawn are not drawn again, and another run's are refused.
func TestDrawnAnswersAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "answers")
	var questions []Question
	for i := range 5 {
		questions = append(questions, Question{Source: fmt.Sprint(i)})
	}
	var calls []string
	stop := errors.New("stop")
	draw := func(_ context.Context, some []Question) (answers [][]Answer, err error) {
		if calls = append(calls, some[0].Source+"-"+some[len(some)-1].Source); len(calls) == 2 {
			return nil, stop
		}
		for _, q := range some {
			answers = append(answers, group("", q.Source))
		}
		return answers, nil
	}
	for _, want := range []error{stop, nil} {
		d, err := KeepTexts(path, "these", questions, together/2)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Fill(t.Context(), run.Listen(nil), draw); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
		if got := fmt.Sprint(d.Done); want == nil && got != "[[0] [1] [2] [3] [4]]" {
			t.Errorf("answers %s", got)
		}
		for i, g := range d.Answers() {
			if g[0].Text != fmt.Sprint(i) || g[0].To != &questions[i] {
				t.Errorf("answer %d: %+v", i, g)
			}
		}
	}
	if got := fmt.Sprint(calls); got != "[0-1 2-3 2-3 4-4]" {
		t.Errorf("calls %s: want two prompts a call, and those of the failed call again", got)
	}
	for _, other := range []struct {
		of      string
		prompts int
	}{{"others", 5}, {"these", 4}} {
		if _, err := KeepTexts(path, other.of, questions[:other.prompts], 1); err == nil ||
			!strings.Contains(err.Error(), "has the answers of an interrupted run") {
			t.Errorf("%v: error %v", other, err)
		}
	}
}
