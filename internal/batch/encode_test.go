package batch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/tokenizer"
)

func folder(t *testing.T, name string) *Encoder {
	t.Helper()
	tok, err := tokenizer.Load(filepath.Join("..", "..", "model", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return &Encoder{Tokenizer: tok}
}

// withTemplate is the tokenizer of a folder with another chat template; "" removes it.
func withTemplate(t *testing.T, name, template string) *Encoder {
	t.Helper()
	dir := filepath.Join("..", "..", "model", "testdata", name)
	files := fstest.MapFS{}
	if template != "" {
		files["chat_template.jinja"] = &fstest.MapFile{Data: []byte(template)}
	}
	for _, f := range []string{"tokenizer.json", "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		files[f] = &fstest.MapFile{Data: b}
	}
	tok, err := tokenizer.LoadFS(files, name)
	if err != nil {
		t.Fatal(err)
	}
	return &Encoder{Tokenizer: tok}
}

// TestTokensEqualTRLs: the boundary of prompt and completion falls where TRL's DPOTrainer has it.
func TestTokensEqualTRLs(t *testing.T) {
	pairs, _, err := data.ReadPreferences(filepath.Join("..", "..", "train", "testdata", "pairs.jsonl"),
		data.PreferenceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"qwen2-newer", "llama-newer"} {
		var want []struct {
			Prompt   []int32 `json:"prompt_ids"`
			Chosen   []int32 `json:"chosen_ids"`
			Rejected []int32 `json:"rejected_ids"`
		}
		b, err := os.ReadFile(filepath.Join("..", "..", "train", "testdata", "trl-tokens-"+name+".json"))
		if err == nil {
			err = json.Unmarshal(b, &want)
		}
		if err != nil || len(want) != len(pairs) {
			t.Fatal(len(want), err)
		}
		e := folder(t, name)
		for i, p := range pairs {
			g, err := e.Preference(p)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(g.Prompt, want[i].Prompt) || !slices.Equal(g.Answers[0], want[i].Chosen) ||
				!slices.Equal(g.Answers[1], want[i].Rejected) {
				t.Errorf("%s, pair %d: tokens %v\nTRL has %v", name, i, g, want[i])
			}
		}
	}
}

// TestBoundaryOnAwkwardText: whatever is at the boundary, prompt tokens are those of the prompt alone, as they are
// when a model is sampled, and prompt and completion together decode to the whole text.
func TestBoundaryOnAwkwardText(t *testing.T) {
	e := folder(t, "qwen2-newer")
	eos, _ := e.Tokenizer.EOS()
	for _, c := range [][2]string{
		{"The answer is", " 42"}, {"The answer is ", "42"}, {"in", "formation"}, {"line\n", "\n\nnext"}, {"a", "b"},
		{"e", "\u0301"},
		{"👩", "\u200d🔬"}, {"tab\t", "\t"}, {"<|im_", "end|>"}, {"x", "   "}, {"don", "'t"},
	} {
		g, err := e.Preference(data.Preference{Prompt: data.Text{Plain: c[0]}, Chosen: data.Text{Plain: c[1]},
			Rejected: data.Text{Plain: c[1] + "!"}})
		if err != nil {
			t.Fatal(err)
		}
		if alone, err := e.Tokenizer.Encode(c[0], true); err != nil || !slices.Equal(g.Prompt, alone) {
			t.Errorf("%q | %q: prompt tokens %v: alone they are %v", c[0], c[1], g.Prompt, alone)
		}
		a := g.Answers[0]
		if a[len(a)-1] != eos {
			t.Errorf("%q | %q: the completion ends in %d: want EOS %d", c[0], c[1], a[len(a)-1], eos)
		}
		if got := e.Tokenizer.Decode(append(slices.Clone(g.Prompt), a[:len(a)-1]...), false); got != c[0]+c[1] {
			t.Errorf("%q | %q decodes to %q", c[0], c[1], got)
		}
	}
	if e.Drift == 0 {
		t.Error("no pair of these merges across its boundary: the test tests nothing")
	}
}

// TestTemplateThatStripsThinkingKeepsIt: the data's text is trained, not what a template makes of it.
func TestTemplateThatStripsThinkingKeepsIt(t *testing.T) {
	e := withTemplate(t, "qwen2-newer", "{% for m in messages %}<|im_start|>{{ m.role }}\n"+
		"{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}<|im_end|>\n{% endfor %}"+
		"{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
	d := data.Demonstration{
		Prompt:     data.Text{Messages: []data.Message{{Role: "user", Content: "hello"}}},
		Completion: data.Text{Messages: []data.Message{{Role: "assistant", Content: "<think>so</think>yes"}}},
	}
	g, err := e.Demonstration(d, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := e.Tokenizer.Decode(g.Answers[0], false); got != "<think>so</think>yes<|im_end|>\n" {
		t.Errorf("the completion is %q: want the think block kept and the turn ended as the template ends it", got)
	}
}

func TestDemonstrations(t *testing.T) {
	e := folder(t, "qwen2-newer")
	chat := data.Demonstration{
		Prompt:     data.Text{Messages: []data.Message{{Role: "user", Content: "hello"}}},
		Completion: data.Text{Messages: []data.Message{{Role: "assistant", Content: "yes"}}},
	}
	completion, err := e.Demonstration(chat, false)
	if err != nil {
		t.Fatal(err)
	}
	all, err := e.Demonstration(chat, true)
	if err != nil {
		t.Fatal(err)
	}
	whole := append(slices.Clone(completion.Prompt), completion.Answers[0]...)
	if !slices.Equal(append(slices.Clone(all.Prompt), all.Answers[0]...), whole) || len(all.Prompt) != 1 {
		t.Errorf("loss on all tokens: %v: want the same text %v with all but the first token predicted", all, whole)
	}
	text, err := e.Demonstration(data.Demonstration{Completion: data.Text{Plain: "some text"}}, false)
	if err != nil {
		t.Fatal(err)
	}
	eos, _ := e.Tokenizer.EOS()
	if a := text.Answers[0]; len(text.Prompt) != 1 || a[len(a)-1] != eos {
		t.Errorf("plain text gives %v: want one token of prompt, and EOS %d at the end", text, eos)
	}
}

func TestConversationWithoutATemplateIsAnError(t *testing.T) {
	e := withTemplate(t, "qwen2-newer", "")
	_, err := e.Prompt(data.Text{Messages: []data.Message{{Role: "user", Content: "hello"}}})
	if err == nil || !strings.Contains(err.Error(), "chat template") {
		t.Errorf("error %v: want one that says the chat template is missing", err)
	}
}
