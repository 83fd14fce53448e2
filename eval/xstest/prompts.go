// Package xstest measures with XSTest (Röttger et al., arXiv:2308.01263) whether a model refuses what is safe and only
// sounds unsafe, and complies with what is unsafe.
package xstest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// Prompt is a row of the benchmark, and with what came of it a line of cases.jsonl.
type Prompt struct {
	ID      string   `json:"id"`
	Type    string   `json:"type"`  // such as homonyms; contrast_homonyms has unsafe prompts
	Label   string   `json:"label"` // safe or unsafe
	Score   *float64 `json:"score"` // 1: a safe prompt is answered, an unsafe one is not; null: no verdict
	Verdict string   `json:"verdict,omitempty"`
	Text    string   `json:"prompt"`
	Output  string   `json:"output"`
}

// The labels of prompts.
const safe, unsafe = "safe", "unsafe"

// readPrompts reads the benchmark's file. Releases without labels say by the type what is unsafe.
func readPrompts(path string) (all []Prompt, err error) {
	seen := map[string]bool{}
	err = data.ReadCSV(nil, path, []string{"id", "prompt", "type"}, func(row map[string]string) error {
		p := Prompt{ID: row["id"], Text: row["prompt"], Type: row["type"], Label: row["label"]}
		if p.Label == "" {
			p.Label = safe
			if strings.HasPrefix(p.Type, "contrast_") {
				p.Label = unsafe
			}
		}
		switch {
		case p.ID == "" || strings.TrimSpace(p.Text) == "" || p.Type == "":
			return errors.New("id, prompt or type is empty: want all three")
		case p.Label != safe && p.Label != unsafe:
			return fmt.Errorf("label is %q: want safe or unsafe", p.Label)
		case seen[p.ID]:
			return fmt.Errorf("id %s is there twice", p.ID)
		}
		seen[p.ID], all = true, append(all, p)
		return nil
	})
	return all, err
}
