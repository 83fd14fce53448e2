package main

import (
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit/documents"
	"github.com/posttrain/posttrain/recipe/federated"
)

// TestArms: every arm of every table is a simulation.
func TestArms(t *testing.T) {
	for name, arms := range tables {
		names := map[string]bool{}
		for _, a := range arms() {
			if names[a.name] {
				t.Errorf("%s: two arms %s", name, a.name)
			}
			names[a.name] = true
			var overrides []config.Override
			for _, text := range a.sets {
				o, err := config.ParseSet(text)
				if err != nil {
					t.Fatal(err)
				}
				overrides = append(overrides, o)
			}
			if _, err := federated.Spec.Load(config.Input{Overrides: overrides}); err != nil {
				t.Errorf("%s, %s: %v", name, a.name, err)
			}
		}
	}
}

// TestTable: a short table has a row for each arm, and the same when it is made again from the runs.
func TestTable(t *testing.T) {
	args := []string{"cartpole", "--runs", t.TempDir(), "--seeds", "2", "--set", "control.steps=20", "--set",
		"control.hidden=[3]", "--set", "samples=640"}
	var first, again strings.Builder
	for _, out := range []*strings.Builder{&first, &again} {
		if err := execute(t.Context(), out, args); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != again.String() || strings.Count(first.String(), "\n") != 2+16 ||
		!strings.Contains(first.String(), "| fedpg-n8 | ") {
		t.Errorf("%s\n%s", &first, &again)
	}
}

// TestInterval: 1, 2 and 3 have the mean 2 and the deviation 1, so half the interval is 4.303/√3.
func TestInterval(t *testing.T) {
	if got := interval("%.2f", []float64{1, 2, 3}); got != "2.00 ± 2.48" {
		t.Error(got)
	}
}

// TestDocs: what the documents run by go run ./internal/bench/federated is a table.
func TestDocs(t *testing.T) {
	found := documents.Running(t, "go", "run", "./internal/bench/federated")
	for _, c := range found {
		if past := strings.HasPrefix(c.Place, "CHANGELOG.md"); !past && (len(c.Words) == 0 || tables[c.Words[0]] == nil) {
			t.Error(c)
		}
	}
	if len(found) == 0 {
		t.Error("found none")
	}
}
