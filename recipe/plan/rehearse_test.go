package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	_ "github.com/posttrain/posttrain/internal/backend/backendtest" // its programs are not the user's
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/recipe"
)

// A family is a chat template with the tokenizer and the token ids of a model folder.
type family struct {
	folder   string
	template string // "": the folder's own
	end      string // the token that ends a turn
}

var families = map[string]family{
	"chatml":  {"qwen2-newer", "", "<|im_end|>"},
	"llama3":  {"llama-newer", "", "<|eot_id|>"},
	"mistral": {"mistral-newer", "", "</s>"},
	"gemma":   {"gemma2-newer", "", "<end_of_turn>"},
	"thinking": {"qwen3-newer", `{%- for m in messages %}
{%- set text = m.content %}
{%- if m.role == 'assistant' and not loop.last and '</think>' in text %}
{%- set text = text.split('</think>')[-1].lstrip('\n') %}
{%- endif %}
{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' and loop.last and '</think>' not in text %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{{- text + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}`, "<|im_end|>"},
	"zephyr": {"llama-newer", `{{- bos_token }}{%- for m in messages %}
{{- '<|' + m['role'] + '|>\n' + m['content'] + '<|eot_id|>' + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\n' }}{%- endif %}`, "<|eot_id|>"},
}

// stage is a folder and what is rehearsed with it, for a fault to be planted in.
type stage struct {
	family
	dir      string
	template string
	p        *recipe.Rehearsal
}

func newStage(t *testing.T, f family) *stage {
	t.Helper()
	s := &stage{family: f, dir: t.TempDir(), template: f.template}
	from := filepath.Join("..", "..", "model", "testdata", f.folder)
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
		"chat_template.jinja"} {
		text := expect.Bytes(t, filepath.Join(from, name))
		expect.Write(t, filepath.Join(s.dir, name), text)
		if name == "chat_template.jinja" && s.template == "" {
			s.template = string(text)
		}
	}
	s.p = &recipe.Rehearsal{Model: s.dir, LossOn: "completion"}
	for i := range 10 {
		s.p.Rows = append(s.p.Rows, data.Demonstration{Source: fmt.Sprint("row ", i+1),
			Prompt: data.Text{Messages: []data.Message{{Role: "system", Content: "Be brief."},
				{Role: "user", Content: fmt.Sprintf("What comes after %d?", i)}}},
			Completion: data.Text{Messages: []data.Message{{Role: "assistant",
				Content: fmt.Sprintf("<think>%d and one</think>\nIt is %d.", i, i+1)}}}})
	}
	return s
}

// edit changes a JSON file of the folder.
func (s *stage) edit(t *testing.T, name string, change func(m map[string]any)) {
	t.Helper()
	m := map[string]any{}
	expect.Decode(t, filepath.Join(s.dir, name), &m)
	change(m)
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	expect.Write(t, filepath.Join(s.dir, name), text)
}

func (s *stage) run(t *testing.T) (*Rehearsal, error) {
	t.Helper()
	expect.Write(t, filepath.Join(s.dir, "chat_template.jinja"), s.template)
	return Rehearse(t.Context(), s.p)
}

func (s *stage) answers(change func(m *data.Message)) {
	for i := range s.p.Rows {
		change(&s.p.Rows[i].Completion.Messages[0])
	}
}

// A plant is a fault, and what the finding or error says.
type plant struct {
	make func(t *testing.T, s *stage)
	want string
	not  []string // families that cannot have it
}

// withoutBOS are the families whose texts have no token that begins them.
var withoutBOS = []string{"chatml", "thinking"}

var plants = map[string]plant{
	"no end token": {func(_ *testing.T, s *stage) {
		s.template = strings.ReplaceAll(strings.ReplaceAll(s.template, s.end, ""), "eos_token", "''")
	}, "does not end with a token at which the model stops", nil},
	"wrong terminator": {func(t *testing.T, s *stage) {
		other := func(m map[string]any) { m["eos_token_id"] = 9 }
		s.edit(t, "config.json", other)
		s.edit(t, "generation_config.json", other)
	}, "does not end with a token at which the model stops", nil},
	"end token twice": {func(_ *testing.T, s *stage) {
		s.template = strings.ReplaceAll(strings.ReplaceAll(s.template, s.end, s.end+s.end), "eos_token",
			"eos_token + eos_token")
	}, "is not the answer's last", nil},
	"end token in pieces": {func(t *testing.T, s *stage) {
		s.edit(t, "tokenizer.json", func(m map[string]any) {
			m["added_tokens"] = slices.DeleteFunc(m["added_tokens"].([]any),
				func(a any) bool { return a.(map[string]any)["content"] == s.end })
		})
		s.edit(t, "tokenizer_config.json", func(m map[string]any) {
			delete(m, "added_tokens_decoder")
			delete(m, "additional_special_tokens")
			delete(m, "extra_special_tokens")
			if m["eos_token"] == s.end {
				delete(m, "eos_token")
			}
		})
		s.template = strings.ReplaceAll(s.template, "eos_token", "'"+s.end+"'")
		// The vocabulary of mistral has the token beside the added ones.
	}, "does not end with a token at which the model stops", []string{"mistral"}},
	"end token in the data": {func(_ *testing.T, s *stage) {
		s.answers(func(m *data.Message) { m.Content = "It is " + s.end + " so." })
	}, "is not the answer's last", nil},
	"two beginnings": {func(_ *testing.T, s *stage) {
		s.template = "{{- bos_token }}" + s.template
	}, "twice", withoutBOS},
	"no beginning": {func(_ *testing.T, s *stage) {
		s.template = strings.ReplaceAll(s.template, "bos_token", "''")
	}, "does not begin with", withoutBOS},
	"no weight": {func(_ *testing.T, s *stage) {
		s.answers(func(m *data.Message) { m.Untrained = true })
	}, `"train": false`, nil},
	"empty answers": {func(_ *testing.T, s *stage) {
		s.answers(func(m *data.Message) { m.Content = " " })
	}, "the answer is empty", nil},
	"answers cut": {func(_ *testing.T, s *stage) {
		s.p.Limits = batch.Options{MaxCompletionTokens: 4, Truncate: "completion"}
	}, "cut the answer's end away", nil},
	"thought is special": {func(t *testing.T, s *stage) {
		s.edit(t, "tokenizer.json", func(m map[string]any) {
			id := 0.0
			for _, of := range m["model"].(map[string]any)["vocab"].(map[string]any) {
				id = max(id, of.(float64))
			}
			for _, a := range m["added_tokens"].([]any) {
				id = max(id, a.(map[string]any)["id"].(float64))
			}
			m["added_tokens"] = append(m["added_tokens"].([]any), map[string]any{"id": id + 1, "content": "<think>",
				"special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
		})
		s.edit(t, "config.json", func(m map[string]any) { m["vocab_size"] = m["vocab_size"].(float64) + 8 })
	}, "marked as special", nil},
	"letters changed": {func(t *testing.T, s *stage) {
		s.edit(t, "tokenizer.json", func(m map[string]any) { m["normalizer"] = map[string]any{"type": "Lowercase"} })
	}, "are not among the tokens", nil},
	"system dropped": {func(_ *testing.T, s *stage) {
		s.template = "{%- set messages = messages[1:] %}" + s.template
	}, "a message of role system are not among the tokens", nil},
	"question dropped": {func(_ *testing.T, s *stage) {
		s.template = "{%- set ns = namespace(all=[]) %}{%- for m in messages %}{%- if m.role != 'user' %}" +
			"{%- set ns.all = ns.all + [m] %}{%- else %}" +
			"{%- set ns.all = ns.all + [{'role': 'user', 'content': ''}] %}" +
			"{%- endif %}{%- endfor %}{%- set messages = ns.all %}" + s.template
	}, "a message of role user are not among the tokens", nil},
	"words before the answer": {func(_ *testing.T, s *stage) {
		s.template = "{%- set ns = namespace(all=[]) %}{%- for m in messages %}{%- if m.role == 'assistant' %}" +
			"{%- set ns.all = ns.all + [{'role': 'assistant', 'content': 'Answer: ' + m.content}] %}{%- else %}" +
			"{%- set ns.all = ns.all + [m] %}{%- endif %}{%- endfor %}{%- set messages = ns.all %}" + s.template
	}, "learn to write more than the answer", nil},
	"vocabulary too small": {func(t *testing.T, s *stage) {
		s.edit(t, "config.json", func(m map[string]any) { m["vocab_size"] = m["vocab_size"].(float64) - 1 })
	}, "vocab_size", nil},
}

// TestPlants: each fault is found in each family from the tokens, and named.
func TestPlants(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(plants)) {
		for of, f := range families {
			if slices.Contains(plants[name].not, of) {
				continue
			}
			t.Run(name+"/"+of, func(t *testing.T) {
				plants[name].check(t, newStage(t, f))
			})
		}
	}
}

// check plants the fault and wants it found.
func (p plant) check(t *testing.T, s *stage) {
	t.Helper()
	p.make(t, s)
	result, err := s.run(t)
	text := fmt.Sprint(err)
	if err == nil {
		text = result.String()
	}
	if !strings.Contains(text, p.want) || err == nil && len(result.Findings) == 0 {
		t.Errorf("found %s\nwant %s", text, p.want)
	}
}

// TestClean: nothing is found where all is right.
func TestClean(t *testing.T) {
	for name, f := range families {
		t.Run(name, func(t *testing.T) {
			result, err := newStage(t, f).run(t)
			if err != nil || len(result.Findings) > 0 || result.Examined != 10 {
				t.Errorf("%+v, %v", result, err)
			}
		})
	}
}

// TestTwoStopTokens: a text may end with a turn's token and then the token that ends all texts, as Phi-3's do.
func TestTwoStopTokens(t *testing.T) {
	s := newStage(t, families["chatml"])
	for _, file := range []string{"config.json", "generation_config.json"} {
		s.edit(t, file, func(m map[string]any) { m["eos_token_id"] = []int{303, 301} })
	}
	text := s.template + "{%- if not add_generation_prompt %}{{- '\n<|endoftext|>' }}{%- endif %}"
	expect.Write(t, filepath.Join(s.dir, "chat_template.jinja"), text)
	s.p.Limits = batch.Defaults()
	x, err := open(s.p)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := x.encode(s.p.Rows)
	for _, r := range rows {
		x.examine(r)
	}
	if err != nil || len(rows) == 0 || len(x.findings) > 0 {
		t.Errorf("%d rows, %v, %v", len(rows), x.findings, err)
	}
}

// TestPlainText: prompts with completions in plain text, and texts alone.
func TestPlainText(t *testing.T) {
	for _, alone := range []bool{false, true} {
		s := newStage(t, families["chatml"])
		for i := range s.p.Rows {
			r := &s.p.Rows[i]
			r.Prompt, r.Completion = data.Text{Plain: r.Prompt.Messages[1].Content}, data.Text{
				Plain: " " + r.Completion.Messages[0].Content}
			if alone {
				r.Prompt, r.Completion.Plain = data.Text{}, r.Prompt.Plain+r.Completion.Plain
			}
		}
		result, err := s.run(t)
		if err != nil || len(result.Findings) > 0 {
			t.Errorf("%+v, %v", result, err)
		}
	}
}

// TestInterrupted: a rehearsal that is interrupted says so.
func TestInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err := Rehearse(ctx, newStage(t, families["chatml"]).p)
	if !errors.Is(err, recipe.ErrInterrupted) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}
