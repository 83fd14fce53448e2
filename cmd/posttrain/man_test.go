package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMan: every command has a page with its flags, the same bytes for the same date; bad folders are one line.
func TestMan(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	must(t, "man", "pages")
	page, err := os.ReadFile("pages/posttrain-ci-rl.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Nov 2023", `\-\-group\-size`, ".SH EXAMPLE", "posttrain"} {
		if !strings.Contains(string(page), want) && !strings.Contains(string(page), strings.ReplaceAll(want, `\`, "")) {
			t.Errorf("posttrain-ci-rl.1 does not have %q:\n%.400s", want, page)
		}
	}
	pages, err := filepath.Glob("pages/*.1")
	if err != nil || len(pages) < 20 {
		t.Errorf("%d pages, %v", len(pages), err)
	}
	if err := os.WriteFile("file", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"man", "file"}, {"man"}, {"man", "a", "b"}} {
		if o := cli(t, args...); o.code == 0 || strings.Count(o.err, "\n") != 1 {
			t.Errorf("%v: code %d, %q", args, o.code, o.err)
		}
	}
}
