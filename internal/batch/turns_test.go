package batch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// turnsOf is a conversation as a row of messages is read: the loss is on what the assistant says.
func turnsOf(messages ...data.Message) data.Demonstration {
	first := slices.IndexFunc(messages, func(m data.Message) bool { return m.Role == "assistant" && !m.Untrained })
	d := data.Demonstration{Source: "chat.jsonl:1", Prompt: data.Text{Messages: messages[:first:first]},
		Completion: data.Text{Messages: slices.Clone(messages[first:])}}
	for i, m := range d.Completion.Messages {
		d.Completion.Messages[i].Untrained = m.Untrained || m.Role != "assistant"
	}
	return d
}

func says(role, content string) data.Message { return data.Message{Role: role, Content: content} }

func encodeConversation(t *testing.T, e *Encoder, d data.Demonstration) (ids []int32, trained []bool) {
	t.Helper()
	g := expect.Must(e.Demonstration(d, Completion))(t)
	trained = make([]bool, len(g.Prompt))
	for i := range g.Answers[0] {
		trained = append(trained, g.IsPredicted(0, i))
	}
	return slices.Concat(g.Prompt, g.Answers[0]), trained
}

// TestTurnsAsTransformers: the same tokens are trained as by TRL's assistant_only_loss.
func TestTurnsAsTransformers(t *testing.T) {
	var f struct {
		Templates map[string]string
		Cases     []struct {
			Folder    string
			Messages  []data.Message
			IDs, Mask []int32
		}
	}
	expect.Decode(t, "testdata/assistant-masks.json", &f)
	if len(f.Cases) != 8 {
		t.Fatal(len(f.Cases))
	}
	for _, c := range f.Cases {
		e := withTemplate(t, c.Folder, f.Templates[c.Folder])
		ids, trained := encodeConversation(t, e, turnsOf(c.Messages...))
		want := make([]bool, len(c.Mask))
		for i, m := range c.Mask {
			want[i] = m == 1
		}
		if !slices.Equal(ids, c.IDs) || !slices.Equal(trained, want) || e.Drift != 0 {
			t.Errorf("%s %v:\n ids %v\nwant %v\nmask %v\nwant %v", c.Folder, c.Messages, ids, c.IDs, trained, want)
		}
	}
}

// TestToolsAsTransformers: rows with tools and calls of tools give transformers' tokens and mask.
func TestToolsAsTransformers(t *testing.T) {
	var f struct {
		Tools struct {
			Template string
			Cases    []struct {
				Row       string
				IDs, Mask []int32
			}
		}
	}
	expect.Decode(t, "testdata/assistant-masks.json", &f)
	if len(f.Tools.Cases) != 3 {
		t.Fatal(len(f.Tools.Cases))
	}
	e := withTemplate(t, "qwen2-newer", f.Tools.Template)
	for i, c := range f.Tools.Cases {
		path := expect.File(t, fmt.Sprint(i, ".jsonl"), c.Row+"\n")
		all, _, err := data.ReadDemonstrations(path)
		expect.OK(t, err)
		ids, trained := encodeConversation(t, e, all[0])
		got := make([]int32, len(trained))
		for i, is := range trained {
			if is {
				got[i] = 1
			}
		}
		if !slices.Equal(ids, c.IDs) || !slices.Equal(got, c.Mask) || e.Drift != 0 {
			said := e.Tokenizer.Decode(ids, false)
			want := e.Tokenizer.Decode(c.IDs, false)
			t.Errorf("%s\n%s\nwant\n%s\nmask %v\nwant %v", c.Row, said, want, got, c.Mask)
		}
	}
}

const chatML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" +
	"{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

// TestUntrainedTurns: "train": false leaves a message out of the loss; what follows the last trained one is not read.
func TestUntrainedTurns(t *testing.T) {
	e := withTemplate(t, "qwen2-newer", chatML)
	all := []data.Message{says("user", "One?"), says("assistant", "A."), says("user", "Two?"), says("assistant", "B."),
		says("user", "Three?"), says("assistant", "C.")}
	for _, c := range []struct {
		untrained []int
		want      []string // the trained texts
		ends      string
	}{
		{nil, []string{"A.<|im_end|>\n", "B.<|im_end|>\n", "C.<|im_end|>\n"}, "C.<|im_end|>\n"},
		{[]int{1}, []string{"B.<|im_end|>\n", "C.<|im_end|>\n"}, "C.<|im_end|>\n"},
		{[]int{3}, []string{"A.<|im_end|>\n", "C.<|im_end|>\n"}, "C.<|im_end|>\n"},
		{[]int{3, 5}, []string{"A.<|im_end|>\n"}, "A.<|im_end|>\n"},
	} {
		messages := slices.Clone(all)
		for _, i := range c.untrained {
			messages[i].Untrained = true
		}
		ids, trained := encodeConversation(t, e, turnsOf(messages...))
		got := trainedText(e, ids, trained)
		if text := e.Tokenizer.Decode(ids, false); !slices.Equal(got, c.want) || !strings.HasSuffix(text, c.ends) {
			t.Errorf("untrained %v: trained %q of %q, want %q", c.untrained, got, text, c.want)
		}
	}
}

// TestTurnsApart: where a token crosses the end of a turn, all stretches are tokenised apart, which is counted.
func TestTurnsApart(t *testing.T) {
	e := withTemplate(t, "qwen2-newer", "{% for m in messages %}{{ m.content }}{% endfor %}")
	d := turnsOf(says("user", "wh"), says("assistant", "at"), says("user", " wh"), says("assistant", "at"))
	ids, trained := encodeConversation(t, e, d)
	var want []int32
	for _, part := range []string{"wh", "at", " wh", "at"} {
		part := expect.Must(e.Tokenizer.Encode(part, false))(t)
		want = append(want, part...)
	}
	if !slices.Equal(ids, want) || e.Drift != 1 || !trained[len(ids)-1] || trained[0] {
		t.Errorf("tokens %v trained %v, %d drifted; want %v, 1", ids, trained, e.Drift, want)
	}
}

// TestRewrittenTurns: a template that rewrites earlier turns is an error with a way out, which works.
func TestRewrittenTurns(t *testing.T) {
	forgets := "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if loop.last %}{{ m.content }}{% else %}" +
		"{{ m.content.split('</think>')[-1] }}{% endif %}<|im_end|>\n{% endfor %}" +
		"{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
	thinks := turnsOf(says("user", "One?"), says("assistant", "<think>a</think>A."), says("user", "Two?"),
		says("assistant", "B."))
	const rewrites = "chat.jsonl:1: the chat template rewrites messages[1] where more messages follow, so that it " +
		"cannot be trained in one row with them: want data.loss_on last, or a row for each of the assistant's turns"
	for name, template := range map[string]string{
		"thoughts": forgets,
		"answers":  strings.Replace(chatML, "{{ m.content }}", "{{ m.content | upper }}", 1),
		"ends": strings.Replace(chatML, "<|im_end|>\n", "{% if loop.last %}<|endoftext|>{% else %}<|im_end|>\n{% endif %}",
			1),
	} {
		e := withTemplate(t, "qwen2-newer", template)
		if _, err := e.Demonstration(thinks, Completion); err == nil || err.Error() != rewrites {
			t.Errorf("%s: %v, want %s", name, err, rewrites)
		}
	}
	e := withTemplate(t, "qwen2-newer", forgets)
	g, err := e.Demonstration(thinks.Last(), Completion)
	if err != nil || !strings.Contains(e.Tokenizer.Decode(g.Prompt, false), "\nA.<|im_end|>") || g.Trained != nil {
		t.Errorf("the last turn alone: %+v, %v", g, err)
	}
	thinks.Completion.Messages[2].Untrained = true
	if _, err := e.Demonstration(thinks.Last(), Completion); err == nil ||
		err.Error() != `chat.jsonl:1: the message to train on has "train": false` {
		t.Error(err)
	}
}
