package recipe

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestDeriveCard: the new section of a card begins on a line of its own, whatever the card ends with.
func TestDeriveCard(t *testing.T) {
	for _, end := range []string{"", "\n", "\n\n\n"} {
		dir := t.TempDir()
		expect.Write(t, filepath.Join(dir, CardName), "# Mine"+end)
		card := DeriveCard(dir, "gguf", "Exported", "as f16\n")
		if card != "# Mine\n\n## Exported\n\n```\nas f16\n```\n" {
			t.Errorf("%q becomes\n%s", "# Mine"+end, card)
		}
	}
}

// TestForeignTextInACard: names and values are shown as they are: no markup, no end of a block, nothing for a terminal.
func TestForeignTextInACard(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{words("a_b <img src=x onerror=f()> [x](javascript:1) `*&\x1b[2J\n# b"),
			`a_b \<img src=x onerror=f()\> \[x\](javascript:1) \` + "`" + `\*\&\\x1b\[2J\\n# b`},
		{span("a.jsonl"), "`a.jsonl`"},
		{span("a`<b>``c\n\x1b[31m\u202e"), "```a`<b>``c\\n\\x1b[31m\\u202e```"},
		{span("`"), "`` ` ``"},
		{block("", "a\n"), "```\na\n```\n"},
		{block("yaml", "a: |\n  ````\n```\n<script>\x1b[31m\n"), "`````yaml\na: |\n  ````\n```\n<script>\\x1b[31m\n`````\n"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	if card := DeriveCard(filepath.Join(t.TempDir(), "<b>"), "gguf", "Exported", "f16\n"); !strings.Contains(card,
		"\n# \\<b\\>\n") {
		t.Error(card)
	}
}

// TestDataFiles: a card has each file that a pattern matches, with the hash of the run's start, and nothing of a name
// without a file.
func TestDataFiles(t *testing.T) {
	dir, inputs := t.TempDir(), map[string]string{}
	for _, name := range []string{"a-1.jsonl", "a-2.jsonl", "b.jsonl", "with blank.jsonl"} {
		expect.Write(t, filepath.Join(dir, name), name)
		inputs[filepath.Join(dir, name)] = "of the start"
	}
	got := dataFiles(map[string][]string{
		"data.train": {filepath.Join(dir, "a-*.jsonl"), filepath.Join(dir, "with blank.jsonl")},
		"data.eval":  {filepath.Join(dir, "none.jsonl")}, "model": {filepath.Join(dir, "b.jsonl")}}, inputs)
	if len(got) != 3 || filepath.Base(got[0].path) != "a-1.jsonl" || filepath.Base(got[1].path) != "a-2.jsonl" ||
		filepath.Base(got[2].path) != "with blank.jsonl" ||
		got[0].hash != "SHA-256 `of the start`" {
		t.Errorf("%+v", got)
	}
}
