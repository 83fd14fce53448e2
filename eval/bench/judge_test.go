package bench

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// cutting is a server whose replies all meet their limit of tokens.
func cutting(t *testing.T, reply string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.ReplaceAll(testkit.Completion("", reply), []byte(`"stop"`), []byte(`"length"`)))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

// judged runs a benchmark of one question with this judge.
func judged(t *testing.T, o exampleOptions, dir string) (f Found, err error) {
	t.Helper()
	o.Dir = dir
	_, _, err = asked(true, &f).Run(t.Context(), o, nil)
	return f, err
}

// TestCutReplies: a judge's reply that met its limit may end before its verdict, and the report says so once.
func TestCutReplies(t *testing.T) {
	for cut, want := range map[bool]int{false: 0, true: 1} {
		o := answering(t, "Yes")
		if cut {
			o.Judge.BaseURL = cutting(t, "Yes")
		}
		f, err := judged(t, o, filepath.Join(t.TempDir(), "run"))
		if err != nil {
			t.Fatal(err)
		}
		warned := strings.Count(fmt.Sprint(f.Warnings), "1 of 1 replies of the judge met their length limit")
		if warned != want || f.Verdicts[[2]string{"1", "k"}].Cut != cut {
			t.Errorf("cut %v: %q, %+v", cut, f.Warnings, f.Verdicts)
		}
	}
}

// TestJudgeThinkOpened: where the judge's template opens the think block, what it says before the end of the block is
// no verdict.
func TestJudgeThinkOpened(t *testing.T) {
	for _, opened := range []bool{false, true} {
		o := answering(t, "Yes")
		o.Judge.ThinkOpened = opened
		dir := filepath.Join(t.TempDir(), "run")
		f, err := judged(t, o, dir)
		if (err != nil) != opened || !opened && !f.Verdicts[[2]string{"1", "k"}].Parsed {
			t.Errorf("think_opened %v: %v, %+v", opened, err, f.Verdicts)
		}
		settings, err := ReadSettings(dir)
		if got := settings[StageJudge]["think_opened"]; err != nil || (got == "true") != opened {
			t.Errorf("settings of think_opened %v: %q, %v", opened, got, err)
		}
	}
}

// TestLaterStages: a stage that reads what earlier ones have left refuses other answers, and another judge, than
// theirs.
func TestLaterStages(t *testing.T) {
	o, dir := answering(t, "Yes"), filepath.Join(t.TempDir(), "run")
	o.Agent.BaseURL, o.Agent.APIModel = "", ""
	o.Agent.Answers = expect.File(t, "a.jsonl", `{"id":"1","output":"one"}`)
	if _, err := judged(t, o, dir); err != nil {
		t.Fatal(err)
	}
	answers := expect.File(t, "b.jsonl", `{"id":"1","output":"two"}`)
	for _, c := range []struct {
		stage, want string
		change      func(o *exampleOptions)
	}{
		{StageReport, "", func(*exampleOptions) {}},
		{StageJudge, "stage answers was begun with contents", func(o *exampleOptions) { o.Agent.Answers = answers }},
		{StageReport, "stage answers was begun with contents", func(o *exampleOptions) { o.Agent.Answers = answers }},
		{StageReport, `stage judge was begun with model "judge", now it is "other"`,
			func(o *exampleOptions) { o.Judge.Model = "other" }},
		{StageReport, `stage judge was begun with kind "model", now it is "replay"`,
			func(o *exampleOptions) { o.Judgments = filepath.Join(dir, VerdictsName) }},
	} {
		other := o
		other.Stage = c.stage
		c.change(&other)
		_, err := judged(t, other, dir)
		if c.want == "" && err == nil {
			continue
		}
		expect.Error(t, err, c.want)
	}
}

// TestModelWithAdapter: a report names the adapter that was measured.
func TestModelWithAdapter(t *testing.T) {
	f := Found{Settings: Settings{StageAnswers: {"model": "base", "adapter": "mine"}}}
	if got := f.Model(Agent{}); got != "base with adapter mine" {
		t.Error(got)
	}
}

// TestOwnCacheOfServer: a run whose judge gave no verdict continues with another server's judge, which has the same
// name and answers for itself.
func TestOwnCacheOfServer(t *testing.T) {
	dir, silent := filepath.Join(t.TempDir(), "run"), answering(t, "perhaps")
	if _, err := judged(t, silent, dir); err == nil || !strings.Contains(err.Error(), "the judge gives no verdicts") {
		t.Fatal(err)
	}
	other := silent
	other.Judge.BaseURL = answering(t, "Yes").Judge.BaseURL
	f, err := judged(t, other, dir)
	if v := f.Verdicts[[2]string{"1", "k"}]; err != nil || !v.Parsed {
		t.Errorf("%v, %+v", err, v)
	}
}
