package bench

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/rollout/metered"
)

// exampleOptions are the options of a benchmark with or without a judge.
type exampleOptions struct {
	Judged `yaml:",inline" defaults:"agent.max_new_tokens=8 judge.max_new_tokens=8"`
}

// NeedsJudge says that a judge is named.
func (o *exampleOptions) NeedsJudge() bool { return o.Judge.Model != "" }

type found struct {
	*Found `json:"-"`
}

func (found) String() string { return "counted" }

// asked is a benchmark of one question, whose judge says Yes or something else; found gets what the report sees.
func asked(judged bool, f *Found, more ...Item) *Benchmark[exampleOptions, found] {
	bench := &Protocol{Items: append([]Item{{ID: "1", Turns: []string{"Hello?"}}}, more...), Form: "Yes",
		Report: func(got *Found) (fmt.Stringer, []any, error) { *f = *got; return found{got}, nil, nil }}
	if judged {
		bench.Questions = func(_ int, outputs []string) ([]Question, error) {
			return []Question{{ID: "1", Key: "k", Messages: []data.Message{{Role: "user", Content: outputs[0]}}}}, nil
		}
		bench.Read = func(_ Question, r metered.Reply, v *Verdict) { v.Parsed, v.Said = r.Text == "Yes", r.Text }
	}
	return New(Benchmark[exampleOptions, found]{Spec: &config.Spec[exampleOptions]{Command: "eval example"},
		Open: func(*exampleOptions, run.Reporter) (*Protocol, error) { return bench, nil }})
}

// answering is a server that gives every prompt the same answer.
func answering(t *testing.T, text string) exampleOptions {
	t.Helper()
	s := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(string) string { return text }})
	o := config.Default[exampleOptions]()
	o.Agent.BaseURL, o.Agent.APIModel = s.URL, "m"
	o.Judge.BaseURL, o.Judge.Model, o.Judge.Retries = s.URL, "judge", 0
	return o
}

// parsed are the options of a config of a benchmark.
func parsed(t *testing.T, text string) *exampleOptions {
	t.Helper()
	o, err := asked(false, nil).Parse("f.yaml", []byte("command: eval example\n"+text), config.Input{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestOtherRun: an evaluation leaves the folder of another command's run as it is.
func TestOtherRun(t *testing.T) {
	o := answering(t, "Yes")
	o.Dir = t.TempDir()
	path := filepath.Join(o.Dir, "config.yaml")
	expect.Write(t, path, "command: mappo\n")
	_, _, err := asked(false, &Found{}).Run(t.Context(), o, nil)
	expect.Error(t, err, `config.yaml: its command is "mappo": want the folder of a run of "eval example", or a new one`)
	if all, err := os.ReadDir(o.Dir); err != nil || len(all) != 1 || string(expect.Bytes(t, path)) != "command: mappo\n" {
		t.Errorf("%v, %v", all, err)
	}
}

// TestThinkOpened: thoughts that were cut off are no answer where the server's chat template begins them.
func TestThinkOpened(t *testing.T) {
	for opened, want := range map[bool]string{false: "perhaps", true: "<think>perhaps"} {
		o := answering(t, "perhaps")
		o = *parsed(t, fmt.Sprintf("agent: {base_url: '%s', api_model: m, think_opened: %v}", o.Agent.BaseURL, opened))
		var f Found
		o.Dir = filepath.Join(t.TempDir(), "run")
		_, _, err := asked(false, &f).Run(t.Context(), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Outputs("1")[0]; got != want {
			t.Errorf("think_opened %v: %q, want %q", opened, got, want)
		}
		if got := f.Settings[StageAnswers]["think_opened"]; (got == "true") != opened {
			t.Errorf("settings of think_opened %v: %q", opened, got)
		}
	}
}

// TestWeights: answers continue with the weights that they began with, and a run that has all of them needs no model.
func TestWeights(t *testing.T) {
	o := config.Default[exampleOptions]("agent.max_new_tokens=2")
	o.Agent.Model, o.Agent.Backend = folder(t, "{{ messages[-1].content }}"), "go"
	measure := func(dir string, f *Found) error {
		o.Dir = dir
		_, _, err := asked(false, f, Item{ID: "2", Turns: []string{"And now?"}}).Run(t.Context(), o, nil)
		return err
	}
	dir, f := filepath.Join(t.TempDir(), "run"), Found{}
	if err := measure(dir, &f); err != nil || len(f.Settings[StageAnswers]["weights"]) != 64 {
		t.Fatalf("%v, %v", err, f.Settings)
	}
	path := filepath.Join(dir, AnswersName)
	all, err := os.ReadFile(path)
	first, _, _ := strings.Cut(string(all), "\n")
	weights := filepath.Join(o.Agent.Model, "model.safetensors")
	text, readErr := os.ReadFile(weights)
	text[len(text)-1] ^= 1
	if err = cmp.Or(err, readErr, os.WriteFile(weights, text, 0o666)); err != nil {
		t.Fatal(err)
	}
	if err := measure(dir, &f); err != nil {
		t.Errorf("with all answers: %v", err)
	}
	expect.Write(t, path, first+"\n")
	if err := measure(dir, &f); err == nil || !strings.Contains(err.Error(), "stage answers was begun with weights") {
		t.Errorf("with other weights: %v", err)
	}
}
