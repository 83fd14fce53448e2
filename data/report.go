package data

import (
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/data/internal/rows"
)

// Tally counts the rows with one remark.
type Tally struct {
	What  string // the remark
	Count int
	First string // the first of these rows, e.g. "pairs.jsonl:41"

	places []string // the first of these rows, at most keptPlaces
}

const keptPlaces = 20

// Report is what a reader found in a file. The result has the rows with warts and lacks the dropped rows.
type Report struct {
	Path         string
	Read, Kept   int
	Scored       int    // kept rows with both scores
	ScoreColumns string // the columns the scores came from, "chosen_score, rejected_score"; empty without scores
	Dropped      []Tally
	Warts        []Tally
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
	for _, t := range r.Warts {
		lines = append(lines, "  note: "+t.String())
	}
	return lines
}

// Details are the Lines with the first twenty places of every remark.
func (r *Report) Details() []string {
	lines := r.Lines()[:1]
	add := func(kind string, tallies []Tally) {
		for _, t := range tallies {
			lines = append(lines, fmt.Sprintf("  %s%d: %s", kind, t.Count, t.What), "    in "+t.where(r.Path))
		}
	}
	add("dropped ", r.Dropped)
	add("note: ", r.Warts)
	return lines
}

// where lists the places of a tally without the name of the file.
func (t Tally) where(path string) string {
	what := "line"
	var names []string
	for _, p := range t.places {
		p = strings.TrimPrefix(strings.TrimPrefix(p, path), ":")
		if row, ok := strings.CutPrefix(p, " row "); ok {
			what, p = "row", row
		}
		names = append(names, p)
	}
	if t.Count > 1 {
		what += "s"
	}
	text := what + " " + strings.Join(names, ", ")
	if more := t.Count - len(t.places); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (r *Report) String() string { return strings.Join(r.Lines(), "\n") }

func (t Tally) String() string {
	if t.First == "" {
		return fmt.Sprintf("%d: %s", t.Count, t.What)
	}
	return fmt.Sprintf("%d: %s (first: %s)", t.Count, t.What, t.First)
}

// Wart counts a remark about a kept row.
func (r *Report) Wart(what, source string) { r.Warts = count(r.Warts, what, source) }

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

// Collect reads rows into records and counts them in a Report. of makes a record of a row; why is the reason to drop
// the row, "" to keep it. Warts belong into the report only for rows that are kept. The first error ends the reading.
func Collect[T any](path string, in rows.Seq, of func(rows.Row, *Report) (record T, why string, err error)) (
	[]T, *Report, error) {
	report := &Report{Path: path}
	var records []T
	for row, err := range in {
		if err != nil {
			return nil, nil, err
		}
		report.Read++
		record, why, err := of(row, report)
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("%s: %w", row.Source, err)
		case why != "":
			report.Dropped = count(report.Dropped, why, row.Source)
		default:
			for _, wart := range row.Warts {
				report.Wart(wart, row.Source)
			}
			records = append(records, record)
		}
	}
	report.Kept = len(records)
	switch {
	case report.Read == 0:
		return nil, nil, fmt.Errorf("%s: no rows: the file is empty", path)
	case report.Kept == 0:
		return nil, nil, fmt.Errorf("%s: all %d rows dropped: %s", path, report.Read, joinTallies(report.Dropped))
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
