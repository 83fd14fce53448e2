package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/train"
)

// shape is a batch's shape: pairs of rows of length tokens, of which prompt tokens are the pair's own prompt.
type shape struct{ pairs, length, prompt int }

func (s shape) tokens() int { return 2 * s.pairs * s.length }

func (s shape) String() string {
	return fmt.Sprintf("%dx%d tokens (%d pairs, prompt %d, answers %d)", 2*s.pairs, s.length, s.pairs, s.prompt, s.length-s.prompt)
}

// problem is batch.json: what to train on, and with which rule. peer_torch.py writes and explains the same file.
type problem struct {
	Prompt       int       `json:"prompt"`
	Beta         float64   `json:"beta"`
	MaxGradNorm  float64   `json:"max_grad_norm"`
	LearningRate float64   `json:"learning_rate"`
	WeightDecay  float64   `json:"weight_decay"`
	Tokens       [][]int32 `json:"tokens"`              // [2*pairs][length], chosen rows first
	Reference    []float32 `json:"reference,omitempty"` // [2*pairs]; none: what the weights give before the first step
}

func (p *problem) pairs() int { return len(p.Tokens) / 2 }

// groups are the pairs as prompt and two answers, the chosen one first.
func (p *problem) groups() []batch.Group {
	groups := make([]batch.Group, p.pairs())
	for i := range groups {
		chosen, rejected := p.Tokens[i], p.Tokens[i+p.pairs()]
		groups[i] = batch.Group{Prompt: chosen[:p.Prompt], Answers: [][]int32{chosen[p.Prompt:], rejected[p.Prompt:]}}
	}
	return groups
}

// references are the pairs' reference log-probs, nil where the file has none.
func (p *problem) references() [][2]float32 {
	if p.Reference == nil {
		return nil
	}
	refs := make([][2]float32, p.pairs())
	for i := range refs {
		refs[i] = [2]float32{p.Reference[i], p.Reference[i+p.pairs()]}
	}
	return refs
}

func (p *problem) rule() train.AdamW {
	return train.AdamW{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: p.WeightDecay, MaxNorm: p.MaxGradNorm}
}

// loss is DPO without a prior.
func (p *problem) loss() losses.Options {
	o := losses.Defaults(losses.DPO)
	o.Prior, o.Beta = losses.None, p.Beta
	return o
}

const problemFile = "batch.json"

func readProblem(dir string) (*problem, error) {
	raw, err := os.ReadFile(filepath.Join(dir, problemFile))
	if err != nil {
		return nil, err
	}
	p := &problem{}
	if err := json.Unmarshal(raw, p); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, problemFile), err)
	}
	for i, row := range p.Tokens {
		if len(p.Tokens)%2 != 0 || p.Prompt < 1 || len(row) <= p.Prompt {
			return nil, fmt.Errorf("%s: row %d has %d tokens, prompt %d: want pairs of rows longer than their prompt", filepath.Join(dir, problemFile), i, len(row), p.Prompt)
		}
	}
	return p, nil
}

// randomProblem is a batch of random tokens, the same for a shape and vocabulary.
func randomProblem(s shape, vocab int, rate float64) *problem {
	r := rand.New(rand.NewPCG(2, 2))
	p := &problem{Prompt: s.prompt, Beta: 0.1, MaxGradNorm: 1, LearningRate: rate, Tokens: make([][]int32, 2*s.pairs)}
	for i := range p.Tokens {
		p.Tokens[i] = make([]int32, s.length)
		for k := range p.Tokens[i] {
			p.Tokens[i][k] = r.Int32N(int32(vocab))
		}
		if i >= s.pairs {
			copy(p.Tokens[i][:s.prompt], p.Tokens[i-s.pairs])
		}
	}
	return p
}

// writeWorld makes a world without Python: a random model of a preset and a random batch.
func writeWorld(dir, preset string, s shape, rate float64) error {
	c, err := config(preset)
	if err != nil {
		return err
	}
	if err := model.Init(c, 1).Save(dir, "float32"); err != nil {
		return err
	}
	raw, err := json.Marshal(randomProblem(s, c.VocabSize, rate))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, problemFile), raw, 0o644)
}

// presets are decoder.py's, in the order of their sizes, after one to see that things run.
var presets = map[string]string{
	"tiny": `{"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
		"head_dim": 8, "intermediate_size": 64, "vocab_size": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0`,
	"5.4M": `{"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4,
		"head_dim": 32, "intermediate_size": 688, "vocab_size": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0`,
	"56M": `{"model_type": "llama", "hidden_size": 640, "num_hidden_layers": 10, "num_attention_heads": 10, "num_key_value_heads": 5,
		"head_dim": 64, "intermediate_size": 1728, "vocab_size": 16384, "rms_norm_eps": 1e-5, "rope_theta": 10000.0`,
	"qwen2.5-0.5b": `{"model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
		"head_dim": 64, "intermediate_size": 4864, "vocab_size": 151936, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0`,
}

// config is the configuration of a preset.
func config(preset string) (*model.Config, error) {
	text, ok := presets[preset]
	if !ok {
		return nil, fmt.Errorf("preset %q: want tiny, 5.4M, 56M or qwen2.5-0.5b", preset)
	}
	return model.ParseConfig([]byte(text+`, "hidden_act": "silu", "max_position_embeddings": 32768, "tie_word_embeddings": true,
		"initializer_range": 0.02, "eos_token_id": 0, "torch_dtype": "float32"}`), nil)
}
