package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/hub/hubtest"
)

// TestModelOfTheHub: a run takes its model from the hub by name, and its reference by branch. Its config has the
// commit, so that it continues without a network, and after the branch has moved.
func TestModelOfTheHub(t *testing.T) {
	work(t, "qwen2-newer")
	s := hubtest.New(t, map[string]hubtest.Repo{"org/tiny": hubtest.Folder(t, "model")})
	if err := os.RemoveAll("model"); err != nil {
		t.Fatal(err)
	}
	const pinned = "org/tiny@" + hubtest.Commit
	args := tinyMappo(4, "--model", "org/tiny", "--reference", "org/tiny@main", "--set", "train.checkpoint_every=2")
	o := cliUntil(t, "step 2/4", args...)
	if o.code != exitInterrupted || strings.Count(o.err, "MB of org/tiny 1/1") != 1 {
		t.Fatal(o)
	}
	if text := read(t, "out/config.yaml"); !strings.Contains(text, "\nmodel: "+pinned+"\n") ||
		!strings.Contains(text, "\nreference: "+pinned+"\n") {
		t.Error(text)
	}
	moved := s.Repos["org/tiny"]
	moved.Commit = strings.Repeat("f", 40)
	s.Repos["org/tiny"] = moved
	s.Requests()
	must(t, "mappo", "--resume", "out", "--offline")
	if asked := s.Requests(); len(asked) > 0 {
		t.Error(asked)
	}
	o = must(t, "model", "info", pinned)
	if !strings.Contains(o.out, "qwen2") || !strings.Contains(o.err, "org/tiny: commit 0123456789ab, in the cache") {
		t.Error(o)
	}
	must(t, "generate", "--model", pinned, "--prompt", "Hello", "--max-new-tokens", "2")
	must(t, "data", "show", "--model", pinned, "pairs.jsonl")
	must(t, "model", "init", "--like", pinned, "--tokenizer", pinned, "--out", "random")
	o = cli(t, "generate", "--model", "org/other", "--prompt", "Hello", "--offline")
	checkRefusal(t, o, faultCase{code: 1, says: []string{"org/other: there is no folder of this name, and the cache ",
		"does not have all of it; without --offline"}})
}

// TestPlanTakesNoWeights: plan fetches what it reads of a model, and a run that follows fetches the rest.
func TestPlanTakesNoWeights(t *testing.T) {
	work(t, "qwen2-newer")
	s := hubtest.New(t, map[string]hubtest.Repo{"org/tiny": hubtest.Folder(t, "model")})
	if err := os.RemoveAll("model"); err != nil {
		t.Fatal(err)
	}
	weights := func() int {
		return len(slices.DeleteFunc(s.Requests(), func(r string) bool { return !strings.Contains(r, "safetensors") }))
	}
	settings := []string{"--model", "org/tiny", "--reference", "org/tiny@main", "--data", "pairs.jsonl", "--backend", "go",
		"--set", "train.max_steps=1"}
	must(t, append([]string{"plan", "--rehearse"}, settings...)...)
	if n := weights(); n > 0 {
		t.Errorf("weights were asked for %d times", n)
	}
	must(t, append([]string{"mappo", "--out", "out"}, settings...)...)
	if weights() == 0 {
		t.Error("a run that follows has no weights")
	}
}

// TestExportOfTheHub: a model of the hub is fetched and exported, and called by its name.
func TestExportOfTheHub(t *testing.T) {
	work(t, "qwen2-older")
	hubtest.New(t, map[string]hubtest.Repo{"org/tiny": hubtest.Folder(t, "model")})
	must(t, "model", "export", "--model", "org/tiny@main", "--gguf", "f32", "--out", "tiny.gguf", "--answers", "0")
	if text := read(t, "tiny.md"); !strings.Contains(text, "# tiny\n") || !strings.Contains(text, "base_model: \"org/tiny\"\n") {
		t.Error(text)
	}
}

// TestAdapterOfTheHub: an adapter names its model as peft does, by id and revision, and is itself taken from the hub.
func TestAdapterOfTheHub(t *testing.T) {
	work(t, "qwen2-newer")
	s := hubtest.New(t, map[string]hubtest.Repo{"org/tiny": hubtest.Folder(t, "model")})
	must(t, tinyMappo(1, "--model", "org/tiny", "--lora-rank", "2")...)
	text := read(t, "out/adapter/adapter_config.json")
	if !strings.Contains(text, `"base_model_name_or_path": "org/tiny"`) ||
		!strings.Contains(text, `"revision": "`+hubtest.Commit+`"`) {
		t.Error(text)
	}
	s.Repos["org/adapter"] = hubtest.Folder(t, "out/adapter")
	generate := []string{"generate", "--model", "org/tiny", "--prompt", "Hello", "--max-new-tokens", "3"}
	a := must(t, append(generate, "--adapter", "org/adapter")...)
	b := must(t, append(generate, "--adapter", "out/adapter")...)
	if a.out != b.out || !strings.Contains(a.err, "MB of org/adapter") {
		t.Errorf("%v\n%v", a, b)
	}
	must(t, "model", "export", "--model", "org/tiny", "--adapter", "org/adapter", "--out", "merged")
}

// TestDataOfTheHub: a run takes its rows from the hub. Its config has the commit, config and split, so that it continues
// without a network and after the branch has moved; its manifest has the files.
func TestDataOfTheHub(t *testing.T) {
	work(t, "qwen2-newer")
	pairs := read(t, "pairs.jsonl")
	rows := hubtest.Repo{Commit: hubtest.Commit, Files: map[string]string{"train.jsonl": pairs, "test.jsonl": pairs}}
	s := hubtest.New(t, map[string]hubtest.Repo{"datasets/org/rows": rows})
	args := tinyMappo(4, "--data", "org/rows:train", "--set", "data.eval=org/rows:test", "--set",
		"train.checkpoint_every=2")
	o := cliUntil(t, "step 2/4", args...)
	if o.code != exitInterrupted || !strings.Contains(o.err, "org/rows: config default, split train, train.jsonl\n") {
		t.Fatal(o)
	}
	const pinned = "org/rows@" + hubtest.Commit + ":default:"
	text := read(t, "out/config.yaml")
	if !strings.Contains(text, "  train: "+pinned+"train\n") || !strings.Contains(text, "  eval: "+pinned+"test\n") {
		t.Error(text)
	}
	rows.Commit, rows.Files = strings.Repeat("f", 40), map[string]string{"train.jsonl": "{}"}
	s.Repos["datasets/org/rows"] = rows
	s.Requests()
	must(t, "mappo", "--resume", "out", "--offline")
	if asked := s.Requests(); len(asked) > 0 {
		t.Error(asked)
	}
	if text := read(t, "out/manifest.json"); !strings.Contains(text, hubtest.Commit+"/train.jsonl") {
		t.Error(text)
	}
	must(t, "doctor", "out")
	if text := read(t, "out/model/README.md"); !strings.Contains(text, "org/rows/train.jsonl") {
		t.Error(text)
	}
	o = must(t, "data", "check", pinned+"train")
	if !strings.Contains(o.out, "preference pairs") {
		t.Error(o)
	}
	must(t, "data", "convert", pinned+"train", "converted.jsonl")
	o = must(t, "data", "show", pinned+"train")
	if !strings.HasPrefix(o.out, "org/rows/train.jsonl:1\n") {
		t.Error(o)
	}
	for name, says := range map[string]string{
		"org/rows:dev":   `has no split "dev": want train`,
		"none/none.json": "none/none.json: no such file",
	} {
		o := cli(t, "data", "check", name)
		checkRefusal(t, o, faultCase{code: 1, says: []string{name, says}})
	}
}
