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

// TestWhole: without a judge, an output that the prompt has begun keeps its thoughts, with their beginning.
func TestWhole(t *testing.T) {
	for _, c := range []struct {
		text   string
		opened bool
		want   string
	}{
		{"cut off", true, "<think>cut off"},
		{"a</think>b", true, "<think>a</think>b"},
		{"<think>a</think>b", true, "<think>a</think>b"},
		{"plain", false, "plain"},
	} {
		if got := (Answer{Output: c.text, Opened: c.opened}).Whole(); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestRest: a judge reads what follows the thoughts, and an answer without them as it is.
func TestRest(t *testing.T) {
	for _, c := range []struct {
		text   string
		opened bool
		want   string
	}{
		{" plain ", false, " plain "},
		{"<think>a</think>\n\nb", false, "b"},
		{"a</think> b", true, "b"},
		{"<think>a", false, ""},
		{"a", true, ""},
	} {
		if got, closed := (Answer{Output: c.text, Opened: c.opened}).Rest(); got != c.want || closed == (c.want == "") {
			t.Errorf("%q, opened %v: %q, %v", c.text, c.opened, got, closed)
		}
	}
}

// TestRecordedThoughts: the judge does not read the thoughts of recorded answers either; without a judge they are kept.
func TestRecordedThoughts(t *testing.T) {
	e := evaluation{Protocol: Protocol{Recorded: map[string][]string{}}}
	a := Answer{Output: "<think>a</think>\nb"}
	if got := e.text(a); got != a.Output {
		t.Errorf("without a judge: %q", got)
	}
	e.Questions = func(int, []string) ([]Question, error) { return nil, nil }
	if got := e.text(a); got != "b" {
		t.Errorf("for a judge: %q", got)
	}
}
