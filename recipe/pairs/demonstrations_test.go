package pairs

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// rejection has the demonstrations of answers to an item that is put to a model several times.
func rejection(t *testing.T, o Options, q ask.Question, answers ...[]string) ([]string, string) {
	t.Helper()
	o.Out = filepath.Join(t.TempDir(), "demos.jsonl")
	w := &work{Reporter: run.Listen(nil), o: o}
	for _, texts := range answers {
		q.Prompt = data.Text{Messages: []data.Message{{Role: "user", Content: "Q"}}}
		var g []ask.Answer
		for _, text := range texts {
			g = append(g, ask.Answer{To: &q, Completion: rollout.Completion{Text: text}})
		}
		w.groups = append(w.groups, g)
	}
	o.Reward.Kind = scorer.CI
	source, err := scorer.Open(o.Reward, scorer.Caller{})
	if err != nil {
		t.Fatal(err)
	}
	scores, err := source.Score(t.Context(), slices.Concat(w.groups...))
	if err != nil {
		t.Fatal(err)
	}
	ask.Assign(w.groups, scores)
	result, err := w.demonstrations()
	if err != nil {
		return nil, err.Error()
	}
	var texts []string
	for _, d := range result.Demonstrations {
		texts = append(texts, d.Completion.Messages[0].Content)
	}
	return texts, result.Summary
}

// TestRejection: by hand.
func TestRejection(t *testing.T) {
	item := ci.Synthesize(1, 1)[0]
	perfect, broken := ci.Reference(item, 0), "no tags"
	silent := "<think></think><answer></answer>" // nothing required, nothing restricted: score 1/2
	for _, c := range []struct {
		least   float64
		most    int
		want    []string
		summary string
	}{
		{1, 0, []string{perfect}, "2 of 6 answers have a score of 1 or more (mean 0.417), to 1 of 2 prompts"},
		{0.5, 0, []string{perfect, silent}, "3 of 6 answers"}, {0.5, 1, []string{perfect}, "3 of 6 answers"},
		{0, 0, []string{perfect, silent, broken, broken}, "6 of 6 answers have a score of 0 or more (mean 0.417), to 2 of"},
		{2, 0, nil, "no answer has a score of 2 or more: the best of 6 has 1.00, the mean is 0.42"},
	} {
		o := Spec.Defaults()
		o.MinScore, o.Most = c.least, c.most
		got, summary := rejection(t, o, ask.Question{Item: &item}, []string{broken, silent, perfect, perfect},
			[]string{broken, broken})
		if !slices.Equal(got, c.want) || !strings.Contains(summary, c.summary) {
			t.Errorf("least %v, most %d: %q, %s", c.least, c.most, got, summary)
		}
	}
}

// TestRejectionPrefilled: the prefill belongs to the demonstration, unless the chat template writes it.
func TestRejectionPrefilled(t *testing.T) {
	item := ci.Synthesize(1, 1)[0]
	tail := strings.TrimPrefix(ci.Reference(item, 0), "<think>")
	for _, c := range []struct {
		prefill string
		opens   bool
		want    []string
	}{{ci.ThinkPrefill, false, []string{ci.ThinkPrefill + tail}}, {ci.ThinkPrefill, true, []string{tail}},
		{"", true, []string{tail}}, {"", false, nil}} {
		got, _ := rejection(t, Spec.Defaults(), ask.Question{Item: &item, Prefill: c.prefill, Opened: c.opens}, []string{tail})
		if !slices.Equal(got, c.want) {
			t.Errorf("prefill %q, template opens %v: %q, want %q", c.prefill, c.opens, got, c.want)
		}
	}
}

// TestDemonstrationsOfAFile: the least score of prompts of a file must be given, and options that have it can run.
func TestDemonstrationsOfAFile(t *testing.T) {
	set := []string{"model=embedded", "input=p.jsonl", "write=demonstrations", "reward.kind=pattern", "reward.pattern=x", "out=d.jsonl"}
	_, err := Spec.Load(config.Input{Overrides: testkit.Overrides(t, set...)})
	expect.Error(t, err, "min_score is missing")
	o, err := Spec.Load(config.Input{Overrides: testkit.Overrides(t, append(set, "min_score=0.5")...)})
	if err == nil {
		err = Spec.Verify(o)
	}
	if err != nil {
		t.Error(err)
	}
}
