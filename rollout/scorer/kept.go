package scorer

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/rollout/metered"
)

// Kept are the results for the first of a list of prompts or answers, in a file that grows with each part of the work:
// what an interrupted process has done, the next one takes.
type Kept[T any] struct {
	Done []T

	all  int
	file *metered.Journal[keptRow[T]]
}

// keptRow is a line of the file: first what the results are of, then those of a part of the work.
type keptRow[T any] struct {
	Of   string `json:"of,omitempty"`
	Rows []T    `json:"rows,omitempty"`
}

// Drawn says what another file of answers to prompts has, for [Keep].
const Drawn = "answers of an interrupted run with other prompts, another model or other settings"

// Keep opens the file of the results for a list of inputs, and takes those that are there. of identifies what they
// depend on; others says what a file with another one has.
func Keep[T any](path, of string, all int, others string) (*Kept[T], error) {
	file, rows, err := metered.OpenJournal[keptRow[T]](path)
	if err != nil {
		return nil, err
	}
	k := &Kept[T]{all: all, file: file}
	if len(rows) == 0 {
		err = file.Add(keptRow[T]{Of: of})
	} else {
		for _, row := range rows[1:] {
			k.Done = append(k.Done, row.Rows...)
		}
		if rows[0].Of != of || len(k.Done) > all {
			err = fmt.Errorf("%s has the %s: remove it, or name another --out", path, others)
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return k, nil
}

// Fill gets the results that are missing, atOnce in a call: do gives those from from to to-1. They are in the file before
// the reporter's bar gets their number; what is the unit of the bar. Where the context has ended, the error is its cause.
// The file is durable then, and takes no more.
func (k *Kept[T]) Fill(ctx context.Context, r run.Reporter, what string, atOnce int,
	do func(ctx context.Context, from, to int) ([]T, error)) error {
	if n := len(k.Done); n > 0 {
		r.Say("%s: continuing after %d of %d %ss", k.file.Path(), n, k.all, what)
	}
	bar := r.Progress(what, len(k.Done), k.all)
	defer bar.Close()
	for at := len(k.Done); at < k.all; at = len(k.Done) {
		results, err := do(ctx, at, min(at+atOnce, k.all))
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if err == nil {
			err = k.file.Add(keptRow[T]{Rows: results})
		}
		if err != nil {
			return errors.Join(err, k.file.Close())
		}
		k.Done = append(k.Done, results...)
		bar.Step(len(k.Done), nil)
	}
	return k.file.Close()
}

// Remove removes the file.
func (k *Kept[T]) Remove() error { return os.Remove(k.file.Path()) }

// together is how many answers a call of a sampler draws. It decodes about that many together anyway.
const together = 128

// PromptsAtOnce is how many prompts with this number of answers each a call has. It is the same in a run that was
// interrupted, so that its answers are, too: rounding may depend on what is decoded together.
func PromptsAtOnce(samples int) int { return max(1, together/samples) }

// Scores asks a source of these options for the scores of answers, which are kept in a file. One call always has whole
// groups of together answers, such as the two of a pair. More than half of the answers without a score are an error.
func Scores(ctx context.Context, r run.Reporter, path string, s Source, o Options, answers []Answer, together int) (
	*Kept[Score], error) {
	k, err := Keep[Score](path, o.identify(answers), len(answers), "scores of an interrupted run with other answers or "+
		"another reward")
	if err != nil {
		return nil, err
	}
	atOnce := max(together, s.Batch()/together*together)
	return k, k.Fill(ctx, r, "answer", atOnce, func(ctx context.Context, from, to int) ([]Score, error) {
		scores, err := s.Score(ctx, answers[from:to])
		if err == nil {
			err = check(answers[from:to], scores)
		}
		if err != nil {
			return nil, err
		}
		lost, why := Unscored(k.Done)
		if more, last := Unscored(scores); more > 0 {
			lost, why = lost+more, last
		}
		if done := len(k.Done) + len(scores); 2*lost > done {
			return nil, fmt.Errorf("%d of the first %d answers have no score: %s", lost, done, why)
		}
		return scores, nil
	})
}

// Unscored counts the answers without a score, and says why the last of them has none.
func Unscored(scores []Score) (n int, why string) {
	for _, s := range scores {
		if s.Why != "" {
			n, why = n+1, s.Why
		}
	}
	return n, why
}

// check refuses scores that no pair can be made with.
func check(answers []Answer, scores []Score) error {
	if len(scores) != len(answers) {
		return fmt.Errorf("the reward gave %d scores for %d answers from %s on", len(scores), len(answers),
			answers[0].Source)
	}
	for i, s := range scores {
		if math.IsNaN(s.Value) || math.IsInf(s.Value, 0) {
			return fmt.Errorf("the reward gave the score %v to an answer of %s: want a finite number", s.Value,
				answers[i].Source)
		}
	}
	return nil
}

// identify is a hash of what scores depend on.
func (o Options) identify(answers []Answer) string {
	h, j := sha256.New(), o.Judge
	enc := json.NewEncoder(h)
	_ = enc.Encode([]any{o.Kind, o.Command, j.BaseURL, j.APIVersion, j.Model, rubricText(j.Rubric), j.Range, j.MaxNew,
		o.CI, o.Model.Folder, weightsOf(o.Model.Folder)})
	if len(o.Weights) > 0 || o.Has(Exact) || o.Has(Pattern) {
		_ = enc.Encode([]any{o.Weights, o.FunctionOptions})
	}
	for _, a := range answers {
		_ = enc.Encode([]any{a.Prompt, a.Response, a.Prefilled})
		if more := append(a.Prompt.Unwritten(), a.Response.Unwritten()...); more != nil {
			_ = enc.Encode(more)
		}
		if len(a.Row) > 0 {
			_ = enc.Encode(a.Row)
		}
		if a.Item != nil {
			_ = enc.Encode([][]string{a.Item.Required(), a.Item.Restricted()})
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

// rubricText is the text of a rubric, which may change under its name.
func rubricText(path string) string {
	if path == "" {
		return builtIn
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return path // readRubric has an error for it
	}
	return string(text)
}

// weightsOf is the hash of a reward model, which may be trained again in its folder; "" without one, and where opening
// it will say what is wrong.
func weightsOf(folder string) (hash string) {
	if folder == "" {
		return ""
	}
	m, _, err := local.LoadReward(folder)
	if err == nil {
		defer m.Release()
		hash, _ = m.Hash()
	}
	return hash
}
