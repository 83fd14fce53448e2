package bench

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/rollout/metered"
	"github.com/posttrain/posttrain/rollout/metered/meteredtest"
)

// asked is a benchmark of one question, whose judge says Yes or something else; found gets what the report sees.
func asked(judged bool, found *Found) Bench {
	b := Bench{Command: "eval example", Items: []Item{{ID: "1", Turns: []string{"Hello?"}}}, Form: "Yes",
		Report: func(f *Found) error { *found = *f; return nil }, Config: func() []byte { return []byte("seed: 0\n") }}
	if judged {
		b.Questions = func(_ int, outputs []string) ([]Question, error) {
			return []Question{{ID: "1", Key: "k", Messages: []data.Message{{Role: "user", Content: outputs[0]}}}}, nil
		}
		b.Read = func(_ Question, r metered.Reply, v *Verdict) { v.Parsed, v.Said = r.Text == "Yes", r.Text }
	}
	return b
}

// answering is a server that gives every prompt the same answer.
func answering(t *testing.T, text string) BenchOptions {
	t.Helper()
	s := meteredtest.Start(t, meteredtest.Options{Reply: func(string) string { return text }})
	o := DefaultBench(0, 8, 8)
	o.Agent.BaseURL, o.Agent.APIModel = s.URL, "m"
	o.Judge.BaseURL, o.Judge.Model, o.Judge.Retries = s.URL, "judge", 0
	return o
}

// parsed are the options of a config of a benchmark.
func parsed(t *testing.T, text string) *BenchOptions {
	t.Helper()
	spec := &config.Spec[BenchOptions]{Command: "eval example", Choose: ChooseBench,
		Defaults: func(*config.Given) BenchOptions { return DefaultBench(0, 8, 8) },
		Check:    func(g *config.Given, o *BenchOptions) { o.CheckBench(g, Unjudged, "") },
		Idle:     func(o *BenchOptions) []string { return o.IdleBench() }}
	o, err := spec.Parse("f.yaml", []byte("command: eval example\n"+text), config.Input{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestThinkOpened: thoughts that were cut off are no answer where the server's chat template begins them.
func TestThinkOpened(t *testing.T) {
	for opened, want := range map[bool]string{false: "perhaps", true: "<think>perhaps"} {
		o := answering(t, "perhaps")
		o = *parsed(t, fmt.Sprintf("agent: {base_url: '%s', api_model: m, think_opened: %v}", o.Agent.BaseURL, opened))
		var f Found
		_, err := asked(false, &f).Run(t.Context(), o, Place{Dir: filepath.Join(t.TempDir(), "run")}, nil)
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
	o := DefaultBench(0, 2, 8)
	o.Agent.Model, o.Agent.Backend = folder(t, "{{ messages[-1].content }}"), "go"
	run := func(dir string, f *Found) error {
		b := asked(false, f)
		b.Items = append(b.Items, Item{ID: "2", Turns: []string{"And now?"}})
		_, err := b.Run(t.Context(), o, Place{Dir: dir}, nil)
		return err
	}
	dir, f := filepath.Join(t.TempDir(), "run"), Found{}
	if err := run(dir, &f); err != nil || len(f.Settings[StageAnswers]["weights"]) != 64 {
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
	if err := run(dir, &f); err != nil {
		t.Errorf("with all answers: %v", err)
	}
	if err := os.WriteFile(path, []byte(first+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := run(dir, &f); err == nil || !strings.Contains(err.Error(), "stage answers was begun with weights") {
		t.Errorf("with other weights: %v", err)
	}
}
