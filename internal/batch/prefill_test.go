package batch

import (
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func ask(text string) data.Text {
	return data.Text{Messages: []data.Message{{Role: "user", Content: text}}}
}

// template is ChatML with a generation prompt that ends in opened.
func template(opened string) string {
	return "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" +
		"{% if add_generation_prompt %}<|im_start|>assistant\n" + opened + "{% endif %}"
}

func TestPrefilledStandsBehindTheGenerationPrompt(t *testing.T) {
	for _, name := range []string{"qwen2-newer", "llama-newer"} {
		e := folder(t, name)
		head := expect.Must(e.Prompt(ask("hello")))(t)
		ids := expect.Must(e.Prefilled(ask("hello"), ci.ThinkPrefill))(t)
		want := e.Tokenizer.Decode(head, false) + ci.ThinkPrefill
		if got := e.Tokenizer.Decode(ids, false); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if again, _ := e.Prefilled(ask("hello"), ""); !slices.Equal(again, head) {
			t.Errorf("%s: without a prefill %v, want the prompt %v", name, again, head)
		}
	}
}

// Tokenised together: what merges across the place where the prefill begins, merges.
func TestPrefilledPlainText(t *testing.T) {
	e := folder(t, "qwen2-newer")
	for _, c := range [][2]string{{"The answer is", " 42"}, {"in", "formation"}, {"Q", ci.ThinkPrefill}} {
		ids, err := e.Prefilled(data.Text{Plain: c[0]}, c[1])
		want, wantErr := e.Tokenizer.Encode(c[0]+c[1], true)
		if err != nil || wantErr != nil || !slices.Equal(ids, want) {
			t.Errorf("%q | %q: %v, %v, want %v", c[0], c[1], ids, err, want)
		}
	}
}

// A template that opens the think block itself gets it once.
func TestPrefilledOnce(t *testing.T) {
	for _, c := range []struct {
		opened string
		opens  bool
	}{{"", false}, {"<think>", true}, {"<think>\n", true}, {"<think>\n\n", true}} {
		e := withTemplate(t, "qwen2-newer", template(c.opened))
		ids := expect.Must(e.Prefilled(ask("hello"), ci.ThinkPrefill))(t)
		want := strings.Count(c.opened, "<think>")
		if !c.opens {
			want++
		}
		if text := e.Tokenizer.Decode(ids, false); strings.Count(text, "<think>") != want {
			t.Errorf("template ending in %q: %q", c.opened, text)
		}
		if opens, err := e.Opens(ask("hello"), ci.ThinkPrefill); err != nil || opens != c.opens {
			t.Errorf("template ending in %q: opens %v, %v", c.opened, opens, err)
		}
	}
}

// A template that has ended the thought takes no other one.
func TestPrefilledBehindAThought(t *testing.T) {
	_, err := withTemplate(t, "qwen2-newer", template("<think>\n\n</think>\n\n")).Prefilled(ask("hello"), ci.ThinkPrefill)
	expect.Error(t, err, "the chat template ends the thought before the answer")
}

func TestPrefilledWithoutATemplate(t *testing.T) {
	e := withTemplate(t, "qwen2-newer", "")
	_, err := e.Prefilled(ask("hello"), ci.ThinkPrefill)
	expect.Error(t, err, "chat template")
	if _, err := e.Opens(ask("hello"), ci.ThinkPrefill); err == nil {
		t.Error("no error")
	}
	if opens, err := e.Opens(data.Text{Plain: "<think>"}, ci.ThinkPrefill); opens || err != nil {
		t.Errorf("plain text has no generation prompt: %v, %v", opens, err)
	}
}
