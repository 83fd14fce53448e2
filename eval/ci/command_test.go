package ci

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func TestRun(t *testing.T) {
	o := Benchmark.Defaults()
	o.Agent.Backend, o.Agent.MaxNew, o.N, o.Show, o.Dir = "go", 4, 2, 1, filepath.Join(t.TempDir(), "a")
	got, _, err := Benchmark.Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if all := got.Report.All; all.Items != 2 || len(got.Answers) != 2 || got.LeftOut != 0 {
		t.Errorf("%+v", got)
	}
	for _, part := range []string{got.Answers[0].Answer.Text,
		"embedded: 2 held-out synthetic scenarios, prompt compact\n"} {
		if !strings.Contains(got.String(), part) {
			t.Errorf("lacks %q:\n%s", part, got.String())
		}
	}
	o.Samples, o.N, o.Dir = 2, 0, ""
	for _, want := range []string{"samples 2: at temperature 0", "n 0: want a whole number, 1 or more"} {
		if _, _, err := Benchmark.Run(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// What depends on other keys follows them, and what is resolved loads to the same options.
func TestSettles(t *testing.T) {
	t.Setenv("KEY", "x")
	for text, holds := range map[string]func(o *Options) bool{
		"": func(o *Options) bool {
			return o.N == 200 && o.Prompt == "compact" &&
				!o.Prefill && o.Agent.MaxNew == 128
		},
		"n: 3": func(o *Options) bool { return o.N == 3 },
		"data: d.json": func(o *Options) bool {
			return o.N == 0 && o.Prompt == "plain" &&
				o.Split == "test" && o.Agent.MaxNew == 2048
		},
		"data: d.json\nitems: released":              func(o *Options) bool { return o.Items == "released" },
		"data: d.json\nagent: {max_new_tokens: 128}": func(o *Options) bool { return o.Agent.MaxNew == 128 },
		"prompt: cot":                    func(o *Options) bool { return o.Prefill },
		"data: d.json\nsplit: all\nn: 7": func(o *Options) bool { return o.N == 7 && o.Split == "all" },
		"prompt: cot\nagent: {base_url: 'http://h/v1', api_model: m, api_key_env: KEY}": func(o *Options) bool {
			return !o.Prefill && o.Agent.Parallel == 8
		},
	} {
		o, err := Benchmark.Spec.Parse("f.yaml", []byte("command: eval ci\n"+text),
			config.Input{Allow: config.Anything})
		if err != nil || !holds(o) {
			t.Errorf("%q: %v, %+v", text, err, o)
			continue
		}
		again, err := Benchmark.Spec.Parse("config.yaml", Benchmark.Spec.Resolve(o),
			config.Input{Allow: config.Anything})
		if err != nil || !reflect.DeepEqual(o, again) {
			t.Errorf("%q: %v\n%s", text, err, Benchmark.Spec.Resolve(o))
		}
	}
}

// served are options of one scenario that a server answers.
func served(t *testing.T) Options {
	t.Helper()
	o := Benchmark.Defaults()
	o.N, o.Dir = 1, filepath.Join(t.TempDir(), "out")
	o.Agent.BaseURL, o.Agent.APIModel = testkit.StartJudge(t, testkit.JudgeOptions{}).URL, "m"
	return o
}

// TestShow prints the prompt, also where a template has a system message before it.
func TestShow(t *testing.T) {
	o := served(t)
	o.Show, o.Prompt = 1, filepath.Join(t.TempDir(), "own.tmpl")
	text := `{{define "system"}}Keep secrets.{{end -}}
Write for the {{.Sender}}: {{.Task}}{{range .Attributes}} {{.Key}}={{.Text}}{{end}}`
	expect.Write(t, o.Prompt, text)
	got, _, err := Benchmark.Run(t.Context(), o, nil)
	if err != nil || !strings.HasPrefix(got.String(), "Write for the ") {
		t.Errorf("%v, %v", err, got)
	}
}

// TestDiffers: episodes are not what the published figures are of.
func TestDiffers(t *testing.T) {
	o := Benchmark.Defaults()
	e := asking{Options: &o}
	before := len(e.differs(nil))
	o.Episodes.Turns = 8
	if lines := e.differs(nil); len(lines) != before+1 ||
		!slices.Contains(lines, "turns: 8 at most, with tools (published: one answer)") {
		t.Errorf("%q", lines)
	}
}
