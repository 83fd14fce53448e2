package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestOverhead: rounds of any number of agents end, and each has its row.
func TestOverhead(t *testing.T) {
	var out bytes.Buffer
	if err := (overhead{Agents: []int{1, 3}, Rounds: 1}).measure(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "\n| 1 |") || !strings.Contains(text, "\n| 3 |") {
		t.Error(text)
	}
}
