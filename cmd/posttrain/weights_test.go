package main

import (
	"strings"
	"testing"
)

// TestWeights: a weight of 2 trains what a file that is named twice does, also from a config; a row that is held out is
// there once, and bad weights are one line.
func TestWeights(t *testing.T) {
	work(t, "qwen2-newer")
	var a, b strings.Builder
	for _, word := range strings.Fields("one two three four five six") {
		a.WriteString(`{"prompt": "` + word + `?", "completion": "` + word + `"}` + "\n")
		b.WriteString(`{"prompt": "Not ` + word + `?", "completion": "no"}` + "\n")
	}
	write(t, "a.jsonl", a.String())
	write(t, "b.jsonl", b.String())
	train := func(out string, more ...string) string {
		o := must(t, append([]string{"sft", "--model", "model", "--backend", "go", "--out", out, "--set",
			"train.batch_size=3"}, more...)...)
		return o.out + o.err
	}
	if said := train("twice", "--data", "a.jsonl:2,b.jsonl:0.5"); !strings.Contains(said, "15 examples") {
		t.Error(said)
	}
	train("named", "--data", "a.jsonl,a.jsonl")
	train("two", "--data", "a.jsonl:2")
	sameFiles(t, "named", "two", "model/model.safetensors")
	if text := read(t, "twice/config.yaml"); !strings.Contains(text, "  weights:\n  - 2.0\n  - 0.5\n") {
		t.Error(text)
	}
	must(t, "sft", "--config", "twice/config.yaml", "--out", "again")
	sameFiles(t, "twice", "again", "model/model.safetensors")
	held := train("held", "--data", "a.jsonl:3", "--set", "data.eval_fraction=0.34")
	if !strings.Contains(held, "12 examples") {
		t.Error(held)
	}
	o := must(t, "sft", "--model", "model", "--data", "a.jsonl:2,b.jsonl", "--explain")
	if !strings.Contains(o.out, "data: a.jsonl:2, b.jsonl:1") {
		t.Error(o.out)
	}
	for want, args := range map[string][]string{
		`--data: data.train "a.jsonl:0, b.jsonl:1": want weights above 0, at most 100`: {"--data", "a.jsonl:0,b.jsonl"},
		`data.train "org/name:2020": want weights above 0, at most 100`:                {"--data", "org/name:2020"},
		"data.weights [2]: want 2, one for each of data.train": {"--data", "a.jsonl,b.jsonl", "--set",
			"data.weights=2"},
		"data.weights \"two\": want numbers above 0, one for each of": {"--data", "a.jsonl", "--set",
			"data.weights=two"},
		`a.jsonl:two: extension ".jsonl:two"`: {"--data", "a.jsonl:two"},
	} {
		o := cli(t, append([]string{"sft", "--model", "model"}, args...)...)
		if o.code == 0 || !strings.Contains(o.err, want) {
			t.Errorf("%v: %d %s, want %s", args, o.code, o.err, want)
		}
	}
}
