package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/train"
)

// shape is a batch's shape: pairs of rows of length tokens, which begin with the pair's prompt of prompt tokens.
type shape struct{ pairs, length, prompt int }

func (s *shape) register(flags *pflag.FlagSet) {
	flags.IntVar(&s.pairs, "pairs", s.pairs, "pairs a step")
	flags.IntVar(&s.length, "length", s.length, "tokens a row")
	flags.IntVar(&s.prompt, "prompt", s.prompt, "of these, tokens of the prompt")
}

func (s shape) tokens() int { return 2 * s.pairs * s.length }

func (s shape) String() string {
	return fmt.Sprintf("%dx%d tokens (%d pairs, prompt %d, answers %d)",
		2*s.pairs, s.length, s.pairs, s.prompt, s.length-s.prompt)
}

// problem is batch.json: a batch and how to train on it. peer_torch.py writes and explains the same file.
type problem struct {
	Prompt       int       `json:"prompt"`
	Beta         float64   `json:"beta"`
	MaxGradNorm  float64   `json:"max_grad_norm"`
	LearningRate float64   `json:"learning_rate"`
	WeightDecay  float64   `json:"weight_decay"`
	Tokens       [][]int32 `json:"tokens"`              // [2*pairs][length], chosen rows first
	Reference    []float32 `json:"reference,omitempty"` // [2*pairs]; absent: measured before the first step
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

// references are the pairs' reference log-probs, nil if the file has none.
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
	path, p := filepath.Join(dir, problemFile), &problem{}
	if err := readJSON(path, p); err != nil {
		return nil, err
	}
	for i, row := range p.Tokens {
		if len(p.Tokens)%2 != 0 || p.Prompt < 1 || len(row) <= p.Prompt {
			return nil, fmt.Errorf("%s: row %d has %d tokens, prompt %d: want pairs of rows longer than their prompt",
				path, i, len(row), p.Prompt)
		}
	}
	return p, nil
}

func readJSON(path string, into any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// randomProblem is a batch of random tokens, always the same for a shape and vocabulary.
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

// newWorld makes a world in a new folder without Python: a random model, and a file with the content. The caller
// removes the folder.
func newWorld(c *model.Config, file string, content any) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return "", err
	}
	raw, err := json.Marshal(content)
	if err == nil {
		err = model.Init(c, 1).Save(dir, "float32")
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, file), raw, 0o644)
	}
	if err != nil {
		os.RemoveAll(dir)
	}
	return dir, err
}

// pairWorld makes a world with a random batch.
func pairWorld(preset string, s shape, rate float64) (string, error) {
	c, err := config(preset)
	if err != nil {
		return "", err
	}
	return newWorld(c, problemFile, randomProblem(s, c.VocabSize, rate))
}

// presets are those of decoder.py, by size, after one for trials.
var presets = map[string]string{
	"tiny":         preset("llama", 32, 2, 4, 2, 8, 64, 256, 1e-5, 1e4),
	"5.4M":         preset("llama", 256, 6, 8, 4, 32, 688, 4096, 1e-5, 1e4),
	"56M":          preset("llama", 640, 10, 10, 5, 64, 1728, 16384, 1e-5, 1e4),
	"135M":         preset("llama", 576, 30, 9, 3, 64, 1536, 49152, 1e-5, 1e4),
	"qwen2.5-0.5b": preset("qwen2", 896, 24, 14, 2, 64, 4864, 151936, 1e-6, 1e6),
	"qwen2.5-1.5b": preset("qwen2", 1536, 28, 12, 2, 128, 8960, 151936, 1e-6, 1e6),
}

// preset is a config.json.
func preset(kind string, hidden, layers, heads, kvHeads, headDim, inner, vocab int, epsilon, theta float64) string {
	return fmt.Sprintf(`{"model_type": %q, "hidden_size": %d, "num_hidden_layers": %d, "num_attention_heads": %d,
		"num_key_value_heads": %d, "head_dim": %d, "intermediate_size": %d, "vocab_size": %d, "rms_norm_eps": %g,
		"rope_theta": %f, "hidden_act": "silu", "max_position_embeddings": 32768, "tie_word_embeddings": true,
		"initializer_range": 0.02, "eos_token_id": 0, "torch_dtype": "float32"}`,
		kind, hidden, layers, heads, kvHeads, headDim, inner, vocab, epsilon, theta)
}

// config is the configuration of a preset.
func config(preset string) (*model.Config, error) {
	text, ok := presets[preset]
	if !ok {
		return nil, fmt.Errorf("preset %q: want tiny, 5.4M, 56M, 135M, qwen2.5-0.5b or qwen2.5-1.5b", preset)
	}
	return model.ParseConfig([]byte(text), nil)
}

// presetConfig is config, also for the folder of promptWorld.
func presetConfig(preset string) (*model.Config, error) {
	if strings.Contains(preset, "/") {
		return model.ConfigLike(preset)
	}
	return config(preset)
}

// prompts is prompts.json: prompts and the lengths of their completions. peer_sample.py and peer_grpo.py read it too.
type prompts struct {
	New     int       `json:"new"`               // tokens of every completion
	Prompts [][]int32 `json:"prompts"`           // all of one length
	Lengths []int     `json:"lengths,omitempty"` // tokens of each prompt's completion, instead of New
}

// tokens is the number of tokens of the first n completions.
func (p *prompts) tokens(n int) int {
	sum := 0
	for i := range n {
		sum += p.length(i)
	}
	return sum
}

// length is the number of tokens of completion i.
func (p *prompts) length(i int) int {
	if p.Lengths == nil {
		return p.New
	}
	return p.Lengths[i]
}

// randomPrompts are n prompts of length random tokens, each repeated samples times in a row. Tokens 0 and 1, which end
// and pad texts, do not occur.
func randomPrompts(n, samples, length, fresh, vocab int) *prompts {
	r := rand.New(rand.NewPCG(3, 3))
	p := &prompts{New: fresh}
	for range n {
		ids := make([]int32, length)
		for k := range ids {
			ids[k] = 2 + r.Int32N(int32(vocab-2))
		}
		for range samples {
			p.Prompts = append(p.Prompts, ids)
		}
	}
	return p
}

const promptsFile = "prompts.json"

func readPrompts(dir string) (*prompts, error) {
	path, p := filepath.Join(dir, promptsFile), &prompts{}
	if err := readJSON(path, p); err != nil {
		return nil, err
	}
	if len(p.Prompts) == 0 || p.Lengths != nil && len(p.Lengths) != len(p.Prompts) {
		return nil, fmt.Errorf("%s: %d prompts and %d lengths: want some prompts, and a length for each or no lengths",
			path, len(p.Prompts), len(p.Lengths))
	}
	return p, nil
}

// deviation of the random weights of a world with prompts: wide enough that predictions are not uniform, and that
// greedy tokens do not repeat the last one for ever.
const deviation = 0.08

// promptWorld makes a world with random prompts; lengths (nil: fresh for all) are those of the completions. A preset
// with a slash is a model folder.
func promptWorld(preset string, n, samples, length, fresh int, lengths []int) (string, error) {
	if strings.Contains(preset, "/") {
		return folderWorld(preset, n, samples, length, fresh, lengths)
	}
	c, err := config(preset)
	if err != nil {
		return "", err
	}
	c.InitRange = deviation
	p := randomPrompts(n, samples, length, fresh, c.VocabSize)
	p.Lengths = lengths
	return newWorld(c, promptsFile, p)
}

// folderWorld is a world with the files of a model folder.
func folderWorld(folder string, n, samples, length, fresh int, lengths []int) (dir string, err error) {
	c, err := model.ConfigLike(folder)
	if err != nil {
		return "", err
	}
	p := randomPrompts(n, samples, length, fresh, c.VocabSize)
	p.Lengths = lengths
	if dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return "", err
	}
	if err = linkFiles(folder, dir); err == nil {
		err = writePrompts(dir, p)
	}
	if err != nil {
		os.RemoveAll(dir)
	}
	return dir, err
}

func linkFiles(from, to string) error {
	from, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(from, "*.*"))
	if err != nil {
		return err
	}
	return forEach(files, func(path string) error { return os.Symlink(path, filepath.Join(to, filepath.Base(path))) })
}

func writePrompts(dir string, p *prompts) error {
	raw, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, promptsFile), raw, 0o644)
}
