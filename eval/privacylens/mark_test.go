package privacylens

import (
	"strings"
	"testing"
)

// TestCut: each part has the numbers of the items that have it, and the parts are the text.
func TestCut(t *testing.T) {
	type all = [][]Span
	for name, c := range map[string]struct {
		text  string
		spans [][]Span
		want  string
	}{
		"none":               {"abc", nil, "abc|"},
		"empty":              {"", all{{{0, 1}}}, ""},
		"whole":              {"abc", all{{{0, 3}}}, "abc|1"},
		"two of one":         {"abcdef", all{{{0, 2}, {3, 5}}}, "ab|1 c| de|1 f|"},
		"nested":             {"abcdef", all{{{0, 6}}, {{2, 4}}}, "ab|1 cd|1,2 ef|1"},
		"crossing":           {"abcdef", all{{{0, 4}}, {{2, 6}}}, "ab|1 cd|1,2 ef|2"},
		"the same":           {"abcdef", all{{{1, 3}}, nil, {{1, 3}}}, "a| bc|1,3 def|"},
		"overlapping of one": {"abcdef", all{{{1, 4}, {2, 5}, {1, 4}}}, "a| bcde|1 f|"},
		"adjoining":          {"abcd", all{{{0, 2}}, {{2, 4}}}, "ab|1 cd|2"},
		"more bytes a rune":  {"é…🙂x", all{{{2, 5}}, {{5, 9}}}, "é| …|1 🙂|2 x|"},
		"within a character": {"é…🙂x", all{{{1, 6}}}, "é…🙂|1 x|"},
		"not in the text":    {"abc", all{{{-1, 2}, {1, 4}, {2, 2}, {2, 1}, {9, 12}}}, "abc|"},
		"not UTF-8":          {"a\xff\xfeb", all{{{0, 2}}}, "a\uFFFD|1 \uFFFDb|"},
	} {
		var got []string
		for _, p := range Cut(c.text, c.spans) {
			got = append(got, p.Text+"|"+strings.ReplaceAll(p.Items, " ", ","))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}

// TestCutIsAList: an empty text has no parts, but a list of them, which the script of a page goes through.
func TestCutIsAList(t *testing.T) {
	if got := Cut("", nil); got == nil || len(got) > 0 {
		t.Errorf("%#v", got)
	}
}

// TestPolicy: with the hash of SHA-256's test vector "abc".
func TestPolicy(t *testing.T) {
	const abc = "'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='"
	if got := sourceOf("abc"); got != abc {
		t.Errorf("%s, want %s", got, abc)
	}
	want := "default-src 'none'; style-src " + sourceOf(pageStyle) + "; script-src " + sourceOf(pageScript) +
		"; base-uri 'none'; form-action 'none'"
	if got := policy(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
