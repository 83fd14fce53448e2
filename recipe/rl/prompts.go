package rl

import (
	"fmt"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe"
)

// readPrompts reads the prompts of a file, or those of the embedded pairs.
func (t *training) readPrompts(name string) (rows []records.Prompt, err error) {
	if name == embedded.Name {
		pairs, _, err := recipe.ReadPairs(name, data.PreferenceOptions{})
		for _, p := range pairs {
			rows = append(rows, records.Prompt{Text: p.Prompt, Source: p.Source})
		}
		return rows, err
	}
	rows, report, err := records.ReadPrompts(name)
	switch {
	case err != nil:
		return nil, err
	case len(rows) > 0 && rows[0].Item != nil:
		return nil, fmt.Errorf("%s: it has contextual-integrity items, which `posttrain ci-rl` trains on: want prompts",
			name)
	}
	t.Say("%s", report)
	return rows, nil
}

// EncodePrompts gives the tokens of prompts. Those without a token, or with more than limit, are left out and counted.
func EncodePrompts(r *recipe.Run, rows []records.Prompt, limit int) (kept []records.Prompt, tokens [][]int32,
	err error) {
	e := &batch.Encoder{Tokenizer: r.Tokenizer}
	for _, row := range rows {
		ids, err := e.Prompt(row.Text)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", row.Source, err)
		}
		if len(ids) > 0 && len(ids) <= limit {
			kept, tokens = append(kept, row), append(tokens, ids)
		}
	}
	if long := len(rows) - len(kept); long > 0 {
		r.Say("%d of %d prompts left out: they have no token, or more than %d", long, len(rows), limit)
	}
	return kept, tokens, nil
}

// tasks are prompts that rewards are given for.
func (t *training) tasks(rows []records.Prompt) ([]grpo.Task, error) {
	kept, tokens, err := EncodePrompts(t.Run, rows, t.Limit(t.o.Data.MaxPromptTokens))
	tasks := make([]grpo.Task, len(kept))
	for i := range kept {
		p := &kept[i]
		tasks[i] = grpo.Task{Tokens: tokens[i], Prompt: p.Text.Words(), Source: p.Source, Data: p}
		if len(p.Row) > 0 {
			tasks[i].Target = fmt.Sprint(p.Row) // in the order of the columns' names
		}
	}
	return tasks, err
}
