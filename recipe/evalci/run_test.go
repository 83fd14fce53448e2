package evalci

import (
	"reflect"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
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
