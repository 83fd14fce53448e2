package data

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
)

// WritePreferences writes pairs with the columns prompt, chosen, rejected and, for scored pairs, chosen_score and
// rejected_score: as JSON lines, a JSON array or parquet, by the extension of the file's name (.jsonl, .json or .parquet,
// each also with .gz). The file appears whole or not at all: it is written beside path under a temporary name and
// renamed.
func WritePreferences(path string, pairs []Preference) error {
	return writeTable(path, table{
		n:       len(pairs),
		value:   func(i int) (any, error) { return preferenceLine(pairs[i]) },
		parquet: func(w io.Writer) error { return preferenceParquet(w, pairs) },
	})
}

// WriteDemonstrations writes demonstrations with the columns prompt and completion, or text where there is no prompt, in
// the forms of WritePreferences.
func WriteDemonstrations(path string, demos []Demonstration) error {
	return writeTable(path, table{
		n:       len(demos),
		value:   func(i int) (any, error) { return demonstrationLine(demos[i]), nil },
		parquet: func(w io.Writer) error { return demonstrationParquet(w, demos) },
	})
}

type preferenceJSON struct {
	Prompt        any      `json:"prompt"`
	Chosen        any      `json:"chosen"`
	Rejected      any      `json:"rejected"`
	ChosenScore   *float64 `json:"chosen_score,omitempty"`
	RejectedScore *float64 `json:"rejected_score,omitempty"`
}

type demonstrationJSON struct {
	Prompt     any `json:"prompt,omitempty"`
	Completion any `json:"completion,omitempty"`
	Text       any `json:"text,omitempty"`
}

func preferenceLine(p Preference) (any, error) {
	line := preferenceJSON{Prompt: p.Prompt.value(), Chosen: p.Chosen.value(), Rejected: p.Rejected.value()}
	if p.Scored {
		if sum := p.ChosenScore + p.RejectedScore; math.IsNaN(sum) || math.IsInf(sum, 0) {
			return nil, fmt.Errorf("pair from %s: scores %v and %v: want finite numbers", p.Source, p.ChosenScore, p.RejectedScore)
		}
		line.ChosenScore, line.RejectedScore = &p.ChosenScore, &p.RejectedScore
	}
	return line, nil
}

func demonstrationLine(d Demonstration) any {
	if d.Prompt.Empty() && !d.Completion.IsChat() {
		return demonstrationJSON{Text: d.Completion.value()}
	}
	return demonstrationJSON{Prompt: d.Prompt.value(), Completion: d.Completion.value()}
}

// value is the text as a column holds it: a string or a list of {role, content}.
func (t Text) value() any {
	if t.IsChat() {
		return t.Messages
	}
	return t.Plain
}

// writeAtomic writes a temporary file beside path and renames it.
func writeAtomic(path string, write func(w io.Writer) error) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("%s: not written: %w", path, causeOf(err))
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
			err = fmt.Errorf("%s: not written: %w", path, causeOf(err))
		}
	}()
	out := bufio.NewWriter(tmp)
	if err := write(out); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return publish(tmp, path)
}

// publish makes the temporary file durable and gives it its name.
func publish(tmp *os.File, path string) error {
	if err := tmp.Chmod(0o644); err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
