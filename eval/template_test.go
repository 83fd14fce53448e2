package eval

import (
	"strings"
	"testing"
)

func TestTemplate(t *testing.T) {
	const text = Template("{{a}} {q}: {b}{q}}}")
	if err := text.Check([]string{"q"}, []string{"b"}); err != nil {
		t.Error(err)
	}
	if got := text.Fill(map[string]string{"q": "{x}", "b": "B"}); got != "{a} {x}: B{x}}" {
		t.Error(got)
	}
	for text, want := range map[Template]string{
		"{b}":     "there is no {q} in it: want {q}",
		"{q} {c}": "{c} is no field: want {q}, {b} (a brace is written {{)",
		"{q} {b":  `a brace without its other one: "{b"`,
		"} {q}":   `a brace without its other one: "} {q}"`,
	} {
		if err := text.Check([]string{"q"}, []string{"b"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v: want %s", text, err, want)
		}
	}
}
