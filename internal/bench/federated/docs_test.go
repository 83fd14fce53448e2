package main

import (
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/documents"
)

// TestDocs: what the documents run by go run ./internal/bench/federated is an experiment.
func TestDocs(t *testing.T) {
	found := documents.Running(t, "go", "run", "./internal/bench/federated")
	for _, c := range found {
		if len(c.Words) > 0 && experiments[c.Words[0]] == nil {
			t.Error(c)
		}
	}
	if len(found) < 4 {
		t.Errorf("found %d: want more", len(found))
	}
}
