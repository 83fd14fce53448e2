package synth

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/ci/quality"
)

// Rejected is an item that fails gates, or a vignette that became no item.
type Rejected struct {
	ID       string            `json:"id"`
	Findings []quality.Finding `json:"findings"`
	Item     *ci.Item          `json:"item,omitempty"`
	Reply    string            `json:"reply,omitempty"`
}

// Summary is summary.json.
type Summary struct {
	Engine    string                    `json:"engine"`
	Model     string                    `json:"model,omitempty"`
	Seeds     int                       `json:"seeds"`
	Fruitless int                       `json:"seeds_without_vignettes"`
	Vignettes int                       `json:"vignettes"`
	Repaired  int                       `json:"repaired_replies"`
	Accepted  int                       `json:"accepted"`
	Rejected  int                       `json:"rejected"`
	Gates     map[quality.Kind]int      `json:"rejected_by_gate"` // an item may fail several
	Counts    map[string]map[string]int `json:"accepted_by"`      // field and value
	Planned   map[string]map[string]int `json:"vignettes_by"`     // field and value
	Balance   []string                  `json:"balance"`
}

// examine takes the drafts through the gates, and writes what passes and what does not.
func (w *writing) examine(context.Context) error {
	accepted, rejected := w.sort()
	sum := w.summarize(accepted, rejected)
	err := data.WriteLines(w.store.Path(RejectedName), len(rejected), func(i int) any { return rejected[i] })
	if err != nil {
		return err
	}
	if len(accepted) > 0 {
		if err := ci.Write(w.store.Path(ItemsName), accepted); err != nil {
			return err
		}
	}
	if err := w.Folder.WriteSummaryJSON(sum); err != nil {
		return err
	}
	if len(accepted) == 0 {
		return fmt.Errorf("none of %d items passes the gates (%s): %s says why", len(w.drafts),
			quality.Describe(sum.Gates), w.store.Path(RejectedName))
	}
	w.result = &Result{w.describe(sum)}
	for _, line := range sum.Balance {
		w.Reporter.Warn("%s", line)
	}
	return nil
}

// sort divides the drafts. Near-duplicates are looked for among the items that pass the other gates.
func (w *writing) sort() (accepted []ci.Item, rejected []Rejected) {
	var passing []Draft
	for _, d := range w.drafts {
		findings := faulty(d)
		if len(findings) == 0 {
			passing = append(passing, d)
			accepted = append(accepted, *d.Item)
			accepted[len(accepted)-1].Source = d.ID
			continue
		}
		rejected = append(rejected, Rejected{d.ID, findings, d.Item, d.Reply})
	}
	twice := map[int]bool{}
	for _, f := range quality.Duplicates(accepted, w.o.Gates.Near) {
		twice[f.Item] = true
		rejected = append(rejected, Rejected{passing[f.Item].ID, []quality.Finding{f}, passing[f.Item].Item, ""})
	}
	slices.SortFunc(rejected, func(a, b Rejected) int { return strings.Compare(a.ID, b.ID) })
	i := -1
	accepted = slices.DeleteFunc(accepted, func(ci.Item) bool { i++; return twice[i] })
	return accepted, rejected
}

// faulty are the findings about a draft.
func faulty(d Draft) []quality.Finding {
	if d.Item != nil {
		return quality.Check(d.Item)
	}
	return []quality.Finding{{Kind: quality.Schema, Place: "reply", Reason: strings.Join(d.Faults, "; ")}}
}

func (w *writing) summarize(accepted []ci.Item, rejected []Rejected) Summary {
	s := Summary{Engine: w.o.Engine, Seeds: len(w.seeds), Vignettes: len(w.drafts), Accepted: len(accepted),
		Rejected: len(rejected), Counts: map[string]map[string]int{}, Planned: map[string]map[string]int{},
		Balance: []string{}}
	if w.o.Engine == Model {
		s.Model = w.o.Writer.Model
	}
	var planned []ci.Seed
	for _, sketch := range w.sketches {
		if len(sketch.Vignettes) == 0 {
			s.Fruitless++
		}
		if sketch.Repaired {
			s.Repaired++
		}
		planned = append(planned, sketch.Vignettes...)
	}
	for _, d := range w.drafts {
		if d.Repaired {
			s.Repaired++
		}
	}
	var findings []quality.Finding
	for i, r := range rejected {
		for _, f := range r.Findings {
			f.Item = i
			findings = append(findings, f)
		}
	}
	s.Gates = quality.Count(findings)
	for _, field := range quality.Fields {
		s.Counts[field.Name], s.Planned[field.Name] = map[string]int{}, map[string]int{}
		for i := range accepted {
			s.Counts[field.Name][field.Of(&accepted[i].Seed)]++
		}
		for i := range planned {
			s.Planned[field.Name][field.Of(&planned[i])]++
		}
	}
	for _, f := range quality.Balance(accepted, w.o.Gates.Balance) {
		s.Balance = append(s.Balance, f.String())
	}
	return s
}

// describe is the summary in words.
func (w *writing) describe(s Summary) string {
	var t strings.Builder
	fmt.Fprintf(&t, "%s: %d of %d items pass the gates", w.store.Path(ItemsName), s.Accepted, s.Vignettes)
	if s.Rejected > 0 {
		fmt.Fprintf(&t, "; %d do not: %s (%s)", s.Rejected, quality.Describe(s.Gates), w.store.Path(RejectedName))
	}
	t.WriteString("\n")
	if s.Fruitless > 0 {
		fmt.Fprintf(&t, "%d of %d seeds have no vignettes: %s says why\n", s.Fruitless, s.Seeds,
			w.store.Path(VignettesName))
	}
	for _, field := range quality.Fields {
		var parts []string
		for _, value := range slices.Sorted(maps.Keys(s.Planned[field.Name])) {
			parts = append(parts, fmt.Sprintf("%s %d of %d", value, s.Counts[field.Name][value],
				s.Planned[field.Name][value]))
		}
		fmt.Fprintf(&t, "%s: %s\n", field.Name, strings.Join(parts, ", "))
	}
	return t.String()
}
