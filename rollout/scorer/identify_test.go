package scorer

import (
	"path/filepath"
	"testing"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestKeptOfOtherTools: scores of prompts with other tools are not taken.
func TestKeptOfOtherTools(t *testing.T) {
	with := func(tools string) []ask.Answer {
		prompt := data.Text{Messages: []data.Message{{Role: "user", Content: "Q", Tools: tools}}}
		return []ask.Answer{{To: &ask.Question{Prompt: prompt}}}
	}
	o := Defaults()
	f, g, again := o.identify(with(`["f"]`)), o.identify(with(`["g"]`)), o.identify(with(`["f"]`))
	if f == g || f != again {
		t.Error("tools are not part of what scores are of")
	}
}

// TestScoresOfAnotherRubric: a rubric that was changed in its file gives other scores, which are not mixed; nor are
// the scores of other answers.
func TestScoresOfAnotherRubric(t *testing.T) {
	dir := t.TempDir()
	path, rubric := filepath.Join(dir, "scores"), filepath.Join(dir, "rubric.txt")
	o := Defaults()
	o.Judge.Rubric = rubric
	same := ask.Rule(func(*ask.Question, string) ask.Score { return ask.Score{Value: 1} })
	for _, c := range []struct {
		text, answer string
		same         bool
	}{{"Rate {{.Answer}}.", "xx", true}, {"Rate {{.Answer}}.", "xx", true}, {"Rate {{.Answer}}.", "yy", false},
		{"Rate {{.Answer}} harshly.", "xx", false}} {
		expect.Write(t, rubric, c.text)
		_, err := o.Scores(t.Context(), run.Listen(nil), path, same, plain("x", c.answer), 2)
		if (err == nil) != c.same {
			t.Errorf("%s, %s: %v", c.text, c.answer, err)
		}
	}
}
