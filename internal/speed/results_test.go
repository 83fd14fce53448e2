package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestResults: the numbers that docs/results.md has from seeds are what it prints, from the runs that are kept. No run
// is made: one that is not kept is an error.
func TestResults(t *testing.T) {
	t.Chdir("../..")
	text := expect.Read(t, "docs/results.md")
	cheap := regexp.MustCompile("`go run ./internal/speed (seeds [^`]+)` \\|")
	number, printed := regexp.MustCompile(`[+-]?[0-9][0-9,]*\.[0-9]+(?: ± [0-9.]+)?|[+-]?[0-9]+ ± [0-9]+`),
		map[string]string{}
	compared := 0
	for line := range strings.Lines(text) {
		m := cheap.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if printed[m[1]] == "" {
			var out strings.Builder
			root := newRoot()
			root.SetArgs(append(strings.Fields(m[1]), "--posttrain", "none", "--runs", t.TempDir()))
			root.SetOut(&out)
			if err := root.Execute(); err != nil {
				t.Fatalf("%s: %v", m[1], err)
			}
			printed[m[1]] = out.String()
		}
		for _, x := range number.FindAllString(strings.Split(line, "|")[3], -1) {
			if strings.HasPrefix(x, "0.00") { // a rate of the arms
				continue
			}
			compared++
			if !strings.Contains(printed[m[1]], "| "+strings.TrimPrefix(x, "+")+" |") {
				t.Errorf("%s does not print %s, which docs/results.md has from it:\n%s", m[1], x, printed[m[1]])
			}
		}
	}
	if compared < 25 {
		t.Errorf("%d numbers are compared: want more", compared)
	}
}
