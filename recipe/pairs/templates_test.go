package pairs

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
)

// TestTemplates: the ideal answer of every kind of prompt has the full reward, which is the one that Run keeps.
func TestTemplates(t *testing.T) {
	for model, prompt := range map[string]string{"embedded": ci.PromptCompact, "any": ci.PromptCoT} {
		o := Spec.Defaults()
		o.Model, o.Templates, o.Write, o.N = model, true, Demonstrations, 20
		o.Out = filepath.Join(t.TempDir(), "demos.jsonl")
		if _, err := Run(t.Context(), o, nil); err != nil {
			t.Fatal(err)
		}
		demos, _, err := data.ReadDemonstrations(o.Out)
		if err != nil || len(demos) != 20 {
			t.Fatalf("prompt %s: %d of 20 ideal answers have the full reward, %v", prompt, len(demos), err)
		}
		for _, d := range demos {
			if text := d.Completion.Messages[0].Content; strings.Count(text, "<think>") != 1 {
				t.Fatalf("prompt %s: want one think block: %s", prompt, text)
			}
		}
	}
}

// TestTemplatesShareWithoutLeaking: of a text that would give a restricted keyword away, or is long, the keywords are
// shared. A keyword that the prompt lacks is not made up, so the demonstration is left out.
func TestTemplatesShareWithoutLeaking(t *testing.T) {
	d := func(text, word string) ci.DatasetItem {
		return ci.DatasetItem{UserTask: "Write.", Information: ci.Fields{{Key: "a", Text: text}, {Key: "b", Text: "Zed"}},
			Annotation: ci.Annotation{Allowed: ci.Keywords{{Key: "a", Words: []string{word}}},
				Disallowed: ci.Keywords{{Key: "b", Words: []string{"Zed"}}}}}
	}
	for _, c := range []struct{ text, word, want string }{
		{"at Noon sharp", "noon", "a: at Noon sharp\n"},
		{"Zed comes at noon", "noon", "a: noon\n"},
		{"noon " + strings.Repeat("x", 200), "noon", "a: noon\n"},
		{"A: when?\nB: noon", "noon", "a: noon\n"},
		{"at dusk", "noon", "a: at dusk\n"},
	} {
		got := ci.Ideal(ci.Item{DatasetItem: d(c.text, c.word)}, ci.PromptPlain, 1)
		if _, answer, _ := strings.Cut(got, "<answer>"); !strings.Contains(answer, c.want) {
			t.Errorf("%q with keyword %q: %q, want %q", c.text, c.word, answer, c.want)
		}
		if !strings.Contains(got, "- b: inappropriate") || strings.Contains(got, "Zed") {
			t.Errorf("%q: %q", c.text, got)
		}
	}
}
