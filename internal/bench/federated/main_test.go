package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/federated/protocol"
)

// TestMeasure: a small plan gives its tables, and a second time from the file alone.
func TestMeasure(t *testing.T) {
	p := plan{Task: "cartpole", Methods: []string{protocol.AFedPG, protocol.Vanilla, protocol.FedPG}, Agents: []int{1, 2},
		Rates: []float64{1e-3}, Iterations: 2, Seeds: 2, GridSeeds: 1, Ratio: 4}
	path := filepath.Join(t.TempDir(), "runs.jsonl")
	var first, second, progress bytes.Buffer
	if err := measure(t.Context(), &first, io.Discard, p, path); err != nil {
		t.Fatal(err)
	}
	if err := measure(t.Context(), &second, &progress, p, path); err != nil {
		t.Fatal(err)
	}
	if first.String() != second.String() || progress.Len() > 0 || !strings.Contains(first.String(), "| fedpg |") {
		t.Errorf("%s\nand from the file\n%s%s", &first, &second, &progress)
	}
	p.Curves = filepath.Join(t.TempDir(), "curves.png")
	if err := measure(t.Context(), io.Discard, io.Discard, p, path); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.Curves); err != nil {
		t.Error(err)
	}
	if p.Iterations++; measure(t.Context(), io.Discard, io.Discard, p, path) == nil {
		t.Error("runs of another length are accepted")
	}
}

// TestInterval: 1, 2, 3 have mean 2 and standard error 1/√3.
func TestInterval(t *testing.T) {
	i := intervalOf([]float64{1, 2, 3})
	if math.Abs(i.mean-2) > 1e-12 || math.Abs(i.half-4.303/math.Sqrt(3)) > 1e-12 {
		t.Error(i)
	}
}

// TestAsynchronousOnSwimmer: the task has its policy, and the published rate is a variant of its own.
func TestAsynchronousOnSwimmer(t *testing.T) {
	needMuJoCo(t)
	p := plans["swimmer"]
	p.Task, p.Methods, p.Agents, p.Rates, p.Ratio = "swimmer", []string{protocol.AFedPG}, []int{2}, []float64{1e-3}, 4
	p.Iterations, p.steps = 1, 1000
	var out bytes.Buffer
	if err := measure(t.Context(), &out, io.Discard, p, filepath.Join(t.TempDir(), "runs.jsonl")); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "| rate: published |") {
		t.Error(out.String())
	}
	o := p.options(run{cell: cell{protocol.AFedPG, 8}, Rate: publishedRate, Variant: letter})
	if *o.Rate != "published" || *o.Alpha != 1e-3 || o.Control.Environment != "swimmer" || len(o.Options.Check()) > 0 {
		t.Errorf("%+v: %v", o, o.Options.Check())
	}
}
