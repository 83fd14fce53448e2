package data

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/posttrain/posttrain/data/internal/rows"
)

// PromptRow is a text or conversation to be continued.
type PromptRow struct {
	Prompt Text
	Source string // as in Preference
}

const promptColumns = "want prompt (a string or a list of {role, content}) or messages"

// ReadPrompts reads prompts from a .jsonl, .json or .parquet file, each also with .gz. The column is TRL's prompt, a
// string or a list of {role, content}, or messages; other columns are left alone. Empty prompts are dropped and counted
// in the Report, conversations that end with the assistant's turn too: there is nothing to be said.
func ReadPrompts(path string) ([]PromptRow, *Report, error) { return readPrompts(nil, path) }

func readPrompts(fsys fs.FS, path string) ([]PromptRow, *Report, error) {
	return Collect(path, rows.Read(fsys, path), promptOf)
}

// promptOf makes a prompt of a row; why is the reason to drop it, "" to keep it.
func promptOf(r rows.Row, _ *Report) (p PromptRow, why string, err error) {
	p.Source = r.Source
	switch {
	case r.Has("prompt"):
		p.Prompt, err = textOf("prompt", r.Fields["prompt"])
	case r.Has("messages"):
		p.Prompt, err = textOf("messages", r.Fields["messages"])
		if err == nil && !p.Prompt.IsChat() {
			err = errors.New("messages is a string: want a list of {role, content}, or the column named prompt")
		}
	default:
		err = fmt.Errorf("found columns %s: %s", rows.List(r.Columns()), promptColumns)
	}
	if err != nil {
		return p, "", err
	}
	if p.Prompt.Empty() {
		return p, "prompt is empty", nil
	}
	if m := p.Prompt.Messages; m != nil && m[len(m)-1].Role == "assistant" {
		return p, "the last message is the assistant's", nil
	}
	return p, "", nil
}
