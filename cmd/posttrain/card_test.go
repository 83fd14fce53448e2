package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/model"
)

// TestModelCard: a run's model says what it was made of, in the run's own words.
func TestModelCard(t *testing.T) {
	work(t, "llama-newer")
	args := tinyMappo(2)
	must(t, args...)
	card, data := read(t, "out/model/README.md"), sha256.Sum256([]byte(read(t, "pairs.jsonl")))
	m, err := model.Load("model")
	if err != nil {
		t.Fatal(err)
	}
	base, err := m.Hash()
	if err != nil {
		t.Fatal(err)
	}
	summary, _, _ := strings.Cut(read(t, "out/summary.txt"), "Model: ")
	formula, _, _ := strings.Cut(must(t, "mappo", "--explain", "--config", "out/config.yaml").out, "\nmodel: ")
	for _, want := range []string{
		"---\nbase_model: \"model\"\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- posttrain\n" +
			"- mappo\ndatasets:\n- \"pairs.jsonl\"\n---\n",
		"weights SHA-256 `" + base + "`",
		"- `data.train` `pairs.jsonl`: SHA-256 `" + hex.EncodeToString(data[:]) + "`\n",
		"loss = -log σ(", formula, summary, read(t, "out/config.yaml"), "posttrain mappo --config config.yaml\n",
	} {
		if !strings.Contains(card, want) {
			t.Errorf("%s\nwants %q", card, want)
		}
	}
	must(t, "mappo", "--resume", "out")
	if again := read(t, "out/model/README.md"); again != card {
		t.Errorf("the card of the resumed run differs:\n%s", again)
	}
	must(t, tinyMappo(2, "--lora-rank", "2", "--out", "lora")...)
	if card := read(t, "lora/adapter/README.md"); !strings.Contains(card, "library_name: peft\n") {
		t.Error(card)
	}
	must(t, "model", "export", "--model", "model", "--adapter", "lora/adapter", "--out", "merged")
	must(t, "model", "export", "--model", "merged", "--gguf", "f32", "--answers", "0", "--out", "m.gguf")
	for path, wants := range map[string][]string{
		"merged/README.md": {"library_name: transformers\n", "## Merged by posttrain model export\n", "## Objective\n"},
		"m.md": {"library_name: gguf\n", "base_model: \"model\"\n", "## Merged",
			"## Exported by posttrain model export\n", "token ids      equal in "},
	} {
		card := read(t, path)
		for _, want := range wants {
			if !strings.Contains(card, want) {
				t.Errorf("%s wants %q:\n%s", path, want, card)
			}
		}
	}
	if _, err := os.Stat(filepath.Join("lora", "model")); err == nil {
		t.Error("an adapter's run has a model")
	}
}
