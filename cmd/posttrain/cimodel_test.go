//go:build fixtures

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/testkit"
)

// TestCIModel makes the model of testkit.CIModel again: it learns answers to the items of workCI that share all, a part,
// or what they should not, so that rewards of one prompt differ.
//
//	go test -tags fixtures ./cmd/posttrain -run TestCIModel
func TestCIModel(t *testing.T) {
	workCI(t)
	var demos strings.Builder
	for _, item := range ci.Synthesize(24, 5) {
		for order := range uint64(4) {
			for _, completion := range ciAnswers(item) {
				demos.WriteString(jsonLine(map[string]any{"prompt": ci.Prompt(item, ci.PromptCompact, order),
					"completion": chat("assistant", completion)}))
			}
		}
	}
	write(t, "demos.jsonl", demos.String())
	write(t, "tiny.json", read(t, filepath.Join(testkit.CIModel(), "config.json")))
	must(t, "model", "init", "--like", "tiny.json", "--tokenizer", "embedded", "--out", "random")
	o := must(t, "sft", "--model", "random", "--data", "demos.jsonl", "--set", "data.eval_fraction=0.02", "--max-steps",
		"700", "--set", "train.batch_size=24", "--set", "train.learning_rate=5e-3", "--set", "train.schedule=cosine", "--set",
		"train.warmup_steps=20", "--out", "out")
	t.Log(o.out)
	for _, name := range []string{"config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
		"tokenizer_config.json"} {
		write(t, filepath.Join(testkit.CIModel(), name), read(t, filepath.Join("out", "model", name)))
	}
}

// ciAnswers are short: of a dozen tokens, where the embedded model's have sixty.
func ciAnswers(item ci.Item) (all []string) {
	required, restricted := item.Required(), item.Restricted()
	for _, shared := range [][]string{required, required[:1], required[:1], append(restricted[:1:1], required[0])} {
		all = append(all, "<think></think><answer> "+strings.Join(shared, " ")+"</answer>")
	}
	return all
}
