package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/model"
)

// tinyWorld is a world of a two-layer model.
func tinyWorld(t *testing.T) (string, *problem) {
	t.Helper()
	dir := t.TempDir()
	if err := testkit.Model(t, "llama").Save(dir, "float32"); err != nil {
		t.Fatal(err)
	}
	p := randomProblem(shape{4, 12, 5}, testkit.Vocab, 1e-3)
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, problemFile), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, p
}

func TestServeStepsAreTheSameInEveryForm(t *testing.T) {
	dir, _ := tinyWorld(t)
	var first []did
	for _, f := range []form{{}, {share: true}, {micro: 1}, {checkpoint: true}} {
		f.backend = "go"
		lines := ask(t, dir, &f, "step\nstep\nforward\nstep\nquit\nnever read")
		if first == nil {
			first = lines
		}
		if len(lines) != 4 {
			t.Fatalf("%+v: %d answers, want 4", f, len(lines))
		}
		for i, d := range lines {
			if math.Abs(d.Loss-first[i].Loss) > 1e-5 {
				t.Errorf("%+v: loss %d is %v: want %v", f, i, d.Loss, first[i].Loss)
			}
		}
	}
	if d := first[0]; math.Abs(d.Loss-math.Ln2) > 1e-5 || d.Seconds <= 0 || d.Did != "step" {
		t.Errorf("first step %+v: want the loss ln 2 and a time above 0", d)
	}
	if first[2].Loss >= first[1].Loss {
		t.Errorf("losses %v and then %v: a step should lower it", first[1].Loss, first[2].Loss)
	}
}

// ask runs one of posttrain's sides on some lines and returns its answers, without the line that says it is ready.
func ask(t *testing.T, dir string, o option, lines string) (all []did) {
	t.Helper()
	var out strings.Builder
	if err := o.serve(dir, strings.NewReader(lines), &out); err != nil {
		t.Fatal(err)
	}
	answers := strings.Split(strings.TrimSpace(out.String()), "\n")
	var r ready
	if err := json.Unmarshal([]byte(answers[0]), &r); err != nil || !r.Ready || r.Engine != "go" || r.Parameters == 0 {
		t.Fatalf("first line %s (%v): want ready, the engine go and the number of parameters", answers[0], err)
	}
	for _, a := range answers[1:] {
		var d did
		if err := json.Unmarshal([]byte(a), &d); err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

// Engines like xla want everything in the graph: look-ups, their gradients and the update. The go engine can do that
// too; without a GPU this is as close as a test can come to one.
func TestTheGraphFormTrainsAsTheHostForm(t *testing.T) {
	m, p := testkit.Model(t, "qwen2"), randomProblem(shape{4, 12, 5}, testkit.Vocab, 1e-3)
	for _, c := range []struct {
		name      string
		f         form
		tolerance float64
	}{
		{"float32", form{}, 1e-5}, {"bfloat16", form{bfloat16: true}, 0.05},
		{"shared", form{share: true}, 1e-5}, {"accumulated", form{micro: 2}, 1e-5},
	} {
		host, graph := lossesOf(t, m, p, form{share: c.f.share}, false), lossesOf(t, m, p, c.f, true)
		for i := range host {
			if math.Abs(host[i]-graph[i]) > c.tolerance {
				t.Errorf("%s, step %d: loss %v on the host, %v in the graph", c.name, i, host[i], graph[i])
			}
		}
	}
}

func lossesOf(t *testing.T, m *model.Model, p *problem, f form, inGraph bool) (all []float64) {
	t.Helper()
	e, err := backend.Open("go")
	if err != nil {
		t.Fatal(err)
	}
	if inGraph {
		e.Wants = backend.Wants{BFloat16: true, LiveGraphs: 8}
	}
	tr, err := newTrainer(e, m, p, f)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.close()
	for range 4 {
		loss, err := tr.step()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, loss)
	}
	return all
}

func TestSidesThatDisagreeStopTheComparison(t *testing.T) {
	a := &series{side: &side{name: "a"}, losses: []float64{0.6931, 0.65}}
	b := &series{side: &side{name: "b"}, losses: []float64{0.6931, 0.66}}
	if err := agree([]*series{a, b}, 0, tolerance); err != nil {
		t.Error(err)
	}
	if err := agree([]*series{a, b}, 1, tolerance); err == nil || !strings.Contains(err.Error(), "round 2") {
		t.Errorf("losses 0.65 and 0.66: error %v, want one that names the round", err)
	}
	b.losses[1] = math.NaN()
	if agree([]*series{a, b}, 1, tolerance) == nil {
		t.Error("a loss of NaN agrees")
	}
}

func TestQuantile(t *testing.T) {
	for q, want := range map[float64]float64{0: 1, 0.25: 2, 0.5: 3, 0.9: 4.6, 1: 5} {
		if got := quantile([]float64{5, 1, 4, 2, 3}, q); math.Abs(got-want) > 1e-12 {
			t.Errorf("quantile %v is %v: want %v", q, got, want)
		}
	}
}

func TestFlopsByHand(t *testing.T) {
	c := &model.Config{HiddenSize: 8, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 4, IntermediateSize: 10, VocabSize: 100}
	p := &batch.Packed{Rows: 2, Len: 16, Slots: 12}
	qkv, after, scores, head := 8*16.0*32, (64+240.0)*(32+12), 2*8*8.0*32, 800.0*12
	if got, want := flops(c, p), 6*(2*(qkv+scores)+after+head); got != want {
		t.Errorf("%v operations: want %v", got, want)
	}
}

// What a step's floor multiplies is all that the step multiplies, but for attention.
func TestProductsAreThoseOfTheStep(t *testing.T) {
	c := &model.Config{HiddenSize: 8, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 4, IntermediateSize: 10, VocabSize: 100}
	p := &batch.Packed{Rows: 2, Len: 16, Slots: 12}
	scores := 6 * 2 * 2 * 8 * 8.0 * 32
	if got, want := gflop(products(c, p)), (flops(c, p)-scores)/1e9; math.Abs(got-want) > 1e-12 {
		t.Errorf("%v GFLOP: want %v", got, want)
	}
}

func TestSidesMeasureTheirProducts(t *testing.T) {
	dir, _ := tinyWorld(t)
	for _, half := range []bool{false, true} {
		d := ask(t, dir, &form{backend: "go", bfloat16: half}, "products\nquit\n")[0]
		if d.Did != "products" || d.Seconds <= 0 || d.GFLOP <= 0 {
			t.Errorf("bfloat16 %v: answer %+v: want seconds and GFLOP above 0", half, d)
		}
	}
}

func TestChipsAreFoundByTheDriversNames(t *testing.T) {
	for device, want := range map[string]float64{
		"NVIDIA H100 80GB HBM3": 989, "NVIDIA H100 PCIe": 756, "NVIDIA H200": 989, "NVIDIA A100-SXM4-80GB": 312,
		"NVIDIA A10": 125, "NVIDIA A10G": 70, "NVIDIA L40S": 362, "NVIDIA L4": 121, "NVIDIA GeForce RTX 4090": 165,
		"Tesla T4": 0, "": 0,
	} {
		if got := chipOf(device).tflops; got != want {
			t.Errorf("%s: %v TFLOP/s: want %v", device, got, want)
		}
	}
	if l := (limits{bandwidth: 7}).resolve(); l.bandwidth != 7 {
		t.Errorf("a bandwidth that is given: %v", l)
	}
}

func TestBytesOfDecodingByHand(t *testing.T) {
	c, err := config("tiny")
	if err != nil {
		t.Fatal(err)
	}
	weights, cache := float64(c.ParamCount()), 2.0*2*2*8 // tied; of keys and values a token
	if got, want := decodeBytes(c, 3, 10, 4, 2), 2*(3*weights+3*(11+12+13)*cache); got != want {
		t.Errorf("%v bytes: want %v", got, want)
	}
}

func TestStepsThatCompile(t *testing.T) {
	steps := []timedStep{{2, 100}, {4, 200}, {9, 100}, {1, 50}, {1.2, 50}}
	if got := beyond(steps); math.Abs(got-7) > 1e-9 {
		t.Errorf("%v s beyond the usual rate: want the 7 of the third step", got)
	}
}

func TestFirstPairsOfAPackedFile(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "pairs.jsonl.gz"), filepath.Join(t.TempDir(), "pairs.jsonl")
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	fmt.Fprint(w, "{\"chosen\":\"a\"}\n{\"chosen\":\"b\"}\n")
	if err := errors.Join(w.Close(), os.WriteFile(from, packed.Bytes(), 0o644), firstPairs(from, to, 1)); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(to); string(raw) != "{\"chosen\":\"a\"}\n" {
		t.Errorf("%q, %v", raw, err)
	}
	if err := firstPairs(from, to, 3); err == nil {
		t.Error("3 pairs of a file of 2")
	}
}
