package batch

import (
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// Templates that begin a thought: as Qwen3-Thinking and QwQ do, as R1's distilled models do, which drop thoughts of given
// answers, and with a switch that ends an empty thought, as SmolLM3 does.
const (
	asks    = "{% for m in messages %}<|im_start|>{{ m.role }}\n"
	prompts = "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
	writes  = asks + "{% if m.role == 'assistant' %}{% set parts = m.content.split('</think>') %}{{ '<think>\n' + " +
		"(parts[0].split('<think>')[-1].strip('\n') if parts | length > 1 else '') + '\n</think>\n\n' + " +
		"parts[-1].lstrip('\n') }}{% else %}{{ m.content }}{% endif %}" + prompts
	strips   = asks + "{{ m.content.split('</think>')[-1] }}" + prompts
	switched = asks + "{% if m.role == 'assistant' %}<think>\n\n</think>\n{% endif %}{{ m.content }}<|im_end|>\n" +
		"{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n\n</think>\n{% endif %}"
)

// TestThoughts: what is trained is what transformers renders behind the prompt: <think> once, and no thought without an
// end. Where the template leaves no such answer, that is an error.
func TestThoughts(t *testing.T) {
	const never, twice, ended = "the chat template begins a thought that the answer does not end",
		"the chat template and the answer both begin a thought", "the chat template ends the thought before the answer"
	for _, c := range []struct{ template, answer, want string }{
		{writes, "<think>\nAn arachnid.\n</think>\n\nEight.", "An arachnid.\n</think>\n\nEight.<|im_end|>\n"},
		{writes, "<think>An arachnid.</think>Eight.", "An arachnid.\n</think>\n\nEight.<|im_end|>\n"},
		{writes, "An arachnid.\n</think>\n\nEight.", "An arachnid.\n</think>\n\nEight.<|im_end|>\n"},
		{writes, "<think>\nAn arachnid.", never},
		{writes, "<think>\na\n</think>\n\n<think>\nb\n</think>\n\nEight.", twice},
		{writes, "Eight.", "\n</think>\n\nEight.<|im_end|>\n"},
		{strips, "<think>\nAn arachnid.\n</think>\n\nEight.", "An arachnid.\n</think>\n\nEight.<|im_end|>\n"},
		{strips, "An arachnid.\n</think>\n\nEight.", "An arachnid.\n</think>\n\nEight.<|im_end|>\n"},
		{strips, "<think>\n\n</think>\n\nEight.", "\n</think>\n\nEight.<|im_end|>\n"},
		{strips, "Eight.", never},
		{strips, "<think>\nAn arachnid.", never},
		{strips, "<think>\n<think>\nAn arachnid.\n</think>\n\nEight.", twice},
		{switched, "Eight.", "Eight.<|im_end|>\n"},
		{switched, "<think>\n\n</think>\n\nEight.", "Eight.<|im_end|>\n"},
		{switched, "<think>\nAn arachnid.\n</think>\n\nEight.", ended},
	} {
		e := withTemplate(t, "qwen2-newer", c.template)
		prompt, answer := ask("How many legs?"), data.Text{Messages: []data.Message{says("assistant", c.answer)}}
		pair, err := e.Preference(data.Preference{Source: "x.jsonl:1", Prompt: prompt, Chosen: answer, Rejected: answer})
		demo, err2 := e.Demonstration(data.Demonstration{Source: "x.jsonl:1", Prompt: prompt, Completion: answer}, Completion)
		if !strings.HasSuffix(c.want, "\n") {
			expect.Error(t, err, "x.jsonl:1: "+c.want)
			expect.Error(t, err2, "x.jsonl:1: "+c.want)
			continue
		}
		if err != nil || err2 != nil {
			t.Fatalf("%q: %v, %v", c.answer, err, err2)
		}
		for _, ids := range [][]int32{pair.Answers[0], pair.Answers[1], demo.Answers[0]} {
			if got := e.Tokenizer.Decode(ids, false); got != c.want {
				t.Errorf("%q: %q, want %q", c.answer, got, c.want)
			}
		}
	}
}

// TestThoughtsOfAKey: reasoning_content that the template does not write is not lost without a word.
func TestThoughtsOfAKey(t *testing.T) {
	m := says("assistant", "Eight.")
	m.Whole = `{"role":"assistant","content":"Eight.","reasoning_content":"An arachnid."}`
	d := data.Demonstration{Source: "x.jsonl:1", Prompt: ask("Q"), Completion: data.Text{Messages: []data.Message{m}}}
	_, err := withTemplate(t, "qwen2-newer", chatML).Demonstration(d, Completion)
	expect.Error(t, err, "x.jsonl:1: the chat template does not write the whole answer")
}

// TestScoredThoughts: answers that differ in what the template drops cannot teach a reward model.
func TestScoredThoughts(t *testing.T) {
	e := withTemplate(t, "qwen2-newer", strips)
	answers := []data.Text{{Messages: []data.Message{says("assistant", "<think>a</think>Eight.")}},
		{Messages: []data.Message{says("assistant", "<think>b</think>Eight.")}}}
	_, err := e.Scored("x.jsonl:1", nil, ask("Q"), answers...)
	expect.Error(t, err, "x.jsonl:1: the chat template writes the same for two answers that differ")
	e = withTemplate(t, "qwen2-newer", writes)
	g, err := e.Scored("x.jsonl:1", nil, ask("Q"), answers...)
	if text := e.Tokenizer.Decode(slices.Concat(g.Prompt, g.Answers[0]), false); err != nil ||
		strings.Count(text, "<think>") != 1 {
		t.Errorf("%q, %v", text, err)
	}
}

// TestTurnsOfReleasedTemplates: rows of several turns have the text of TRL's training template of the same model, which
// writes an empty thought in each turn where the released one has it in the last alone. Phi's end-of-text token comes
// once, and is trained.
func TestTurnsOfReleasedTemplates(t *testing.T) {
	var released struct{ Sources map[string]string }
	expect.Decode(t, need.Path(t, "templates"), &released)
	messages := []data.Message{says("user", "One?"), says("assistant", "A."), says("user", "Two?"), says("assistant", "B.")}
	for name, trained := range map[string]string{
		"qwen3":         "<think>\n\n</think>\n\nA.<|im_end|>\n¦<think>\n\n</think>\n\nB.<|im_end|>\n",
		"qwen3_5_think": "\n</think>\n\nA.<|im_end|>\n¦\n</think>\n\nB.<|im_end|>\n",
		"phi3":          "A.<|end|>\n¦B.<|end|>\n<|im_end|>", "phi3_5": "A.<|end|>\n¦B.<|end|>\n<|im_end|>",
	} {
		e := withTemplate(t, "qwen2-newer", released.Sources[name+".jinja"])
		ids, loss := encodeConversation(t, e, turnsOf(messages...))
		want, err := withTemplate(t, "qwen2-newer", released.Sources[name+"_training.jinja"]).Render(messages, false)
		if got := e.Tokenizer.Decode(ids, false); err != nil || got != want {
			t.Errorf("%s: %q, want %q, %v", name, got, want, err)
		}
		if got := strings.Join(trainedText(e, ids, loss), "¦"); got != trained {
			t.Errorf("%s: trained %q, want %q", name, got, trained)
		}
	}
}

// trainedText are the stretches with a loss.
func trainedText(e *Encoder, ids []int32, trained []bool) (parts []string) {
	for i := range ids {
		if trained[i] && !trained[i-1] {
			parts = append(parts, "")
		}
		if trained[i] {
			parts[len(parts)-1] += e.Tokenizer.Decode(ids[i:i+1], false)
		}
	}
	return parts
}
