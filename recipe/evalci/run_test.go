package evalci

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit/need"
	"github.com/posttrain/posttrain/rollout/metered/meteredtest"
)

func TestRun(t *testing.T) {
	o := Defaults()
	o.Backend, o.N, o.MaxNew, o.Show = "go", 2, 4, 1
	got, err := Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if all := got.Report.All; all.Items != 2 || len(got.Samples) != 2 || got.Left.Count != 0 {
		t.Errorf("%+v", got)
	}
	for _, part := range []string{got.Samples[0].Answer.Text,
		"embedded: 2 held-out synthetic scenarios, prompt compact\n"} {
		if !strings.Contains(got.Summary, part) {
			t.Errorf("lacks %q:\n%s", part, got.Summary)
		}
	}
	o.Samples, o.N = 2, 0
	for _, want := range []string{"samples 2: at temperature 0", "n 0: want a whole number, 1 or more"} {
		if _, err := Run(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), want) {
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
				!o.Prefill && o.MaxNew == 128
		},
		"n: 3": func(o *Options) bool { return o.N == 3 },
		"data: d.json": func(o *Options) bool {
			return o.N == 0 && o.Prompt == "plain" &&
				o.Split == "test" && o.MaxNew == 2048
		},
		"data: d.json\nitems: released":     func(o *Options) bool { return o.Items == "released" },
		"data: d.json\nmax_new_tokens: 128": func(o *Options) bool { return o.MaxNew == 128 },
		"prompt: cot":                       func(o *Options) bool { return o.Prefill },
		"held_out: true":                    func(o *Options) bool { return false },
		"data: d.json\nsplit: all\nn: 7":    func(o *Options) bool { return o.N == 7 && o.Split == "all" },
		"prompt: cot\nserver: {base_url: 'http://h/v1', api_model: m, api_key_env: KEY}": func(o *Options) bool {
			return !o.Prefill && o.Server.Parallel == 8
		},
	} {
		o, err := Spec.Parse("f.yaml", []byte("command: eval ci\n"+text), config.Input{})
		if strings.HasPrefix(text, "held_out") {
			if err == nil {
				t.Errorf("%q: no error", text)
			}
			continue
		}
		if err != nil || !holds(o) {
			t.Errorf("%q: %v, %+v", text, err, o)
			continue
		}
		again, err := Spec.Parse("config.yaml", Spec.Resolve(o), config.Input{})
		if err != nil || !reflect.DeepEqual(o, again) {
			t.Errorf("%q: %v\n%s", text, err, Spec.Resolve(o))
		}
	}
}

// asking are options of one scenario that a server answers; asked is called at each request.
func asking(t *testing.T, asked func()) Options {
	t.Helper()
	s := meteredtest.Start(t, meteredtest.Options{Watch: func(string) { asked() }})
	o := Defaults()
	o.N, o.Out = 1, filepath.Join(t.TempDir(), "out")
	o.Server.BaseURL, o.Server.Model = s.URL, "m"
	return o
}

// TestOutIsMadeFirst: a folder that cannot be made is found before a model is asked.
func TestOutIsMadeFirst(t *testing.T) {
	requests := 0
	o := asking(t, func() { requests++ })
	if err := os.Symlink(filepath.Join("no", "such"), o.Out); err != nil {
		need.Linux(t, err)
	}
	if _, err := Run(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), "out cannot be made: ") {
		t.Error(err)
	}
	if requests > 0 {
		t.Errorf("%d requests", requests)
	}
}

// TestOutAfterFailure: a model that is not there leaves no folder behind.
func TestOutAfterFailure(t *testing.T) {
	o := asking(t, func() {})
	o.Model, o.Server = filepath.Join(t.TempDir(), "none"), Defaults().Server
	if _, err := Run(t.Context(), o, nil); err == nil {
		t.Error("no error without a model")
	}
	if _, err := os.Stat(o.Out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is there: %v", err)
	}
}

// TestOutFails: where a file cannot be written, the answers are there, whole, and so is the result.
func TestOutFails(t *testing.T) {
	var o Options
	o = asking(t, func() {
		if err := os.Mkdir(filepath.Join(o.Out, "summary.json"), 0o777); err != nil {
			t.Error(err)
		}
	})
	got, err := Run(t.Context(), o, nil)
	if err == nil || got == nil || !strings.Contains(got.Summary, "1 held-out synthetic scenarios") {
		t.Errorf("%v, %v", got, err)
	}
	rows, err := os.ReadFile(filepath.Join(o.Out, "results.jsonl"))
	if err != nil || strings.Count(string(rows), "\n") != 1 {
		t.Errorf("%s, %v", rows, err)
	}
}

// TestShow prints the prompt, also where a template has a system message before it.
func TestShow(t *testing.T) {
	o := asking(t, func() {})
	o.Show, o.Prompt = 1, filepath.Join(t.TempDir(), "own.tmpl")
	text := `{{define "system"}}Keep secrets.{{end -}}
Write for the {{.Sender}}: {{.Task}}{{range .Attributes}} {{.Key}}={{.Text}}{{end}}`
	if err := os.WriteFile(o.Prompt, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	got, err := Run(t.Context(), o, nil)
	if err != nil || !strings.HasPrefix(got.Summary, "Write for the ") {
		t.Errorf("%v, %v", err, got)
	}
}
