package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/posttrain/posttrain/model"
)

// prompts is prompts.json: what to continue, and how far. peer_sample.py and peer_grpo.py read the same file.
type prompts struct {
	New     int       `json:"new"`               // tokens of every completion
	Prompts [][]int32 `json:"prompts"`           // all of one length
	Lengths []int     `json:"lengths,omitempty"` // tokens of each prompt's completion, instead of New
}

// tokens counts what the first n prompts are continued by.
func (p *prompts) tokens(n int) int {
	sum := 0
	for i := range n {
		sum += p.length(i)
	}
	return sum
}

// length is the number of tokens that prompt i is continued by.
func (p *prompts) length(i int) int {
	if p.Lengths == nil {
		return p.New
	}
	return p.Lengths[i]
}

// randomPrompts are n prompts of length random tokens, each standing `samples` times in a row. Tokens 0 and 1, which end
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
	path := filepath.Join(dir, promptsFile)
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := &prompts{}
	if err := json.Unmarshal(raw, p); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(p.Prompts) == 0 || p.Lengths != nil && len(p.Lengths) != len(p.Prompts) {
		return nil, fmt.Errorf("%s: %d prompts and %d lengths: want some, and as many or no lengths", path, len(p.Prompts), len(p.Lengths))
	}
	return p, nil
}

// deviation of the random weights of a world of prompts: wide enough that a model has opinions, and that greedy tokens
// do not repeat the last one for ever.
const deviation = 0.08

// writePrompts makes a world to sample in: a random model of a preset, and prompts.
func writePrompts(dir, preset string, p *prompts) error {
	c, err := config(preset)
	if err != nil {
		return err
	}
	c.InitRange = deviation
	if err := model.Init(c, 1).Save(dir, "float32"); err != nil {
		return err
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, promptsFile), raw, 0o644)
}

// promptWorld makes a world in a new folder; the caller removes it.
func promptWorld(preset string, n, samples, length, fresh int) (string, error) {
	c, err := config(preset)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return "", err
	}
	return dir, writePrompts(dir, preset, randomPrompts(n, samples, length, fresh, c.VocabSize))
}
