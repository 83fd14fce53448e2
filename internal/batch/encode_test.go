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
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/tokenizer"
)

func folder(t *testing.T, name string) *Encoder {
	t.Helper()
	tok := expect.Must(tokenizer.Load(filepath.Join("..", "..", "model", "testdata", name)))(t)
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
		b := expect.Bytes(t, filepath.Join(dir, f))
		files[f] = &fstest.MapFile{Data: b}
	}
	tok := expect.Must(tokenizer.LoadFS(files, name))(t)
	return &Encoder{Tokenizer: tok}
}

// TestTokensEqualTRLs: the boundary of prompt and completion falls where TRL's DPOTrainer has it.
func TestTokensEqualTRLs(t *testing.T) {
	pairs, _, err := data.ReadPreferences(filepath.Join("..", "..", "train", "testdata", "pairs.jsonl"),
		data.PreferenceOptions{})
	expect.OK(t, err)
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
			g := expect.Must(e.Preference(p))(t)
			if !slices.Equal(g.Prompt, want[i].Prompt) || !slices.Equal(g.Answers[0], want[i].Chosen) ||
				!slices.Equal(g.Answers[1], want[i].Rejected) {
				t.Errorf("%s, pair %d: tokens %v\nTRL has %v", name, i, g, want[i])
			}
		}
	}
}

// TestBoundaryOnAwkwardText: whatever is at the boundary, the prompt has the same tokens as alone, which a model is
// sampled with, and prompt and completion together decode to the whole text.
func TestBoundaryOnAwkwardText(t *testing.T) {
	e := folder(t, "qwen2-newer")
	eos, _ := e.Tokenizer.EOS()
	for _, c := range [][2]string{
		{"The answer is", " 42"}, {"The answer is ", "42"}, {"in", "formation"}, {"line\n", "\n\nnext"}, {"a", "b"},
		{"e", "\u0301"},
		{"👩", "\u200d🔬"}, {"tab\t", "\t"}, {"<|im_", "end|>"}, {"x", "   "}, {"don", "'t"},
	} {
		g := expect.Must(e.Preference(data.Preference{Prompt: data.Text{Plain: c[0]}, Chosen: data.Text{Plain: c[1]},
			Rejected: data.Text{Plain: c[1] + "!"}}))(t)
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
	g := expect.Must(e.Demonstration(d, Completion))(t)
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
	completion := expect.Must(e.Demonstration(chat, Completion))(t)
	all := expect.Must(e.Demonstration(chat, All))(t)
	whole := append(slices.Clone(completion.Prompt), completion.Answers[0]...)
	if !slices.Equal(append(slices.Clone(all.Prompt), all.Answers[0]...), whole) || len(all.Prompt) != 1 {
		t.Errorf("loss on all tokens: %v: want the same text %v with all but the first token predicted", all, whole)
	}
	text := expect.Must(e.Demonstration(data.Demonstration{Completion: data.Text{Plain: "some text"}}, Completion))(t)
	eos, _ := e.Tokenizer.EOS()
	if a := text.Answers[0]; len(text.Prompt) != 1 || a[len(a)-1] != eos {
		t.Errorf("plain text gives %v: want one token of prompt, and EOS %d at the end", text, eos)
	}
}

func TestConversationWithoutATemplateIsAnError(t *testing.T) {
	e := withTemplate(t, "qwen2-newer", "")
	_, err := e.Prompt(data.Text{Messages: []data.Message{{Role: "user", Content: "hello"}}})
	expect.Error(t, err, "chat template")
}

// TestMarksAtBoundaries: tokenizers of Llama 2's and Mistral's kind, which put a blank before every text, train the
// text of the data. The whole text's tokens come from tokenizers 0.23 (with TRL 1.16's SFTTrainer); the one that
// crosses the boundary is trained.
func TestMarksAtBoundaries(t *testing.T) {
	text := expect.Bytes(t, "testdata/llama2-marks.json")
	const config = `{"bos_token":"<s>","eos_token":"</s>","unk_token":"<unk>"}`
	const template = "{% for m in messages %}{{ m.content }}{% endfor %}"
	tok, err := tokenizer.LoadFS(fstest.MapFS{"tokenizer.json": {Data: text}, "tokenizer_config.json": {Data: []byte(config)},
		"chat_template.jinja": {Data: []byte(template)}}, "marks")
	expect.OK(t, err)
	e := &Encoder{Tokenizer: tok}
	tokens := func(ids []int32) (names []string) {
		for _, id := range ids {
			names = append(names, tok.Tokens()[id].Text)
		}
		return names
	}
	for _, c := range []struct {
		prompt string
		answer []string
		want   []string // the prompt's tokens, and for each answer the tokens of prompt and answer
	}{
		{"Name: An", []string{"na Lee"}, []string{"<s> ▁Name:", "▁Anna ▁Lee </s>"}},
		{"Q: two? A: ", []string{"four"}, []string{"<s> ▁Q: ▁two? ▁A:", "▁four </s>"}},
		{"Q: two? A:", []string{" four"}, []string{"<s> ▁Q: ▁two? ▁A:", "▁four </s>"}},
		{"Name: An", []string{" Lee", "na Lee"}, []string{"<s> ▁Name:", "▁An ▁Lee </s>", "▁Anna ▁Lee </s>"}},
	} {
		var answers []data.Text
		for _, a := range c.answer {
			answers = append(answers, data.Text{Plain: a})
		}
		g, err := e.group("x.jsonl:1", data.Text{Plain: c.prompt}, answers...)
		got := []string{strings.Join(tokens(g.Prompt), " ")}
		for _, a := range g.Answers {
			got = append(got, strings.Join(tokens(a), " "))
		}
		if err != nil || !slices.Equal(got, c.want) || e.Drift != 0 {
			t.Errorf("%q %q: %q, %v, %d apart, want %q", c.prompt, c.answer, got, err, e.Drift, c.want)
		}
	}
	ids, trained := encodeConversation(t, e, turnsOf(says("user", "Q: two? A: "), says("assistant", "four"),
		says("user", " Name: An"), says("assistant", "na Lee")))
	if got := strings.Join(tokens(ids), " "); got != "▁Q: ▁two? ▁A: ▁four ▁Name: ▁Anna ▁Lee" ||
		!slices.Equal(trained, []bool{false, false, false, true, false, true, true}) {
		t.Errorf("%q, trained %v", got, trained)
	}
}
