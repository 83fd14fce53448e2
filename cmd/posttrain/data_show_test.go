package main

import (
	"bytes"
	"strings"
	"testing"
)

// turnLines are rows of two turns; the second row's first turn is not trained on.
const turnLines = `{"messages":[{"role":"user","content":"One?"},{"role":"assistant","content":"A."},` +
	`{"role":"user","content":"Two?"},{"role":"assistant","content":"B."}]}
{"messages":[{"role":"user","content":"One?"},{"role":"assistant","content":"A.","train":false},` +
	`{"role":"user","content":"Two?"},{"role":"assistant","content":"B."}]}
`

// weighed are the texts with a weight that data show printed, joined.
func weighed(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 3 && f[2] == "1" {
			b.WriteString(strings.Trim(strings.Join(f[3:], " "), `"`))
		}
	}
	return b.String()
}

// TestDataShow: the tokens with a weight are those that the options train on; colour is for terminals alone.
func TestDataShow(t *testing.T) {
	t.Chdir(t.TempDir())
	copyModel(t, fixture("qwen2-newer"), "model")
	write(t, "chats.jsonl", turnLines)
	write(t, "pairs.jsonl", pairLines(3, true))
	both := `A.<|im_end|>\nB.<|im_end|>\n`
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"chats.jsonl"}, both},
		{[]string{"--row", "2", "chats.jsonl"}, `B.<|im_end|>\n`},
		{[]string{"--loss-on", "last", "chats.jsonl"}, `B.<|im_end|>\n`},
		{[]string{"--loss-on", "completion", "chats.jsonl"}, both},
	} {
		o := must(t, append([]string{"data", "show", "--model", "model"}, c.args...)...)
		if got := weighed(o.out); got != c.want || strings.Contains(o.out, "\x1b") {
			t.Errorf("%v: weight on %q, want %q\n%s", c.args, got, c.want, o.out)
		}
	}
	if o := must(t, "data", "show", "--model", "model", "pairs.jsonl"); strings.Count(o.out, "chosen: ") != 1 ||
		strings.Count(o.out, "rejected: ") != 1 {
		t.Error(o.out)
	}
	must(t, "data", "show", "chats.jsonl") // the embedded model's tokenizer
}

// TestDataShowColours: a terminal gets green lines, and none with NO_COLOR.
func TestDataShowColours(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "chats.jsonl", turnLines)
	for _, noColor := range []string{"", "1"} {
		t.Setenv("NO_COLOR", noColor)
		var out, err bytes.Buffer
		s := streams{in: strings.NewReader(""), out: &out, err: &err, shown: true}
		if code := execute(t.Context(), s, []string{"data", "show", "chats.jsonl"}); code != 0 {
			t.Fatal(err.String())
		}
		if green := strings.Contains(out.String(), "\x1b[32m"); green != (noColor == "") {
			t.Errorf("NO_COLOR=%q: %q", noColor, out.String())
		}
	}
}

// TestDataShowFaults: what cannot be shown is one line.
func TestDataShowFaults(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "chats.jsonl", turnLines)
	write(t, "pairs.jsonl", pairLines(3, true))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--row", "3", "chats.jsonl"}, "--row 3: chats.jsonl has 2 rows that training keeps"},
		{[]string{"--row", "0", "chats.jsonl"}, "--row 0: want a number from 1"},
		{[]string{"--loss-on", "first", "chats.jsonl"}, "want completion, turns, last or all"},
		{[]string{"--loss-on", "last", "pairs.jsonl"}, "only demonstrations have a choice"},
		{[]string{"--model", "none", "chats.jsonl"}, "none"},
	} {
		o := cli(t, append([]string{"data", "show"}, c.args...)...)
		if o.code == 0 || !strings.Contains(o.err, c.want) || strings.Count(o.err, "\n") != 1 {
			t.Errorf("%v: %d %q, want %q", c.args, o.code, o.err, c.want)
		}
	}
}
