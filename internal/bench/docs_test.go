package main

import (
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/documents"
)

// TestDocs: what the documents run by go run ./internal/bench is a comparison, with flags that it has.
func TestDocs(t *testing.T) {
	found := documents.Running(t, "go", "run", "./internal/bench")
	for _, c := range found {
		cmd, rest, err := newRoot().Find(c.Words)
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err == nil {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
	if len(found) < 6 {
		t.Errorf("found %d: want more", len(found))
	}
}
