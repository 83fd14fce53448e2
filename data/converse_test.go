package data

import (
	"reflect"
	"testing"
)

func TestConverse(t *testing.T) {
	say := func(all ...string) (m []Message) {
		for i, text := range all {
			m = append(m, Message{Role: []string{"user", "assistant"}[i%2], Content: text})
		}
		return m
	}
	answer := func(all ...string) []Message { return say(append([]string{""}, all...)...)[1:] }
	for _, c := range []struct {
		prompt, answer string
		asked, said    []Message
	}{
		{"France?", "Paris", say("France?"), answer("Paris")},
		{"France?", " Paris", say("France?"), answer("Paris")},
		{"def f():", "    return 1 ", say("def f():"), answer("    return 1 ")},
		{"Human: no mark at the", "end\n\nHuman: so", say("no mark at the"), answer("end", "so")},
		{"What is\n\nHuman: in a text?", "a mark", say("What is\n\nHuman: in a text?"), answer("a mark")},
		{"\n\nHuman: hi\n\nAssistant: hello\n\nHuman: so?\n\nAssistant:", " no\n\nHuman: why\n\nAssistant: ah",
			say("hi", "hello", "so?"), answer("no", "why", "ah")},
		{"\n\nHuman: hi\n\nAssistant:", " ", say("hi"), answer("")},
		{"Human:", "a", say("Human:"), answer("a")},
	} {
		prompt, said := Converse(Text{Plain: c.prompt}, Text{Plain: c.answer})
		if !reflect.DeepEqual(prompt, Text{Messages: c.asked}) || !reflect.DeepEqual(said, []Text{{Messages: c.said}}) {
			t.Errorf("%q, %q: %v, %v", c.prompt, c.answer, prompt, said)
		}
	}
}
