package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
)

var update = flag.Bool("update", false, "write what is generated: the comments of configs/, and the keys in docs/commands.md")

// TestGenerated: the comments of the config files, and the page of all keys, are what the tags of the options say.
func TestGenerated(t *testing.T) {
	t.Chdir(root)
	paths, err := filepath.Glob("configs/*.yaml")
	if err != nil || len(paths) < 6 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		text := read(t, path)
		if c := config.Find(config.CommandOf([]byte(text))); c != nil {
			checkGenerated(t, path, text, string(c.Comment([]byte(text))))
		}
	}
	const page, last = "docs/commands.md", "-run TestGenerated -update`.\n"
	text := read(t, page)
	head, _, found := strings.Cut(text, last)
	if !found {
		t.Fatalf("%s: want the line that ends in %s", page, last)
	}
	checkGenerated(t, page, text, head+last+config.Reference())
}

// checkGenerated compares a file with what it should be, and writes that with -update.
func checkGenerated(t *testing.T, path, have, want string) {
	switch {
	case have == want:
	case *update:
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Error(err)
		}
	default:
		t.Errorf("%s is not as the tags have it: go test ./cmd/posttrain -run TestGenerated -update", path)
	}
}
