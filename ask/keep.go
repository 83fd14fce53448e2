package ask

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout"
)

// Kept are the results for the first of a list of prompts or answers, in a file that grows with each part of the work:
// what an interrupted process has done, the next one takes.
type Kept[T any] struct {
	Done []T

	all  int
	file *run.Journal[keptRow[T]]
}

// keptRow is a line of the file: first what the results are of, then the results of a part of the work.
type keptRow[T any] struct {
	Of   string `json:"of,omitempty"`
	Rows []T    `json:"rows,omitempty"`
}

// Drawn says what another file of answers to prompts has, for [Keep].
const Drawn = "answers of an interrupted run with other prompts, another model or other settings"

// Keep opens the file of the results for a list of inputs, and takes those that are there. of identifies what they
// depend on; others says what a file with another one has, for an error; "": such results are dropped.
func Keep[T any](path, of string, all int, others string) (*Kept[T], error) {
	file, rows, err := run.OpenJournal[keptRow[T]](path)
	if err != nil {
		return nil, err
	}
	if len(rows) > 0 && rows[0].Of != of && others == "" {
		rows, err = nil, file.Clear()
	}
	k := &Kept[T]{all: all, file: file}
	switch {
	case err != nil:
	case len(rows) == 0:
		err = file.Add(keptRow[T]{Of: of})
	default:
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

// Fill gets the results that are missing, atOnce in a call: do gives those from from to to-1. They are in the file
// before the reporter's bar gets their number; what is the unit of the bar. Where the context has ended, the error is
// its cause. The file is durable then, and takes no more.
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

// Scores asks a judge for the scores of answers, which are kept in a file. of identifies what they depend on. One call
// always has whole groups of together answers, such as the two of a pair. More than half of the answers without a score
// are an error.
func Scores(ctx context.Context, r run.Reporter, path, of string, j Judge, answers []Answer, together int) (
	*Kept[Score], error) {
	k, err := Keep[Score](path, of, len(answers), "scores of an interrupted run with other answers or another reward")
	if err != nil {
		return nil, err
	}
	atOnce := max(together, j.Batch()/together*together)
	return k, k.Fill(ctx, r, "answer", atOnce, func(ctx context.Context, from, to int) ([]Score, error) {
		scores, err := j.Score(ctx, answers[from:to])
		if err == nil {
			err = checkScores(answers[from:to], scores)
		}
		if err != nil {
			return nil, err
		}
		lost, why := Lost(slices.Concat(k.Done, scores))
		if done := len(k.Done) + len(scores); 2*lost > done {
			return nil, fmt.Errorf("%d of the first %d answers have no score: %s", lost, done, why)
		}
		return scores, nil
	})
}

// Assign gives the answers of all groups, one group after the other, their scores.
func Assign(groups [][]Answer, scores []Score) {
	for _, g := range groups {
		for i := range g {
			g[i].Score, scores = scores[0], scores[1:]
		}
	}
}

// Texts are the answers to questions, of which a file keeps the texts.
type Texts struct {
	*Kept[[]string]
	questions []Question
	atOnce    int
}

// KeepTexts opens the file of the answers to questions with that many samples each, see [Keep].
func KeepTexts(path, of string, questions []Question, samples int) (*Texts, error) {
	kept, err := Keep[[]string](path, of, len(questions), Drawn)
	return &Texts{kept, questions, AtOnce(samples)}, err
}

// Fill gets the answers that are missing from a model, see [Kept.Fill].
func (t *Texts) Fill(ctx context.Context, r run.Reporter,
	answer func(context.Context, []Question) ([][]Answer, error)) error {
	return t.Kept.Fill(ctx, r, "prompt", t.atOnce, func(ctx context.Context, from, to int) ([][]string, error) {
		groups, err := answer(ctx, t.questions[from:to])
		if err != nil {
			return nil, err
		}
		texts := make([][]string, len(groups))
		for i, g := range groups {
			for _, a := range g {
				texts[i] = append(texts[i], a.Text)
			}
		}
		return texts, nil
	})
}

// Answers are the answers to each question that is answered.
func (t *Texts) Answers() [][]Answer {
	groups := make([][]Answer, len(t.Done))
	for i, texts := range t.Done {
		groups[i] = make([]Answer, len(texts))
		for k, text := range texts {
			groups[i][k] = Answer{To: &t.questions[i], Completion: rollout.Completion{Text: text}}
		}
	}
	return groups
}
