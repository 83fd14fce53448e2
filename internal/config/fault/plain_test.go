package fault

import (
	"bytes"
	"fmt"
	"testing"
)

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"plain é 日本 🙂\n\ta": "plain é 日本 🙂\n\ta", "\x1b[31mred\x1b[0m": `\x1b[31mred\x1b[0m`, "a\rb\x00": `a\rb\x00`,
		"\u202eabc": `\u202eabc`, "\u009b2J": `\u009b2J`, "\x9b2J": `\x9b2J`, "\ufffd": "\ufffd", "\x7f": `\u007f`,
	} {
		if got := Escape(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		var b bytes.Buffer
		if n, err := fmt.Fprint(Writer{&b}, text); b.String() != want || n != len(text) || err != nil {
			t.Errorf("%q: %q %d %v", text, b.String(), n, err)
		}
	}
}
