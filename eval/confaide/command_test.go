package confaide

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/testkit"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	expect.Write(t, path, text)
	return path
}

// folder has tier 1 with four statements, and a meeting.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "tier_1.txt"), "A?\nB?\nC?\nD?\n")
	write(t, filepath.Join(dir, "tier_1_labels.txt"), "1\n2\n3\n4")
	write(t, filepath.Join(dir, "tier_4.txt"),
		"<BEGIN><the party, May 4>\nAda: A party for Kate.\n<END><the party,May 4>")
	return dir
}

// TestRun: samples are drawn from seeds of their own, answers are read without their thoughts, and the report has
// agreement, faults, published figures and what could not be read.
func TestRun(t *testing.T) {
	seeds := map[float64]bool{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Messages    []struct{ Content string }
			Temperature float64
			Seed        float64
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.Temperature != 1 || len(q.Messages) != 1 {
			t.Errorf("%v: %+v", err, q)
		}
		text := "<think>The party is on May 4.</think>We meet on May 4."
		for i, name := range []string{"A?", "B?", "C?", "D?"} {
			if strings.HasPrefix(q.Messages[0].Content, name) {
				text = []string{"1", "3)", "2) not too sensitive", "<think>none"}[i]
			}
		}
		if !seeds[q.Seed] && text == "1" {
			text = "very sensitive"
		}
		seeds[q.Seed] = true
		_, _ = w.Write(testkit.Completion("", text))
	}))
	t.Cleanup(s.Close)
	o := Benchmark.Defaults()
	o.Data, o.Tiers, o.Samples, o.Questions = folder(t), []string{"1", "4"}, 2, []string{"meeting-summary"}
	o.Agent.BaseURL, o.Agent.APIModel, o.Agent.Parallel = s.URL+"/v1", "m", 1
	dir := filepath.Join(t.TempDir(), "run")
	o.Dir = dir
	result, at, err := Benchmark.Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(seeds) != 2*5 {
		t.Errorf("%d seeds of 10 answers", len(seeds))
	}
	a := result.Parts[0].Agreement // people 1, 2, 3; means 4, 3, 2
	if result.Model != "m" || a.Correlation.Value() != -1 || a.Correlation.Pairs() != 3 ||
		a.UnparsedAsZero.Pairs() != 4 {
		t.Errorf("%+v: %+v", result, a)
	}
	for i, want := range []int{0, 0, 0} { // leak, omission, either
		if f := result.Parts[1].Faults[i]; f.Mean.Share().Count != want || f.Worst.Count != want || f.Worst.Total != 1 {
			t.Errorf("%+v", f)
		}
	}
	for _, want := range []string{"m, 2 answers to each question, prompts in our own words\n",
		"warning: tier 1: 2 of 8 answers have no rating",
		"warning: 2 of 10 answers never close their think block: they are read as empty; allow more tokens",
		"warning: tier 1: 1 of 4 cases have no answer"} {
		if !strings.Contains(result.String(), want) {
			t.Errorf("%s lacks %q", result, want)
		}
	}
	cases := string(expect.Bytes(t, filepath.Join(dir, "cases.jsonl")))
	for _, want := range []string{`"scores":{"1/rating":4}`, `"4/meeting-summary/leak":0`} { // runs are compared by them
		if !strings.Contains(cases, want) {
			t.Errorf("%s lacks %q", cases, want)
		}
	}
	if !strings.Contains(at.Figures, "gpt-4-0613") || !strings.Contains(at.Figures, "38.5/80.0") {
		t.Error(at.Figures)
	}
}

// TestCoT: the dissertation's text follows each question in the place of the word that answers begin with, and the
// answer is what the tags hold: the party in the thoughts and behind the answer is no leak.
func TestCoT(t *testing.T) {
	s := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(prompt string) string {
		question, found := strings.CutSuffix(prompt, "\n\n"+strings.TrimSpace(ci.CoT))
		if !found || strings.HasSuffix(question, "Answer:") || !strings.Contains(question, "?") &&
			!strings.Contains(question, "Ada: ") {
			t.Errorf("%q", prompt)
		}
		if strings.HasPrefix(question, "B?") {
			return "<think>4) or 1)</think> So:\n<answer>\n2) not too sensitive\n</answer> 3)"
		}
		return "<think>the party</think><answer>May 4: 1)</answer> the party"
	}})
	o := Benchmark.Defaults()
	o.Data, o.Tiers, o.Samples, o.Questions, o.Prompt = folder(t), []string{"1", "4"}, 1, []string{MeetingSummary}, CoT
	o.Agent.BaseURL, o.Agent.APIModel, o.Dir = s.URL, "m", filepath.Join(t.TempDir(), "run")
	result, at, err := Benchmark.Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p := result.Parts[0]; p.Unparsed != 3 || p.Agreement.Model.Value() != 2 {
		t.Errorf("%+v", p)
	}
	for _, f := range result.Parts[1].Faults {
		if f.Mean.Share().Count != 0 {
			t.Errorf("%+v", f)
		}
	}
	if !strings.Contains(result.String(), "prompts in our own words with CI-CoT\n") {
		t.Error(result)
	}
	for _, want := range []string{"tables 5 to 7", "0.91", "prompts in our own words with CI-CoT (published: the benchmark's",
		"1 answers to each question (of the six models: 10)"} {
		if !strings.Contains(at.Figures, want) {
			t.Errorf("lacks %q: %s", want, at.Figures)
		}
	}
}

// TestTiers: a tier may be written as a number or a text.
func TestTiers(t *testing.T) {
	for tiers, want := range map[string]string{"[1, 2a]": "", `["1", 2a]`: "", "[0x1]": "tiers [0x1]", "[]": "tiers []",
		"[1, 5]": "tiers [1, 5]: want some of 1, 2a, 2b, 3 and 4"} {
		o, err := Benchmark.Parse("f.yaml", []byte("command: eval confaide\ndata: d\nagent: {model: m}\ntiers: "+tiers), config.Input{})
		if want == "" && err == nil && o.Tiers[0] == "1" && o.Tiers[1] == "2a" {
			continue
		}
		if want == "" || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v: want %s", tiers, o, err, want)
		}
	}
}

// TestDate: the config of a run whose template prints the date has the day of its start.
func TestDate(t *testing.T) {
	o := Benchmark.Defaults()
	o.Data, o.Tiers = folder(t), []string{"1"}
	o.Agent.Model, o.Agent.Backend, o.Agent.MaxNew = "embedded", "go", 2
	o.Agent.Chat.Template = write(t, filepath.Join(t.TempDir(), "dated.jinja"), "{{ strftime_now('%Y') }}: ")
	dir := filepath.Join(t.TempDir(), "run")
	o.Dir = dir
	if _, _, err := Benchmark.Run(t.Context(), o, nil); err != nil {
		t.Fatal(err)
	}
	again, err := Benchmark.Load(config.Input{Path: filepath.Join(dir, "config.yaml")})
	if err != nil || again.Agent.Chat.Date == "" || again.Agent.Chat.SHA256 == "" {
		t.Errorf("%v, %+v", err, again)
	}
}
