package data

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// Tally counts the rows with one remark.
type Tally struct {
	What  string // the remark
	Count int
	First string // the first of these rows, e.g. "pairs.jsonl:41"

	places []string // the first of these rows, at most keptPlaces
}

const keptPlaces = 20

// Report is what a reader found in a file. The result has the rows with remarks and lacks the dropped rows.
type Report struct {
	Path         string
	Read, Kept   int
	Scored       int    // kept rows with both scores
	ScoreColumns string // the columns the scores came from, "chosen_score, rejected_score"; empty without scores
	Dropped      []Tally
	Remarks      []Tally
	Unread       []Tally // columns that no reader knows, with the rows that have a value there
}

// mostUnread are the columns that are counted: rows can each have others.
const mostUnread = 100

func (r *Report) noteUnread(column, source string) {
	known := func(t Tally) bool { return t.What == column }
	if len(r.Unread) < mostUnread || slices.ContainsFunc(r.Unread, known) {
		r.Unread = count(r.Unread, column, source)
	}
}

// UnreadColumns names the columns that no reader knows, in one line; "" without any.
func (r *Report) UnreadColumns() string {
	var names []string
	for _, t := range r.Unread {
		names = append(names, fmt.Sprintf("%s (%d)", fault.Beginning(t.What, longestName), t.Count))
	}
	if names == nil {
		return ""
	}
	return "columns that are not read, with their rows: " + List(names)
}

// Lines returns the report as short lines, the first one a total.
func (r *Report) Lines() []string {
	head := fmt.Sprintf("%s: %d rows read, %d kept", r.Path, r.Read, r.Kept)
	if r.Scored > 0 {
		head += fmt.Sprintf(", %d scored (%s)", r.Scored, r.ScoreColumns)
	}
	lines := []string{head}
	for _, t := range r.Dropped {
		lines = append(lines, "  dropped "+t.String())
	}
	for _, t := range r.Remarks {
		lines = append(lines, "  note: "+t.String())
	}
	if names := r.UnreadColumns(); names != "" {
		lines = append(lines, "  note: "+names)
	}
	return lines
}

// Places are the first of the rows, twenty at most.
func (t Tally) Places() []string { return t.places }

func (r *Report) String() string { return strings.Join(r.Lines(), "\n") }

func (t Tally) String() string {
	if t.First == "" {
		return fmt.Sprintf("%d: %s", t.Count, t.What)
	}
	return fmt.Sprintf("%d: %s (first: %s)", t.Count, t.What, t.First)
}

// Remark counts a remark about a kept row.
func (r *Report) Remark(what, source string) { r.Remarks = count(r.Remarks, what, source) }

// count adds one to the tally of what, which keeps the order in which remarks first appear.
func count(tallies []Tally, what, source string) []Tally {
	for i := range tallies {
		if tallies[i].What == what {
			tallies[i].Count++
			if len(tallies[i].places) < keptPlaces {
				tallies[i].places = append(tallies[i].places, source)
			}
			return tallies
		}
	}
	return append(tallies, Tally{What: what, Count: 1, First: source, places: []string{source}})
}

// Stream is the records of a file, which are read anew each time and never all in memory.
type Stream[T any] struct {
	path string
	in   RowSeq
	of   func(Row, *Report) (record T, why string, err error)
	last func(*Report) error            // looks at the report of a whole file; nil: nothing to look at
	bad  func(source string, err error) // gets the errors; nil: the first ends the reading
}

// NewStream makes records of rows. of makes a record of a row; why is the reason to drop the row, "" to keep it. Remarks
// belong into the report only for rows that are kept.
func NewStream[T any](path string, in RowSeq, of func(Row, *Report) (record T, why string, err error)) (
	s *Stream[T]) {
	return &Stream[T]{path: path, in: in, of: of}
}

// Map is the stream of what is made of the records of another.
func Map[T, U any](s *Stream[T], make func(T) U) *Stream[U] {
	return &Stream[U]{path: s.path, in: s.in, last: s.last, of: func(r Row, report *Report) (u U, why string, err error) {
		t, why, err := s.of(r, report)
		if err == nil && why == "" {
			u = make(t)
		}
		return u, why, err
	}}
}

// FirstRow is the first row of a file.
func FirstRow(path string, columns ...string) (Row, error) {
	for row, err := range Rows(nil, path, columns...) {
		return row, err
	}
	return Row{}, fmt.Errorf("%s: no rows: the file is empty", path)
}

// Lenient is the same records, but errors of rows, or of the file (source ""), are handed to bad. A bad row is left out;
// only an error of the file, such as a truncated one, ends the reading.
func (s *Stream[T]) Lenient(bad func(source string, err error)) *Stream[T] {
	lenient := *s
	lenient.bad = bad
	return &lenient
}

// fails ends the reading, or hands an error on.
func (s *Stream[T]) fails(source string, err error) error {
	if s.bad == nil {
		return err
	}
	s.bad(source, err)
	return nil
}

// Each hands the records on one by one, and counts them in a Report. The first error, also of visit, ends the reading.
func (s *Stream[T]) Each(visit func(T) error) (*Report, error) {
	report := &Report{Path: s.path}
	for row, err := range s.in {
		if err == nil || row.Source != "" {
			report.Read++
		}
		var record T
		var why string
		if err == nil {
			if record, why, err = s.of(row, report); err != nil {
				err = fmt.Errorf("%s: %w", row.Source, err)
			}
		}
		if err != nil {
			if err := s.fails(row.Source, err); err != nil || row.Source == "" {
				return report, err
			}
			continue
		}
		if why != "" {
			report.Dropped = count(report.Dropped, why, row.Source)
			continue
		}
		for _, remark := range unusedTools(row) {
			report.Remark(remark, row.Source)
		}
		report.Kept++
		if err := visit(record); err != nil {
			return nil, err
		}
	}
	if err := s.lacks(report); err != nil {
		return report, s.fails("", err)
	}
	return report, nil
}

// lacks says what a whole file lacks.
func (s *Stream[T]) lacks(report *Report) error {
	switch {
	case report.Read == 0:
		return fmt.Errorf("%s: no rows: the file is empty", s.path)
	case report.Kept == 0 && s.bad == nil: // else each of the rows is counted
		return fmt.Errorf("%s: all %d rows dropped: %s", s.path, report.Read, joinTallies(report.Dropped))
	case s.last != nil:
		return s.last(report)
	}
	return nil
}

// All are the records as a sequence, which ends after the first error.
func (s *Stream[T]) All() iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if _, err := s.Each(func(record T) error {
			if !yield(record, nil) {
				return errStop
			}
			return nil
		}); err != nil && err != errStop {
			var none T
			yield(none, err)
		}
	}
}

var errStop = errors.New("no more records are wanted")

// Collect reads all records into memory.
func (s *Stream[T]) Collect() (records []T, report *Report, err error) {
	report, err = s.Each(func(record T) error {
		records = append(records, record)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return records, report, nil
}

func joinTallies(tallies []Tally) string {
	parts := make([]string, len(tallies))
	for i, t := range tallies {
		parts[i] = t.String()
	}
	return strings.Join(parts, "; ")
}
