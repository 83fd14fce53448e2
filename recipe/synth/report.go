package synth

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/records"
)

// Rejected is an item that fails gates, or a vignette that became no item.
type Rejected struct {
	ID       string            `json:"id"`
	Findings []records.Finding `json:"findings"`
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
	Gates     map[records.Gate]int      `json:"rejected_by_gate"` // an item may fail several
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
			records.DescribeGates(sum.Gates), w.store.Path(RejectedName))
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
	for _, f := range records.Duplicates(accepted, w.o.Gates.Near) {
		twice[f.Item] = true
		rejected = append(rejected, Rejected{passing[f.Item].ID, []records.Finding{f}, passing[f.Item].Item, ""})
	}
	slices.SortFunc(rejected, func(a, b Rejected) int { return strings.Compare(a.ID, b.ID) })
	i := -1
	accepted = slices.DeleteFunc(accepted, func(ci.Item) bool { i++; return twice[i] })
	return accepted, rejected
}

// faulty are the findings about a draft.
func faulty(d Draft) []records.Finding {
	if d.Item != nil {
		return records.Gates(d.Item)
	}
	return []records.Finding{{Gate: records.Schema, Place: "reply", Reason: strings.Join(d.Faults, "; ")}}
}

func (w *writing) summarize(accepted []ci.Item, rejected []Rejected) Summary {
	s := Summary{Engine: w.o.Engine, Seeds: len(w.seeds), Vignettes: len(w.drafts), Accepted: len(accepted),
		Rejected: len(rejected), Counts: map[string]map[string]int{}, Planned: map[string]map[string]int{},
		Balance: []string{}}
	if w.o.Engine == Model {
		s.Model = w.o.Writer.Model
	}
	var planned, kept ci.Census
	for _, sketch := range w.sketches {
		if len(sketch.Vignettes) == 0 {
			s.Fruitless++
		}
		if sketch.Repaired {
			s.Repaired++
		}
		for _, v := range sketch.Vignettes {
			planned.Add(&ci.Item{Seed: v})
		}
	}
	for _, d := range w.drafts {
		if d.Repaired {
			s.Repaired++
		}
	}
	var findings [][]records.Finding
	for _, r := range rejected {
		findings = append(findings, r.Findings)
	}
	s.Gates = records.CountGates(findings...)
	for i := range accepted {
		kept.Add(&accepted[i])
	}
	for i, field := range kept.Fields() {
		s.Counts[field.Name], s.Planned[field.Name] = field.Counts, planned.Fields()[i].Counts
	}
	for _, f := range records.Balance(&kept, w.o.Gates.Balance) {
		s.Balance = append(s.Balance, f.String())
	}
	return s
}

// describe is the summary in words.
func (w *writing) describe(s Summary) string {
	var t strings.Builder
	fmt.Fprintf(&t, "%s: %d of %d items pass the gates", w.store.Path(ItemsName), s.Accepted, s.Vignettes)
	if s.Rejected > 0 {
		fmt.Fprintf(&t, "; %d do not: %s (%s)", s.Rejected, records.DescribeGates(s.Gates), w.store.Path(RejectedName))
	}
	t.WriteString("\n")
	if s.Fruitless > 0 {
		fmt.Fprintf(&t, "%d of %d seeds have no vignettes: %s says why\n", s.Fruitless, s.Seeds,
			w.store.Path(VignettesName))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Planned)) {
		var parts []string
		for _, value := range slices.Sorted(maps.Keys(s.Planned[name])) {
			parts = append(parts, fmt.Sprintf("%s %d of %d", value, s.Counts[name][value], s.Planned[name][value]))
		}
		fmt.Fprintf(&t, "%s: %s\n", name, strings.Join(parts, ", "))
	}
	return t.String()
}
