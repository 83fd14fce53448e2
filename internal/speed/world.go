package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe/rl"
	"github.com/posttrain/posttrain/tokenizer"
)

// Files of worlds, beside the model.
const problemFile, promptsFile = "batch.json", "prompts.json"

// problem is batch.json: a batch and how to train on it. peer_torch.py writes and explains the same file.
type problem struct {
	Prompt       int       `json:"prompt"`
	Beta         float64   `json:"beta"`
	MaxGradNorm  float64   `json:"max_grad_norm"`
	LearningRate float64   `json:"learning_rate"`
	WeightDecay  float64   `json:"weight_decay"`
	Tokens       [][]int32 `json:"tokens"`    // [2*pairs][length], chosen rows first
	Reference    []float32 `json:"reference"` // [2*pairs]
}

// groups are the pairs as prompt and two answers, the chosen one first.
func (p *problem) groups() []batch.Group {
	groups := make([]batch.Group, len(p.Tokens)/2)
	for i := range groups {
		chosen, rejected := p.Tokens[i], p.Tokens[i+len(groups)]
		groups[i] = batch.Group{Prompt: chosen[:p.Prompt], Answers: [][]int32{chosen[p.Prompt:], rejected[p.Prompt:]}}
	}
	return groups
}

// prompts is prompts.json: prompts, of one length unless they are a file's. peer_sample.py and peer_grpo.py read it too.
type prompts struct {
	New     int       `json:"new"` // tokens of every completion
	Prompts [][]int32 `json:"prompts"`
}

func readJSON(dir, name string, into any) error {
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	return nil
}

// presets are decoder.py's, by size, after one for trials: hidden size, layers, heads, heads of keys and values, size
// of a head, inner size, vocabulary.
var presets = map[string][7]int{
	"tiny":         {32, 2, 4, 2, 8, 64, 256},
	"5.4M":         {256, 6, 8, 4, 32, 688, 4096},
	"56M":          {640, 10, 10, 5, 64, 1728, 16384},
	"135M":         {576, 30, 9, 3, 64, 1536, 49152},
	"qwen2.5-0.5b": {896, 24, 14, 2, 64, 4864, 151936},
	"qwen2.5-1.5b": {1536, 28, 12, 2, 128, 8960, 151936},
}

// configOf is the configuration of a preset. Its random weights are wide enough that predictions are not uniform, and
// that greedy tokens do not repeat the last one for ever.
func configOf(preset string) (*model.Config, error) {
	p, ok := presets[preset]
	if !ok {
		return nil, fmt.Errorf("preset %q: want tiny, 5.4M, 56M, 135M, qwen2.5-0.5b or qwen2.5-1.5b", preset)
	}
	kind, epsilon, theta := "llama", 1e-5, 1e4
	if preset[0] == 'q' {
		kind, epsilon, theta = "qwen2", 1e-6, 1e6
	}
	return model.ParseConfig(fmt.Appendf(nil, `{"model_type": %q, "hidden_size": %d, "num_hidden_layers": %d,
		"num_attention_heads": %d, "num_key_value_heads": %d, "head_dim": %d, "intermediate_size": %d,
		"vocab_size": %d,
		"rms_norm_eps": %g, "rope_theta": %f, "hidden_act": "silu", "max_position_embeddings": 32768,
		"tie_word_embeddings": true, "initializer_range": 0.08, "eos_token_id": 0, "torch_dtype": "float32"}`,
		kind, p[0], p[1], p[2], p[3], p[4], p[5], p[6], epsilon, theta), nil)
}

// itemWorld makes a world of a model folder, with the CI-CoT prompts of the first n contextual-integrity items of a file
// that are trained on by default.
func itemWorld(folder, items string, n, fresh int) (dir string, err error) {
	tok, err := tokenizer.Load(folder)
	if err != nil {
		return "", err
	}
	o := rl.CISpec.Defaults()
	o.Model, o.Data.TrainFiles = folder, config.Names{items}
	o.Data.Form = ci.Form{Prompt: ci.PromptCoT, Prefill: true}
	parts, err := o.Items(nil)
	if err != nil {
		return "", err
	}
	cases, _, err := o.Questions(&batch.Encoder{Tokenizer: tok}, ci.Train, parts[ci.Train], o.Data.MaxPromptTokens)
	if err != nil {
		return "", err
	}
	if len(cases) < n {
		return "", fmt.Errorf("%s: %d items to train on, want %d or more", items, len(cases), n)
	}
	p := &prompts{New: fresh}
	for _, c := range cases[:n] {
		p.Prompts = append(p.Prompts, c.Tokens)
	}
	return worldOf(p, func(dir string) error { return os.CopyFS(dir, os.DirFS(folder)) })
}

// promptWorld makes a world of a preset with n random prompts. Tokens 0 and 1, which end and pad texts, do not occur.
func promptWorld(preset string, n, length, fresh int) (dir string, err error) {
	c, err := configOf(preset)
	if err != nil {
		return "", err
	}
	r := rand.New(rand.NewPCG(3, 3))
	p := &prompts{New: fresh, Prompts: make([][]int32, n)}
	for i := range p.Prompts {
		for range length {
			p.Prompts[i] = append(p.Prompts[i], 2+r.Int32N(int32(c.VocabSize-2)))
		}
	}
	return worldOf(p, func(dir string) error { return model.Init(c, 1).Save(dir, "float32") })
}

// worldOf makes a folder with prompts, beside what write puts into it.
func worldOf(p *prompts, write func(dir string) error) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "speed-"); err != nil {
		return "", err
	}
	if err = write(dir); err == nil {
		err = data.WriteJSON(filepath.Join(dir, promptsFile), p)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}
