// Package xstest measures with XSTest (Röttger et al., arXiv:2308.01263) whether a model refuses what is safe and only
// sounds unsafe, and complies with what is unsafe.
package xstest

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// Prompt is a row of the benchmark.
type Prompt struct {
	ID    string
	Text  string
	Type  string // such as homonyms; contrast_homonyms has unsafe prompts
	Label string // safe or unsafe; "": as the type says
}

// The labels of prompts.
const safe, unsafe = "safe", "unsafe"

// check gives a prompt its label, and says what of it is missing.
func (p *Prompt) check() error {
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
	}
	return nil
}

// readPrompts reads the benchmark's .csv file, or rows with the same columns (.jsonl, .json, .parquet).
func readPrompts(path string) (all []Prompt, err error) {
	if filepath.Ext(path) != ".csv" {
		type row struct {
			ID     string `json:"id"`
			Prompt string `json:"prompt"`
			Type   string `json:"type"`
			Label  string `json:"label"`
		}
		all, _, err = data.ReadTable(nil, path, func(r *row, _ string, _ *data.Report) (Prompt, string, error) {
			p := Prompt{r.ID, r.Prompt, r.Type, r.Label}
			return p, "id " + p.ID, p.check()
		})
		return all, err
	}
	seen := map[string]bool{}
	err = data.ReadCSV(nil, path, []string{"id", "prompt", "type"}, func(row map[string]string) error {
		p := Prompt{row["id"], row["prompt"], row["type"], row["label"]}
		if seen[p.ID] {
			return fmt.Errorf("id %s is there twice", p.ID)
		}
		err := p.check()
		seen[p.ID], all = true, append(all, p)
		return err
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s: no rows: the file is empty", path)
	}
	return all, err
}
