package ask

import (
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/reward"
)

// TestKeywords: required keywords less restricted ones, -1 where the format is broken, and no value without an item.
func TestKeywords(t *testing.T) {
	score := Keywords(reward.DefaultOptions())
	item := ci.Synthesize(1, 1)[0]
	q := &Question{Prompt: data.Text{Messages: ci.Prompt(item, ci.PromptCompact, 0)}, Item: &item}
	k := reward.Of(&item)
	said := func(words []string) string { return "<think></think><answer>" + strings.Join(words, " ") + "</answer>" }
	for answer, want := range map[string]float64{said(k.Required): 1, said(nil): 0, said(k.Restricted): -1, "no tags": -1} {
		if s := score(q, answer); s.Value != want || s.Missing != "" || (s.Fault != "") != (answer == "no tags") {
			t.Errorf("%s: %+v, want %v", answer, s, want)
		}
	}
	if s := score(&Question{}, said(nil)); !strings.Contains(s.Missing, "has no item") {
		t.Errorf("%+v, want no value", s)
	}
}
