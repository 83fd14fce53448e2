package batch

import (
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// marking says with {% generation %} that the answer and its end are trained, and not the thought.
const marking = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}" +
	"{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}" +
	"{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}\n" +
	"{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

// thinks is the assistant's message with a thought under a name.
func thinks(key, thought, content string) data.Message {
	m := says("assistant", content)
	m.Whole = `{"role":"assistant","` + key + `":"` + thought + `","content":"` + content + `"}`
	return m
}

// TestMarks: the template's marks decide what is trained, of the messages that are; turns goes back.
func TestMarks(t *testing.T) {
	untrained := thinks("reasoning", "Italy has many.", "Lake Como.")
	untrained.Untrained = true
	first, last := thinks("reasoning_content", "Italy has many.", "Lake Como."), thinks("thinking", "North.", "The Po.")
	for _, c := range []struct {
		messages []data.Message
		target   Target
		want     string
	}{
		{[]data.Message{says("user", "A lake?"), first, says("user", "A river?"), last}, Completion,
			"Lake Como.<|im_end|>¦The Po.<|im_end|>"},
		{[]data.Message{says("user", "A lake?"), untrained, says("user", "A river?"), last}, Completion, "The Po.<|im_end|>"},
		{[]data.Message{says("user", "A lake?"), first, says("user", "A river?"), last}, Last, "The Po.<|im_end|>"},
		{[]data.Message{says("user", "A lake?"), first, says("user", "A river?"), last}, Turns,
			"<think>Italy has many.</think>Lake Como.<|im_end|>¦<think>North.</think>The Po.<|im_end|>"},
	} {
		e := withTemplate(t, "qwen2-newer", marking)
		g := expect.Must(e.Demonstration(turnsOf(c.messages...), c.target))(t)
		trained := make([]bool, len(g.Prompt))
		for i := range g.Answers[0] {
			trained = append(trained, g.IsPredicted(0, i))
		}
		got := strings.Join(trainedText(e, append(g.Prompt, g.Answers[0]...), trained), "¦")
		if got != c.want || (e.Marked == 1) != (c.target != Turns) {
			t.Errorf("%s: %q, want %q; %d marked", c.target, got, c.want, e.Marked)
		}
	}
	_, err := withTemplate(t, "qwen2-newer", strings.Replace(marking, "{{ m.content }}<|im_end|>{% endg", "{% endg", 1)).
		Demonstration(turnsOf(says("user", "A lake?"), first), Completion)
	expect.Error(t, err, "chat.jsonl:1: the chat template does not write all of messages[1]")
	_, err = withTemplate(t, "qwen2-newer", strings.Replace(marking, "{{ m.content }}<|im_end|>{% endgeneration %}",
		"{% endgeneration %}{{ m.content }}<|im_end|>", 1)).Demonstration(turnsOf(says("user", "A lake?"), first), Completion)
	expect.Error(t, err, "chat.jsonl:1: no token of the answer is marked with {% generation %}")
}

// TestOtherMarksOfThoughts: a generation prompt that opens a thought in marks of its own is not glued to an answer that
// the template writes without it; a template that has marks before every answer gives them to what is trained.
func TestOtherMarksOfThoughts(t *testing.T) {
	const answers = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}" +
		"{% if m.reasoning_content %}[THINK]{{ m.reasoning_content }}[/THINK]{% endif %}[TEXT]{{ m.content }}[/TEXT]" +
		"{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
	question := ask("A lake?")
	of := func(m data.Message) data.Text { return data.Text{Messages: []data.Message{m}} }
	plain, thinking := says("assistant", "Lake Como."), thinks("reasoning", "Italy.", "Lake Como.")
	for _, c := range []struct {
		opened string
		answer data.Message
		want   string // "": refused
	}{
		{"[THINK]{% endif %}", plain, ""},
		{"[THINK]{% endif %}", thinking, "Italy.[/THINK][TEXT]Lake Como.[/TEXT]<|im_end|>\n"},
		{"Here are my steps:\n{% endif %}", plain, ""},
		{"{% endif %}", plain, "[TEXT]Lake Como.[/TEXT]<|im_end|>\n"},
		{"{% endif %}", thinking, "[THINK]Italy.[/THINK][TEXT]Lake Como.[/TEXT]<|im_end|>\n"},
	} {
		e := withTemplate(t, "qwen2-newer", answers+c.opened)
		g, err := e.Preference(data.Preference{Source: "x.jsonl:1", Prompt: question, Chosen: of(c.answer),
			Rejected: of(c.answer)})
		_, err2 := e.Demonstration(turnsOf(says("user", "A lake?"), c.answer, says("user", "Two?"), c.answer), Completion)
		if c.want == "" {
			expect.Error(t, err, "x.jsonl:1: the generation prompt of the chat template ends with")
			expect.Error(t, err2, "chat.jsonl:1: the generation prompt of the chat template ends with")
			continue
		}
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		if got := e.Tokenizer.Decode(g.Answers[0], false); got != c.want {
			t.Errorf("%q: %q, want %q", c.opened, got, c.want)
		}
	}
}

// TestKeysThatSayNothing: further keys of a message do not refuse a row whose answer the template rewrites.
func TestKeysThatSayNothing(t *testing.T) {
	m := says("assistant", "<think>An arachnid.</think>Eight.")
	m.Whole = `{"role":"assistant","content":"<think>An arachnid.</think>Eight.","tool_calls":[],"refusal":null,"id":7}`
	g, err := withTemplate(t, "qwen2-newer", strips).Preference(data.Preference{Source: "x.jsonl:1", Prompt: ask("Q"),
		Chosen: data.Text{Messages: []data.Message{m}}, Rejected: data.Text{Messages: []data.Message{m}}})
	if err != nil || len(g.Answers[0]) == 0 {
		t.Error(err)
	}
}

// TestCallsThatATemplateDrops: a row with a call, in the answer or before it, is refused where the template writes none.
func TestCallsThatATemplateDrops(t *testing.T) {
	call, q, result := says("assistant", ""), says("user", "Q"), says("tool", "251")
	call.Whole = `{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"depth","arguments":{}}}]}`
	of := func(ms ...data.Message) data.Text { return data.Text{Messages: ms} }
	const want = ": the chat template does not write the calls of tools of messages[1]: want a template"
	for _, template := range []string{chatML, marking} {
		e, says := withTemplate(t, "qwen2-newer", template), of(says("assistant", "251 m."))
		_, err := e.Preference(data.Preference{Source: "x.jsonl:1", Prompt: of(q, call, result), Chosen: says, Rejected: says})
		expect.Error(t, err, "x.jsonl:1"+want)
		_, err = e.Prompt(of(q, call, result))
		expect.Error(t, err, want[2:])
		rows := []data.Demonstration{turnsOf(q, call), turnsOf(q, call, result, says.Messages[0]),
			{Source: "chat.jsonl:1", Prompt: of(q, call, result), Completion: says},
			{Source: "chat.jsonl:1", Prompt: of(q, call, result), Completion: of(says.Messages[0], q, says.Messages[0])}}
		for _, d := range rows {
			for _, target := range []Target{Completion, Turns, All} {
				_, err := e.Demonstration(d, target)
				expect.Error(t, err, "chat.jsonl:1"+want)
			}
		}
	}
}
