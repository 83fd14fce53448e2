package plan

import (
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// of a released template: the folder whose tokenizer is used and the tokens at which such a model stops, the first of
// which ends a turn.
type of struct {
	folder string
	ends   []string
	not    []string // faults that it cannot have, or has
}

// noStart are the faults of a first token, which texts of some models do not have.
var noStart = []string{"two beginnings", "no beginning"}

// released are templates of models, by their file in TRL's trl/chat_templates.
var released = map[string]of{
	"qwen2_5.jinja": {"qwen2-newer", []string{"<|im_end|>", "<|endoftext|>"}, noStart},
	"qwen3.jinja": {"qwen2-newer", []string{"<|im_end|>", "<|endoftext|>"}, []string{"two beginnings", "no beginning",
		"words before the answer"}}, // the template drops what is before the thoughts
	"qwen3_instruct_2507.jinja": {"qwen2-newer", []string{"<|im_end|>", "<|endoftext|>"}, noStart},
	"llama3.jinja":              {"llama-newer", []string{"<|eot_id|>", "<|end_of_text|>"}, nil},
	"llama3_1.jinja":            {"llama-newer", []string{"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"}, nil},
	"llama3_2.jinja":            {"llama-newer", []string{"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"}, nil},
	"gemma.jinja":               {"gemma2-newer", []string{"<end_of_turn>", "<eos>"}, []string{"system dropped"}},
	"gemma3.jinja":              {"gemma2-newer", []string{"<end_of_turn>", "<eos>"}, nil},
	"phi3.jinja":                {"phi3-newer", []string{"<|end|>", "<|endoftext|>"}, noStart},
	"phi3_5.jinja":              {"phi3-newer", []string{"<|end|>", "<|endoftext|>"}, noStart},
}

var markers = regexp.MustCompile(`<\|[a-z_0-9]+\|>`)

// TestReleasedTemplates: templates of released models raise no alarm, and the faults are found in them, too.
// scripts/oracle/released_templates.py makes the file, whose templates are not in this repository.
func TestReleasedTemplates(t *testing.T) {
	sources := releasedSources(t)
	for _, name := range slices.Sorted(maps.Keys(released)) {
		r, source := released[name], sources[name]
		if source == "" {
			t.Errorf("%s: the file has no such template", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			result, err := r.stage(t, source).run(t)
			if err != nil || len(result.Findings) > 0 {
				t.Errorf("%+v, %v", result, err)
			}
			for fault, plant := range plants {
				if !slices.Contains(r.not, fault) {
					t.Run(fault, func(t *testing.T) { plant.check(t, r.stage(t, source)) })
				}
			}
		})
	}
}

// releasedSources are the templates by the names of their files.
func releasedSources(t *testing.T) map[string]string {
	t.Helper()
	var f struct{ Sources map[string]string }
	expect.Decode(t, need.Path(t, "templates"), &f)
	return f.Sources
}

// stage is a folder with the template, whose tokenizer has the template's markers.
func (r of) stage(t *testing.T, source string) *stage {
	t.Helper()
	s := newStage(t, family{r.folder, source, r.ends[0]})
	s.p.Chat.Date = "2025-03-04" // Llama 3.2's prints the day
	var eos []any
	var size float64
	s.edit(t, "tokenizer.json", func(m map[string]any) { eos, size = r.addMarkers(m, source) })
	for _, file := range []string{"config.json", "generation_config.json"} {
		s.edit(t, file, func(m map[string]any) { m["eos_token_id"] = eos })
	}
	s.edit(t, "config.json", func(m map[string]any) { m["vocab_size"] = size })
	s.edit(t, "tokenizer_config.json", func(m map[string]any) { m["eos_token"] = r.ends[len(r.ends)-1] })
	if slices.Contains(r.not, "system dropped") { // the template refuses a system message
		for i := range s.p.Rows {
			s.p.Rows[i].Prompt.Messages = s.p.Rows[i].Prompt.Messages[1:]
		}
	}
	return s
}

// addMarkers adds the template's markers to a tokenizer.json and gives the ids of the tokens at which the model stops,
// and the number of ids. A tokenizer whose texts have no first token adds none.
func (r of) addMarkers(m map[string]any, source string) (eos []any, next float64) {
	added, ids := m["added_tokens"].([]any), map[string]any{}
	for _, a := range added {
		token := a.(map[string]any)
		ids[token["content"].(string)] = token["id"]
		next = max(next, token["id"].(float64)+1)
	}
	for _, id := range m["model"].(map[string]any)["vocab"].(map[string]any) {
		next = max(next, id.(float64)+1)
	}
	for _, marker := range append(markers.FindAllString(source, -1), r.ends...) {
		if ids[marker] == nil {
			ids[marker], next = next, next+1
			added = append(added, map[string]any{"id": ids[marker], "content": marker, "special": true,
				"single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
		}
	}
	m["added_tokens"] = added
	if slices.Contains(r.not, "no beginning") {
		m["post_processor"] = nil
	}
	for _, end := range r.ends {
		eos = append(eos, ids[end])
	}
	return eos, next
}
