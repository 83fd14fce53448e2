package scorer

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/posttrain/posttrain/data/journal"
)

// Drawn are the answers to a list of prompts, in a file that grows with each call of a sampler: what an interrupted
// process has drawn, the next one takes.
type Drawn struct {
	Answers [][]string // of the first prompts; nil: the prompt has no answers

	prompts int
	file    *journal.Journal[drawnRow]
}

// drawnRow is a line of the file: first what the answers are of, then those to the prompts of a call.
type drawnRow struct {
	Of      string     `json:"of,omitempty"`
	Answers [][]string `json:"answers,omitempty"`
}

// together is how many answers a call draws. A sampler decodes about that many together anyway.
const together = 128

// PromptsAtOnce is how many prompts with this number of answers each a call has. It is the same in a run that was
// interrupted, so that its answers are, too: rounding may depend on what is decoded together.
func PromptsAtOnce(samples int) int { return max(1, together/samples) }

// KeepAnswers opens the file of the answers to a number of prompts, and takes those that are there. of identifies what
// the answers depend on.
func KeepAnswers(path, of string, prompts int) (*Drawn, error) {
	file, rows, err := journal.Open[drawnRow](path)
	if err != nil {
		return nil, err
	}
	d := &Drawn{prompts: prompts, file: file}
	if err := d.open(of, rows); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return d, nil
}

func (d *Drawn) open(of string, rows []drawnRow) error {
	if len(rows) == 0 {
		return d.file.Add(drawnRow{Of: of})
	}
	for _, row := range rows[1:] {
		d.Answers = append(d.Answers, row.Answers...)
	}
	if rows[0].Of != of || len(d.Answers) > d.prompts {
		return fmt.Errorf("%s has the answers of an interrupted run with other prompts, another model or other "+
			"settings: remove it, or name another --out", d.file.Path())
	}
	return nil
}

// Path is the file's.
func (d *Drawn) Path() string { return d.file.Path() }

// Draw draws what is missing: draw gives samples answers to each of the prompts from..to-1, or nil to a prompt that it
// cannot answer. They are in the file before tick hears how many prompts are done.
func (d *Drawn) Draw(ctx context.Context, samples int,
	draw func(ctx context.Context, from, to int) ([][]string, error), tick func(done int)) error {
	for at := len(d.Answers); at < d.prompts; at = len(d.Answers) {
		answers, err := draw(ctx, at, min(at+PromptsAtOnce(samples), d.prompts))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			err = d.file.Add(drawnRow{Answers: answers})
		}
		if err != nil {
			return err
		}
		d.Answers = append(d.Answers, answers...)
		tick(len(d.Answers))
	}
	return nil
}

// Close makes the answers durable.
func (d *Drawn) Close() error { return d.file.Close() }

// Remove removes the file.
func (d *Drawn) Remove() error { return os.Remove(d.file.Path()) }
