package scorer

import (
	"strings"
	"testing"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
)

func TestCISource(t *testing.T) {
	s := openKinds(t, func(o *Options) { o.Kind = CI })
	item := ci.Synthesize(1, 1)[0]
	perfect := ci.Reference(item, 0)
	q := ask.Question{Prompt: data.Text{Messages: ci.Prompt(item, ci.PromptCompact, 0)}, Item: &item}
	opened := q
	opened.Opened = true
	answers := plain(perfect, "no tags", "<think></think><answer></answer>",
		strings.TrimPrefix(perfect, "<think>"), "x")
	for i := range 3 {
		answers[i].To = &q
	}
	answers[3].To = &opened
	scores, err := s.Score(t.Context(), answers)
	if err != nil || verdicts(scores[:4]) != "[{1 } {0 } {0.5 } {1 }]" || scores[4].Missing == "" {
		t.Errorf("%+v, %v", scores, err)
	}
}
