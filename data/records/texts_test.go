package records

import (
	"fmt"
	"strings"
	"testing"
)

const pair = `{"prompt":"Q","chosen":"A","rejected":"B"}`

// TestTexts: rows of each kind of text, and what is found in them.
func TestTexts(t *testing.T) {
	chat := func(roles ...string) string {
		var messages []string
		for _, r := range roles {
			messages = append(messages, fmt.Sprintf(`{"role":%q,"content":"words of %s"}`, r, r))
		}
		return `{"messages":[` + strings.Join(messages, ",") + `]}`
	}
	withTool := func(name string) string {
		return fmt.Sprintf(`{"prompt":[{"role":"user","content":"Q"}],"chosen":[{"role":"assistant","content":"A"}],`+
			`"rejected":[{"role":"assistant","content":"B"}],"tools":[{"name":%q}]}`, name)
	}
	for _, c := range []struct {
		kind  string
		lines []string
		want  string
	}{
		{"pairs", []string{pair, "", `{"prompt":"Q","chosen":"C","rejected":"B"}`}, ""},
		{"pairs", []string{pair, `{"prompt":"Q","chosen":`, `[1]`, `{"prompt":"Q","chosen":1,"rejected":"B"}`},
			"error row 3/3"},
		{"pairs", []string{pair, `{"prompt":"Q","chosen":"A"}`}, "error row 1/1"},
		{"pairs", []string{`{"prompt":"Q","chosen":"","rejected":"B"}`}, "error unusable 1/1"},
		{"pairs", []string{pair, `{"prompt":"Q","chosen":"A","rejected":"A"}`}, "error unusable 1/1"},
		{"pairs", []string{pair, `{"rejected":"B","prompt":"Q","chosen":"A"}`}, "warning duplicate 1/1"},
		{"pairs", []string{withTool("f"), withTool("g")}, "note near-duplicate 1/1"}, // other tools
		{"pairs", []string{withTool("f"), withTool("f")}, "warning duplicate 1/1"},
		{"pairs", []string{pair, `{"prompt":"Q","chosen":"B","rejected":"A"}`}, "warning contradiction 1/1"},
		{"pairs", []string{`{"prompt":"Q","chosen":" ","rejected":"B","chosen_score":0.1,"rejected_score":0.9}`},
			"warning odd 1/1, warning odd 1/1, warning gaps 1/0"},
		{"pairs", nil, "error file 1/0"},
		{"pairs", []string{`{"prompt":"one two three four five six seven","chosen":"A","rejected":"B"}`,
			`{"prompt":"one two three four five six seven","chosen":"A","rejected":"C"}`}, "note near-duplicate 1/1"},

		{"demonstrations", []string{chat("system", "user", "assistant"), chat("user", "assistant", "tool", "assistant"),
			`{"prompt":"Q","completion":"A"}`, `{"text":"T"}`}, ""},
		{"demonstrations", []string{chat("user", "system", "assistant")}, "warning system 1/1"},
		{"demonstrations", []string{chat("human", "assistant")}, "warning role 1/1"},
		{"demonstrations", []string{chat("user", "user", "assistant")}, "note turns 1/1"},
		{"demonstrations", []string{chat("user"), `{"messages":[]}`, `{"prompt":"Q","completion":""}`},
			"error unusable 1/1, error unusable 1/1, error unusable 1/1"},
		{"demonstrations", []string{`{"messages":[{"role":"user","content":" "},{"role":"assistant","content":"A"}]}`},
			"warning empty 1/1"},
		{"demonstrations", []string{`{"prompt":"Q","completion":" "}`}, "warning odd 1/1"},
		{"demonstrations", []string{`{"prompt":"Q","completion":"<think>a</think>b <think>c"}`,
			`{"prompt":"Q","completion":"<think>a</think>b"}`}, "warning thought 1/1"},
		{"demonstrations", []string{`{"question":"Q"}`}, "error row 1/1"},

		{"labelled", []string{`{"prompt":"Q","completion":"A","label":true}`,
			`{"prompt":"Q","completion":"B","label":false}`}, ""},
		{"labelled", []string{`{"prompt":"Q","completion":"A","label":true}`}, "warning labels 1/0"},
		{"labelled", []string{`{"prompt":"Q","completion":"A","label":true}`,
			`{"prompt":"Q","completion":"A","label":0}`}, "warning contradiction 1/1"},
		{"labelled", []string{pair, `{"prompt":"Q","completion":"A","label":2}`, pair},
			"error row 1/1, warning duplicate 1/1, note odd 2/2"},
	} {
		o := options
		o.Kind = Kind(c.kind)
		if r := checked(t, o, c.lines...); found(r) != c.want || r.Fails() != strings.HasPrefix(c.want, "error") {
			t.Errorf("%s %s: %s, want %s\n%s", c.kind, c.lines, found(r), c.want, strings.Join(r.Lines(), "\n"))
		}
	}
}

// TestLines: a report as text names rows, fields and what was found.
func TestLines(t *testing.T) {
	o := Options{Kind: KindPreference}
	lines := []string{pair}
	for range 24 {
		lines = append(lines, `{"prompt":"Q","chosen":"A","rejected":7}`)
	}
	r := checked(t, o, append(lines, `{"prompt":"Q","chosen":"A","rejected":"A"}`)...)
	got := strings.ReplaceAll(strings.Join(r.Lines(), "\n"), r.Path, "F")
	const want = `F: 26 rows read, 1 kept
  preference pairs
  1 without scores, which the prior of mappo needs: posttrain mappo --prior none trains without it, posttrain data score writes them
  plain text in 1 prompts: a model with a chat template gets them as the user's messages (chat.plain=text: as text)
  error: 24: a row cannot be read (row)
    line 2: rejected is a number: want a string or a list of {role, content}
    line 3: rejected is a number: want a string or a list of {role, content}
    line 4: rejected is a number: want a string or a list of {role, content}
    in lines 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21 and 4 more
  error: 1: chosen and rejected are equal: training leaves the row out (unusable)
    in line 26`
	if got != want || r.Errors != 25 {
		t.Errorf("%d rows with errors\n%s\nwant\n%s", r.Errors, got, want)
	}
}

// TestLengths: how well length predicts the label, with Wilson's interval, by hand.
func TestLengths(t *testing.T) {
	row := func(i int, longer bool) string {
		chosen, rejected := "long answer", "short"
		if !longer {
			chosen, rejected = rejected, chosen
		}
		return fmt.Sprintf(`{"prompt":"Q%d","chosen":%q,"rejected":%q}`, i, chosen, rejected)
	}
	for _, c := range []struct {
		longer, shorter int
		line, want      string
	}{
		{18, 2, "90.0% of 20 pairs (95% interval 69.9 to 97.2); medians: chosen 11, rejected 5 characters", ""},
		{36, 4, "90.0% of 40 pairs (95% interval 76.9 to 96.0); medians: chosen 11, rejected 5 characters",
			"warning length 1/0"},
		{4, 36, "10.0% of 40 pairs (95% interval 4.0 to 23.1); medians: chosen 5, rejected 11 characters",
			"warning length 1/0"},
	} {
		var lines []string
		for i := range c.longer + c.shorter {
			lines = append(lines, row(i, i < c.longer))
		}
		r := checked(t, Options{Kind: KindPreference}, lines...)
		if text := strings.Join(r.Profile, "\n"); !strings.Contains(text, c.line) || found(r) != c.want {
			t.Errorf("%s, %s\nwant %s, %s", text, found(r), c.line, c.want)
		}
	}
}
