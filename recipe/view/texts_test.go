package view

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/internal/page"
	"github.com/posttrain/posttrain/internal/testkit"
)

// sampleLine is a line of samples.jsonl. The answer has the required keyword in other letters, and a restricted one,
// which is among the thoughts, too.
func sampleLine(t *testing.T, step int, item string, number int, reward float64) string {
	t.Helper()
	completion := "Ben has the flu.\n</think>\n<answer>\n Dear JOSÉ, Ben has the flu. " + hostile + "\n</answer>"
	answer := "Dear JOSÉ, Ben has the flu. " + hostile
	places := func(flu int) []any {
		return []any{map[string]any{"keyword": "the flu", "at": flu}, map[string]any{"keyword": "key", "at": -1}}
	}
	row := map[string]any{"step": step, "item": item, "sample": number, "reward": reward, "format": true,
		"reason": "eos",
		"prompt": []map[string]string{{"role": "user", "content": "Write to José. " + hostile}}, "prefill": "<think>\n",
		"completion": completion, "answer": answer, "utility": true, "domain": "health",
		"required":   []any{map[string]any{"keyword": "José", "at": 5}},
		"restricted": places(20), "restricted_in_think": places(8)}
	text, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

// cirlRun is a run with samples of two validations.
func cirlRun(t *testing.T, dir string) {
	write(t, dir, configName, "command: ci-rl\nseed: 1\n")
	write(t, dir, metricsName, `{"step":0,"epoch":0,"eval_reward":0.1}`+"\n"+
		`{"step":20,"epoch":1,"eval_reward":0.4}`+"\n")
	write(t, dir, "samples.jsonl", sampleLine(t, 0, "a", 0, 0.25)+sampleLine(t, 0, "b", 0, 0)+
		sampleLine(t, 20, "a", 0, 1)+sampleLine(t, 20, "a", 1, 0.5))
	write(t, dir, "test-before.jsonl", sampleLine(t, 0, "c", 0, 0))
}

type samplesAnswer struct{ Sets []shownSet }

// TestSamples: the sets in the order of the training, and a sample with its keywords at their places.
func TestSamples(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cirl")
	cirlRun(t, dir)
	v := open(t, dir)
	var got []string
	for _, s := range ask[samplesAnswer](t, v, "samples").Sets {
		got = append(got, fmt.Sprint(s.Set, s.Label, s.Items, s.Rewards))
	}
	want := "0test before training[c] [0] 1step 0[a b] [0.25 0] 2step 20[a a, answer 2] [1 0.5]"
	if strings.Join(got, " ") != want {
		t.Errorf("%q, want %q", strings.Join(got, " "), want)
	}
	s := ask[shownSample](t, v, "sample?run=0&set=2&row=0")
	if fmt.Sprint(s.Keywords) != "[{José required true} {the flu restricted true} {key restricted false} "+
		"{the flu thought true}]" {
		t.Errorf("%+v", s.Keywords)
	}
	var text strings.Builder
	var marked []string
	for _, p := range s.Pieces {
		text.WriteString(p.Text)
		if p.Items != "" {
			marked = append(marked, p.Items+" "+p.Text)
		}
	}
	if strings.Join(marked, "; ") != "4 the flu; 1 JOSÉ; 2 the flu" || !strings.Contains(text.String(), hostile) ||
		!strings.HasPrefix(text.String(), "Ben has the flu.\n</think>") ||
		s.Prompt[0].Text != "Write to José. "+hostile {
		t.Errorf("%q: %s", marked, text.String())
	}
	for _, address := range []string{"sample?run=1&set=0&row=0", "sample?run=0&set=3&row=0",
		"sample?run=0&set=1&row=-1", "sample?run=x", "sample"} {
		w := httptest.NewRecorder()
		v.Handler(nil).ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1/api/"+address, nil))
		if w.Code != http.StatusNotFound || strings.Count(w.Body.String(), "\n") != 1 {
			t.Errorf("%s: %d %s", address, w.Code, w.Body)
		}
	}
	write(t, dir, "samples.jsonl", sampleLine(t, 0, "z", 0, 0)) // the run began anew
	if sets := ask[runsAnswer](t, v, "runs").Runs[0].Sets; sets != 2 {
		t.Errorf("%d sets", sets)
	}
}

// TestPlaces: a broken row, or one without keywords, is shown as it is.
func TestPlaces(t *testing.T) {
	for _, c := range []struct{ row, want string }{
		{`{"completion":"hello","answer":"","required":[{"keyword":"x","at":-1}]}`, "hello|"},
		{`{"completion":"hello"}`, "hello|"},
		{`{"completion":"<answer>ab</answer>","answer":"ab","required":[{"keyword":"abcdef","at":1}]}`,
			"<answer>a| b|1 </answer>|"},
		{`{"completion":"ab","answer":"elsewhere","required":[{"keyword":"e","at":0}]}`, "ab|"},
		{`{"completion":"ab","answer":"ab","restricted":[{"keyword":"ab","at":99}]}`, "ab|"},
		{`{"completion":"so <think>ab</think> ab","domain":"d","restricted_in_think":[{"keyword":"ab","at":0}]}`,
			"so <think>| ab|1 </think> ab|"},
	} {
		dir := t.TempDir()
		write(t, dir, "results.jsonl", c.row+"\n")
		write(t, dir, configName, "command: eval ci\n")
		s := ask[shownSample](t, open(t, dir), "sample?run=0&set=0&row=0")
		var got []string
		for _, p := range s.Pieces {
			got = append(got, p.Text+"|"+p.Items)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.row, got, c.want)
		}
	}
}

// lensRun is a reported run of PrivacyLens with two cases: the first leaks its first item, the second has no action.
func lensRun(t *testing.T, dir string, leaks bool) {
	cases := testkit.PrivacyCases(2)
	path := filepath.Join(filepath.Dir(dir), "cases.json")
	if err := lens.Write(path, cases); err != nil {
		t.Fatal(err)
	}
	write(t, dir, configName, fmt.Sprintf("command: eval privacylens\ndata:\n  cases: %q\n", path))
	item := cases[0].Trajectory.Items[0]
	action := "Send " + item + " " + hostile
	spans := []page.Span{{From: 5, To: 5 + len(item)}}
	first := map[string]any{"name": cases[0].Name, "source": "law", "transmission_principle": "send an email",
		"action_known": true, "final_action": "Thought: I write.\nAction: " + action, "action": action,
		"leaks": leaks, "helpfulness": 3, "items": []any{map[string]any{"item": item, "leaks": leaks,
			"parsed": true, "spans": spans, "reply": hostile}}}
	second := map[string]any{"name": cases[1].Name, "source": "law", "action_known": true, "no_action": true,
		"final_action": "No.", "helpfulness": 0, "items": []any{map[string]any{"item": "x", "parsed": true}}}
	var lines string
	for _, c := range []any{first, second} {
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		lines += string(text) + "\n"
	}
	write(t, dir, "cases.jsonl", lines)
	write(t, dir, "summary.json", "{}")
}

// TestCases: the cases of two runs with their counts, and one of them whole.
func TestCases(t *testing.T) {
	root := t.TempDir()
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	lensRun(t, a, true)
	lensRun(t, b, false)
	v := open(t, a, b)
	got := ask[struct {
		Rates []rate
		Notes []string
		Cases []shownCase
	}](t, v, "cases")
	if len(got.Cases) != 2 || len(got.Rates) != 2 || len(got.Notes) != 0 ||
		!strings.HasPrefix(got.Rates[0].Leakage, "50.0% (1/2, ") ||
		!strings.HasPrefix(got.Rates[1].Leakage, "0.0% (0/2, ") ||
		!strings.HasPrefix(got.Rates[0].Helpfulness, "1.50 (3/2, ") {
		t.Errorf("%+v", got)
	}
	if c := got.Cases[0]; !c.States[0].Leaks || c.States[1].Leaks || *c.States[0].Score != 3 || c.Task == "" ||
		!got.Cases[1].States[0].NoAction {
		t.Errorf("%+v", c)
	}
	whole := ask[wholeCase](t, v, "case?name="+got.Cases[0].Name)
	item := testkit.PrivacyCases(1)[0].Trajectory.Items[0]
	if d := whole.Runs[0]; len(whole.Runs) != 2 || d.Before != "Thought: I write." || d.Pieces[0].Text != "Send " ||
		d.Pieces[1] != (page.Piece{Text: item, Items: "1"}) || d.Pieces[2].Text != " "+hostile ||
		d.Items[0].Reply != hostile || whole.Past == "" || len(whole.Facts) == 0 {
		t.Errorf("%+v", whole)
	}
	d := ask[wholeCase](t, v, "case?name="+got.Cases[1].Name).Runs[0]
	if !d.NoAction || d.Final != "No." || d.Before != "" {
		t.Errorf("%+v", d)
	}
	w := httptest.NewRecorder()
	v.Handler(nil).ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1/api/case?name=nobody", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if r := ask[runsAnswer](t, v, "runs").Runs[0]; r.Cases != 2 || !r.Finished {
		t.Errorf("%+v", r)
	}
}

// TestWithoutStories: without the file of the cases the results are shown, and a note says what is missing.
func TestWithoutStories(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	lensRun(t, dir, true)
	if err := os.Remove(filepath.Join(filepath.Dir(dir), "cases.json")); err != nil {
		t.Fatal(err)
	}
	got := ask[struct{ Notes []string }](t, open(t, dir), "cases")
	if len(got.Notes) != 1 || !strings.HasPrefix(got.Notes[0], "a: tasks and stories are not shown") {
		t.Errorf("%q", got.Notes)
	}
}

// pageOfAll writes a page with every kind of run. page_test's script, look_view.mjs, knows its numbers.
func pageOfAll(t *testing.T, path string) {
	t.Helper()
	root := t.TempDir()
	mappo, trl := twoRuns(t)
	cirl, again := filepath.Join(root, "cirl"), filepath.Join(root, "again "+hostileName)
	cirlRun(t, cirl)
	cirlRun(t, again)
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	lensRun(t, a, true)
	lensRun(t, b, false)
	if err := open(t, mappo, trl, cirl, again, a, b).Write(path); err != nil {
		t.Fatal(err)
	}
}

// hostileName is a folder's name.
const hostileName = `<img src=x onerror="window.harm=1">`

// TestPageInBrowser: curves, samples, configs and cases are shown in jsdom, which runs the page's scripts.
func TestPageInBrowser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.html")
	command := testkit.Node(t, "jsdom", "../../scripts/page/look_view.mjs", path)
	pageOfAll(t, path)
	out, err := command.CombinedOutput()
	if err != nil || strings.Count(string(out), "ok ") < 8 {
		t.Errorf("%v:\n%s", err, out)
	}
}
