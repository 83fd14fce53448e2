package bench

import "testing"

func TestWithoutThoughts(t *testing.T) {
	for _, c := range []struct {
		output string
		opened bool
		want   string
		closed bool
	}{
		{"<think>a</think> b", false, " b", true},
		{"\n<think>a</think>b</think>c", false, "b</think>c", true},
		{"a</think>b", true, "b", true},
		{"a</think>b", false, "b", true}, // the prompt has opened it, whatever we know
		{"<think>a", false, "", false},
		{"a", true, "", false},
		{"", true, "", false},
		{"a <think> b", false, "a <think> b", true},
		{"", false, "", true},
	} {
		if rest, closed := WithoutThoughts(c.output, c.opened); rest != c.want || closed != c.closed {
			t.Errorf("%q, %v: %q, %v", c.output, c.opened, rest, closed)
		}
	}
}

// TestMarkThoughts: without a judge, an output that the prompt has begun keeps its thoughts, with their beginning.
func TestMarkThoughts(t *testing.T) {
	for _, c := range []struct {
		text           string
		inside, judged bool
		want           string
	}{
		{"cut off", true, false, "<think>cut off"},
		{"a</think>b", true, false, "<think>a</think>b"},
		{"<think>a</think>b", true, false, "<think>a</think>b"},
		{"plain", false, false, "plain"},
		{"a</think>b", true, true, "b"},
	} {
		a := Answer{Output: c.text}
		if a.markThoughts(c.inside, c.judged); a.Output != c.want {
			t.Errorf("%+v: %q", c, a.Output)
		}
	}
}

// TestDropThoughts: a judge reads what follows the thoughts, and an answer without them as it is.
func TestDropThoughts(t *testing.T) {
	for _, c := range []struct {
		text             string
		inside           bool
		output, thoughts string
	}{
		{" plain ", false, " plain ", ""},
		{"<think>a</think>\n\nb", false, "b", "<think>a</think>"},
		{"a</think> b", true, "b", "a</think>"},
		{"<think>a", false, "", "<think>a"},
		{"a", true, "", "a"},
	} {
		a := Answer{Output: c.text}
		if a.dropThoughts(c.inside); a.Output != c.output || a.Thoughts != c.thoughts {
			t.Errorf("%q, inside %v: %q and the thoughts %q", c.text, c.inside, a.Output, a.Thoughts)
		}
	}
}
