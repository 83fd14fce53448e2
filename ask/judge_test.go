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

// TestAnswersOfOthers: answers that are not for a judge are unscored, and not lost; what is left out of sums is
// counted.
func TestAnswersOfOthers(t *testing.T) {
	scores := []Score{{Missing: NotItsOwn}, {Value: 1, Without: []int{0, 2}}, {Missing: "no line"},
		{Missing: NotItsOwn}}
	if n, why := Unscored(scores); n != 3 || why != NotItsOwn {
		t.Errorf("%d unscored, %s", n, why)
	}
	if n, why := Lost(scores); n != 1 || why != "no line" || LeftOut(scores) != 2 || !scores[1].Skips(2) ||
		scores[1].Skips(1) {
		t.Errorf("%d lost, %s, %d left out", n, why, LeftOut(scores))
	}
}
