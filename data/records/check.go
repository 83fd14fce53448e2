package records

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config/fault"
)

// Severity says how bad a finding is. An error is a row that training refuses or leaves out, or that teaches the opposite
// of what its labels say. A warning is a row that probably is not as it was meant. A note is a peculiarity of which
// readers take care.
type Severity string

const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Note    Severity = "note"
)

var severities = []Severity{Error, Warning, Note}

// Rule is a demand on rows.
type Rule struct {
	Severity Severity `json:"severity"`
	Name     string   `json:"rule"`
	What     string   `json:"what"` // what is found, and what is accepted
}

// Group is what was found by one rule.
type Group struct {
	Rule
	Count  int     `json:"count"`  // places
	Rows   int     `json:"rows"`   // rows with such a place; 0: the whole file
	Places []Place `json:"places"` // the first of each row, of twenty rows at most

	last string // the last row
}

const keptPlaces = 20

// Place is where something was found.
type Place struct {
	Row   string `json:"row,omitempty"`   // "pairs.jsonl:41"
	Field string `json:"field,omitempty"` // "dataset_item.information.Notes"
	Found string `json:"found,omitempty"` // in words
}

// Report is what a file holds, and what was found in it.
type Report struct {
	Path   string `json:"path"`
	Kind   string `json:"kind"`
	Rows   int    `json:"rows"` // read
	Kept   int    `json:"kept"` // of them that training takes
	Plain  int    `json:"plain_prompts,omitempty"`
	Scored int    `json:"scored,omitempty"`
	// source of the scores of pairs
	ScoreColumns string   `json:"score_columns,omitempty"`
	Profile      []string `json:"profile,omitempty"`    // what the file holds, in short lines
	Groups       []*Group `json:"findings"`             // errors first, in each severity the most frequent first
	Fixed        *Fixed   `json:"fixed,omitempty"`      // what was written; nil without Options.Out
	Errors       int      `json:"rows_with_errors"`     // rows
	Broken       bool     `json:"unreadable,omitempty"` // the file could not be read to its end

	cause     string // why the file is Broken
	lastError string // the last row with an error
	lastLeft  string // the last row that mending leaves out
	left      []Left
	flattened int // values of kept rows
}

// Options say how a file is read.
type Options struct {
	data.PreferenceOptions
	Kind Kind    // "": the first row says
	Near float64 // rows with this share of their triples of words in common are near-duplicates; 0: none is
	Out  string  // the file for the rows that are right; "": nothing is written
}

// Check checks a file. An error is a fault of the options, of reading the first row, or ctx's.
func Check(ctx context.Context, path string, o Options) (*Report, error) {
	if !(o.Near >= 0 && o.Near <= 1) {
		return nil, fault.Fault{Key: "near", Value: fmt.Sprint(o.Near),
			Problem: "want a share from 0 (no near-duplicates) to 1"}
	}
	if o.Kind != "" && !slices.Contains(Kinds, o.Kind) {
		return nil, fault.Fault{Key: "kind", Value: fmt.Sprintf("%q", string(o.Kind)),
			Problem: "want demonstrations, items, labelled or pairs"}
	}
	var err error
	if o.Kind == "" {
		o.Kind, err = KindOf(path, o.PreferenceOptions)
	} else {
		err = o.Kind.checkScores(path, o.PreferenceOptions)
	}
	if err == nil && o.Out != "" {
		err = checkOutput(path, o.Out)
	}
	if err != nil {
		return nil, err
	}
	s := o.Kind.stream(path, o.PreferenceOptions)
	r := &Report{Path: path, Kind: o.Kind.String(), Groups: []*Group{}}
	if err := r.scan(ctx, s, o.rules(r)); err != nil || o.Out == "" {
		return r, err
	}
	return r, r.fix(ctx, s, o)
}

// rules look at the rows of a file, one after the other.
type rules interface {
	look(Record)
	finish() // looks at the whole
}

func (o Options) rules(r *Report) rules {
	switch o.Kind {
	case KindCI:
		return &items{Report: r, o: o, twins: newTwins(r, o, Warning)}
	case KindPreference:
		return &pairs{Report: r, twins: newTwins(r, o, Note), scores: sample{rng: rand.New(rand.NewPCG(1, 1))}}
	case KindLabelled:
		return &labelled{r, newTwins(r, o, Note), map[bool]int{}}
	}
	return &demonstrations{r, newTwins(r, o, Note)}
}

// scan takes the rows of a file through the rules.
func (r *Report) scan(ctx context.Context, s *data.Stream[Record], rules rules) error {
	report, err := s.Lenient(r.bad).Each(func(row Record) error {
		rules.look(row)
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	r.Rows, r.Kept, r.Scored, r.ScoreColumns = report.Read, report.Kept, report.Scored, report.ScoreColumns
	for _, t := range report.Dropped {
		rule := Rule{Error, "unusable", t.What + ": training leaves the row out"}
		r.tally(rule, t)
		r.leave(rule, t.Count)
		r.Errors += t.Count
	}
	for _, t := range report.Remarks {
		severity := Warning
		if t.What == data.SplitPair || t.What == data.SeveralTurns {
			severity = Note
		}
		r.tally(Rule{severity, "odd", t.What}, t)
	}
	if names := report.UnreadColumns(); names != "" {
		r.group(Rule{Note, "columns", names}).Count = len(report.Unread)
	}
	rules.finish()
	r.Groups = slices.DeleteFunc(r.Groups, func(g *Group) bool { return g.Count == 0 })
	slices.SortStableFunc(r.Groups, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)),
			cmp.Compare(b.Rows, a.Rows))
	})
	return nil
}

// bad notes a row that cannot be read, or that the file cannot be read any further (row "").
func (r *Report) bad(row string, err error) {
	rule := Rule{Error, "row", "a row cannot be read"}
	if row == "" {
		rule = Rule{Error, "file", "the file cannot be read any further"}
		r.Broken, r.cause = true, err.Error()
	}
	r.add(rule, row, "", strings.TrimPrefix(err.Error(), row+": "))
}

// add notes a place of a row; row is "" for the whole file.
func (r *Report) add(rule Rule, row, field, found string) {
	g := r.group(rule)
	g.Count++
	if row == "" || row != g.last {
		if len(g.Places) < keptPlaces && row+field+found != "" {
			g.Places = append(g.Places, Place{row, field, found})
		}
		if g.last = row; row != "" {
			g.Rows++
		}
	}
	if rule.Severity == Error && row != "" && row != r.lastError {
		r.Errors++
		r.lastError = row
	}
	if (rule.Severity == Error || rule == twice) && row != "" && row != r.lastLeft {
		r.leave(rule, 1)
		r.lastLeft = row
	}
}

// group is the group of a rule.
func (r *Report) group(rule Rule) *Group {
	for _, g := range r.Groups {
		if g.Rule == rule {
			return g
		}
	}
	r.Groups = append(r.Groups, &Group{Rule: rule, Places: []Place{}})
	return r.Groups[len(r.Groups)-1]
}

// tally notes what a reader has counted.
func (r *Report) tally(rule Rule, t data.Tally) {
	g := r.group(rule)
	g.Count, g.Rows = t.Count, t.Count
	for _, row := range t.Places() {
		g.Places = append(g.Places, Place{Row: row})
	}
}

// Fails says that the file has errors.
func (r *Report) Fails() bool {
	return slices.ContainsFunc(r.Groups, func(g *Group) bool { return g.Severity == Error })
}

// Fault says in a line why the file fails.
func (r *Report) Fault() string {
	if r.Broken {
		return r.cause
	}
	return fmt.Sprintf("%s: %d of %d rows have errors", r.Path, r.Errors, r.Rows)
}

// Lines is the report as text.
func (r *Report) Lines() []string {
	head := fmt.Sprintf("%s: %d rows read, %d kept", r.Path, r.Rows, r.Kept)
	if r.Scored > 0 {
		head += fmt.Sprintf(", %d scored (%s)", r.Scored, r.ScoreColumns)
	}
	lines := []string{head, "  " + r.Kind}
	if without := r.Kept - r.Scored; r.Kind == KindPreference.String() && without > 0 {
		lines = append(lines, fmt.Sprintf("  %d without scores, which the prior of mappo needs: posttrain mappo --prior none "+
			"trains without it, posttrain data score writes them", without))
	}
	if r.Plain > 0 {
		lines = append(lines, fmt.Sprintf("  plain text in %d prompts: a model with a chat template gets them as the "+
			"user's messages (chat.plain=text: as text)", r.Plain))
	}
	for _, line := range r.Profile {
		lines = append(lines, "  "+line)
	}
	for _, g := range r.Groups {
		lines = append(lines, g.lines(r.Path)...)
	}
	if r.Fixed != nil {
		lines = append(lines, r.Fixed.lines(r.Kind)...)
	}
	return lines
}

// shownPlaces are the places that are written out, with what was found there.
const shownPlaces = 3

// lines are the group's total, its first places, and the rows of more.
func (g *Group) lines(path string) []string {
	total := fmt.Sprintf("%s: %d", g.Severity, g.Count)
	switch {
	case g.Rows == 0:
		total = string(g.Severity)
	case g.Rows != g.Count:
		total += fmt.Sprintf(" in %d rows", g.Rows)
	}
	lines := []string{fmt.Sprintf("  %s: %s (%s)", total, g.What, g.Name)}
	more := g.Places
	for len(more) > 0 && len(g.Places)-len(more) < shownPlaces && more[0].Field+more[0].Found != "" {
		lines = append(lines, "    "+more[0].line(path))
		more = more[1:]
	}
	if rest := where(path, more, g.Rows-len(g.Places)); rest != "" {
		lines = append(lines, "    in "+rest)
	}
	return lines
}

// line is a place in one line.
func (p Place) line(path string) string {
	var parts []string
	what, number := rowOf(path, p.Row)
	for _, part := range []string{strings.TrimSpace(what + " " + number), p.Field, p.Found} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// rowOf splits "pairs.jsonl:41" into "line" and "41", and "pairs.parquet: row 41" into "row" and "41".
func rowOf(path, row string) (what, number string) {
	rest := strings.TrimPrefix(strings.TrimPrefix(row, path), ":")
	if number, found := strings.CutPrefix(rest, " row "); found {
		return "row", number
	}
	if rest == "" {
		return "", ""
	}
	return "line", rest
}

// where lists rows; more is how many others there are.
func where(path string, places []Place, more int) string {
	var numbers []string
	what := ""
	for _, p := range places {
		var number string
		what, number = rowOf(path, p.Row)
		numbers = append(numbers, number)
	}
	if len(numbers) == 0 {
		return ""
	}
	if len(numbers)+more > 1 {
		what += "s"
	}
	text := what + " " + strings.Join(numbers, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

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
func (r *Report) fix(ctx context.Context, s *data.Stream[Record], o Options) error {
	if r.Broken {
		why := strings.TrimLeft(strings.TrimPrefix(r.cause, r.Path), ": ")
		return fmt.Errorf("%s: it cannot be read to its end (%s): %s is not written", r.Path, why, o.Out)
	}
	fixed := &Fixed{Path: o.Out, Left: r.left, Flattened: r.flattened}
	for record, err := range r.right(ctx, s, o) {
		if err != nil {
			return err
		}
		fixed.Records += len(record.parts())
	}
	if fixed.Records == 0 {
		return fmt.Errorf("%s: no row is without error: %s is not written", r.Path, o.Out)
	}
	err := write(o.Out, r.right(ctx, s, o))
	if err == nil {
		r.Fixed = fixed
	}
	return err
}

// right are the records of the rows that are right. Each time they are looked for anew.
func (r *Report) right(ctx context.Context, s *data.Stream[Record], o Options) iter.Seq2[Record, error] {
	o.Near = 0
	return func(yield func(Record, error) bool) {
		again := &Report{Path: r.Path}
		rules := o.rules(again)
		for record, err := range s.Lenient(again.bad).All() {
			if err == nil {
				rules.look(record)
				err = ctx.Err()
			}
			if err == nil && record.Source() == again.lastLeft {
				continue
			}
			if !yield(record, err) || err != nil {
				return
			}
		}
	}
}

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
