package check

import (
	"context"
	"fmt"
	"iter"

	"github.com/posttrain/posttrain/data"
)

// Fixed says what of a file was written to another one, and what was not.
type Fixed struct {
	Path    string `json:"path"`
	Records int    `json:"records"` // written
	Left    []Left `json:"left_out"`
	// information values and keywords that are no strings, written as text
	Flattened int `json:"flattened,omitempty"`
}

// Left are rows that are not written, by the first reason of each.
type Left struct {
	Rule string `json:"rule"`
	What string `json:"what"`
	Rows int    `json:"rows"`
}

// leave counts rows that are not written.
func (r *Report) leave(rule Rule, rows int) {
	for i := range r.left {
		if r.left[i].Rule == rule.Name && r.left[i].What == rule.What {
			r.left[i].Rows += rows
			return
		}
	}
	r.left = append(r.left, Left{rule.Name, rule.What, rows})
}

// fix writes the rows without errors, each repeated row once; whole or not at all. r is the report of the file.
func (f form[T, R]) fix(ctx context.Context, r *Report, s *data.Stream[T], o Options) error {
	fixed := &Fixed{Path: o.Out, Left: r.left, Flattened: r.flattened}
	err := fmt.Errorf("%s: it cannot be read to its end: %s is not written", r.Path, o.Out)
	if !r.Broken {
		for _, err = range f.right(ctx, r.Path, s, o) {
			if err != nil {
				return err
			}
			fixed.Records++
		}
		if fixed.Records == 0 {
			err = fmt.Errorf("%s: no row is without error: %s is not written", r.Path, o.Out)
		}
	}
	if err == nil {
		err = f.write(o.Out, f.right(ctx, r.Path, s, o))
	}
	if err == nil {
		r.Fixed = fixed
	}
	return err
}

// right are the records of the rows that are right. Each time they are looked for anew.
func (f form[T, R]) right(ctx context.Context, path string, s *data.Stream[T], o Options) iter.Seq2[R, error] {
	o.Near = 0
	return func(yield func(R, error) bool) {
		again := &Report{Path: path}
		rules := f.rules(again, o)
		_, err := s.Lenient(again.bad).Each(func(t T) error {
			rules.look(t)
			row, records := f.parts(t)
			if row == again.lastLeft {
				return ctx.Err()
			}
			for _, record := range records {
				if !yield(record, nil) {
					return errEnough
				}
			}
			return ctx.Err()
		})
		if err != nil && err != errEnough {
			var none R
			yield(none, err)
		}
	}
}

var errEnough = fmt.Errorf("no more records are wanted")

// lines say what was done.
func (f *Fixed) lines(kind string) []string {
	lines := []string{fmt.Sprintf("%s: %d %s, in the columns of data convert", f.Path, f.Records, kind)}
	for _, l := range f.Left {
		lines = append(lines, fmt.Sprintf("  rows left out: %d: %s (%s)", l.Rows, l.What, l.Rule))
	}
	if len(f.Left) == 0 {
		lines = append(lines, "  no row was left out")
	}
	if f.Flattened > 0 {
		lines = append(lines, fmt.Sprintf("  values written as text: %d", f.Flattened))
	}
	return lines
}
