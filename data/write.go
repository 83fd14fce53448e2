package data

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
)

// WritePreferences writes pairs as JSON lines with the columns prompt, chosen, rejected and, for scored pairs,
// chosen_score, rejected_score. The file appears whole or not at all: it is written beside path under a temporary name
// and renamed.
func WritePreferences(path string, pairs []Preference) error {
	return writeLines(path, len(pairs), func(i int) (any, error) { return preferenceLine(pairs[i]) })
}

// WriteDemonstrations writes demonstrations as JSON lines with the columns prompt and completion, or text where there
// is no prompt, whole or not at all.
func WriteDemonstrations(path string, demos []Demonstration) error {
	return writeLines(path, len(demos), func(i int) (any, error) { return demonstrationLine(demos[i]), nil })
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

// writeLines writes n JSON lines.
func writeLines(path string, n int, line func(i int) (any, error)) error {
	return writeAtomic(path, func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false) // <think> stays readable
		for i := range n {
			value, err := line(i)
			if err != nil {
				return err
			}
			if err := enc.Encode(value); err != nil {
				return err
			}
		}
		return nil
	})
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
