package fault

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names and messages come from files, and a control character in them can hide a line of a terminal or move its cursor.

// Escape writes control characters, invisible marks of direction and bytes that are not UTF-8 as Go's \x1b, \u202e and
// so on. Line ends and tabs stay.
func Escape(s string) string {
	if !strings.ContainsFunc(s, invisible) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if invisible(r) || r == utf8.RuneError && n == 1 {
			quoted := strconv.Quote(s[:n])
			if r == '\x7f' {
				quoted = `"\u007f"` // JSON has no \x7f, and leaves DEL as it is
			}
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

func invisible(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
}

// OneLine is a text with a blank in place of each stretch of white space, such as a line end.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Beginning is the first n characters of a text, with … in place of the rest.
func Beginning(s string, n int) string {
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n]) + "…"
	}
	return s
}

// Line is Escape for a text that may not end a line.
func Line(s string) string { return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(Escape(s)) }

// Writer escapes what is written to it. A character may not be divided between two writes.
type Writer struct{ Out io.Writer }

func (w Writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.Out, Escape(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// ShellWord quotes a word that a shell would take apart.
func ShellWord(word string) string {
	plain := func(r rune) bool {
		letter := r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r))
		return letter || strings.ContainsRune("/._-+=:,@%", r)
	}
	if word != "" && strings.TrimFunc(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
