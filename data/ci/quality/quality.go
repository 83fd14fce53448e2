// Package quality says what is wrong with contextual-integrity items as training data.
//
// Glossary:
//   - gate: one demand on items, named by its [Kind];
//   - finding: where an item, or the whole set, fails a gate ([Finding]).
//
// [Check] looks at one item (item.go), [Duplicates] at pairs (near.go), [Balance] at the whole set; [Examine] does all
// three. Keywords are looked for as the reward does it: as substrings, upper or lower case.
package quality

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data/ci"
)

// Kind names a gate.
type Kind string

// The gates. All but the last are about one item, which fails; a set that is out of balance fails as a whole.
const (
	Schema        Kind = "schema"        // a field is missing or has a value that the release does not have
	Label         Kind = "label"         // a piece of information without a label, or with two, or a label of nothing
	Short         Kind = "short"         // a keyword of more than MaxWords words
	Verbatim      Kind = "verbatim"      // a keyword that its information does not contain
	Task          Kind = "task"          // a restricted keyword in the user task
	Elsewhere     Kind = "elsewhere"     // a restricted keyword in the context or in required information
	Sides         Kind = "sides"         // a keyword on both sides
	Inside        Kind = "inside"        // a restricted keyword that is part of a required one
	NeutralKey    Kind = "neutral key"   // a key that gives the label away
	Attainable    Kind = "attainable"    // the ideal answer has a reward below 1
	Discriminates Kind = "discriminates" // repeating everything has a reward above 0
	Duplicate     Kind = "duplicate"     // nearly the same as an earlier item
	Unbalanced    Kind = "balance"       // a domain, principle or scenario with too few items
)

// Kinds are all gates, in the order of findings.
var Kinds = []Kind{Schema, Label, Short, Verbatim, Task, Elsewhere, Sides, Inside, NeutralKey, Attainable, Discriminates,
	Duplicate, Unbalanced}

// Set is the Item of a finding about all items together.
const Set = -1

// Finding is a gate that is not passed.
type Finding struct {
	Kind   Kind   `json:"kind"`
	Item   int    `json:"-"`     // its place in the list; Set: the whole list
	Place  string `json:"place"` // a field, such as dataset_item.annotation.disallowed.Notes
	Reason string `json:"reason"`
}

// String is the finding in one line.
func (f Finding) String() string { return fmt.Sprintf("%s: %s: %s", f.Kind, f.Place, f.Reason) }

// Options set the bounds of the gates.
type Options struct {
	// items with this share of their word triples in common are duplicates
	Near float64 `yaml:"near" want:">=0 <=1" zero:"no gate"`
	// least share of the mean number of items that a value of a field has
	Balance float64 `yaml:"balance" want:">=0 <=1" zero:"no gate"`
}

// DefaultOptions are strict about duplicates, and mild about balance.
func DefaultOptions() Options { return Options{Near: 0.7, Balance: 0.25} }

// Examine lists the findings of all gates: those of each item in turn, then duplicates, then the balance.
func Examine(items []ci.Item, o Options) []Finding {
	var all []Finding
	for i := range items {
		for _, f := range Check(&items[i]) {
			f.Item = i
			all = append(all, f)
		}
	}
	return append(append(all, Duplicates(items, o.Near)...), Balance(items, o.Balance)...)
}

// Balance finds the domains, principles and scenarios with fewer items than a share of the mean of their field. Values
// that no item has are not looked for.
func Balance(items []ci.Item, least float64) []Finding {
	var c ci.Census
	for i := range items {
		c.Add(&items[i])
	}
	return BalanceOf(&c, least)
}

// BalanceOf is Balance of items that are counted already.
func BalanceOf(c *ci.Census, least float64) []Finding {
	var all []Finding
	for _, field := range []struct {
		name   string
		counts map[string]int
	}{{"scenario", c.Scenarios}, {"domain", c.Domains}, {"transmission_principle", c.Principles}} {
		mean := float64(c.Items) / float64(max(len(field.counts), 1))
		for _, value := range slices.Sorted(maps.Keys(field.counts)) {
			if n := field.counts[value]; float64(n) < least*mean {
				all = append(all, Finding{Unbalanced, Set, "seed." + field.name, fmt.Sprintf(
					"%s has %d of %d items: want at least %.3g of the mean, %.3g", value, n, c.Items, least, mean)})
			}
		}
	}
	return all
}

// Field is a field of a seed that a set should be balanced in.
type Field struct {
	Name string
	Of   func(*ci.Seed) string
}

// Fields are those that seeds are drawn from.
var Fields = []Field{
	{"scenario", func(s *ci.Seed) string { return s.Scenario }},
	{"domain", func(s *ci.Seed) string { return s.Domain }},
	{"transmission_principle", func(s *ci.Seed) string { return s.TransmissionPrinciple }},
}

// Count counts by gate the items that fail it, or the findings about the whole set.
func Count(findings []Finding) map[Kind]int {
	counts := map[Kind]int{}
	failed := map[Finding]bool{}
	for _, f := range findings {
		if one := (Finding{Kind: f.Kind, Item: f.Item}); f.Item == Set || !failed[one] {
			failed[one] = true
			counts[f.Kind]++
		}
	}
	return counts
}

// Describe writes counts in the order of the gates.
func Describe(counts map[Kind]int) string {
	var parts []string
	for _, k := range Kinds {
		if counts[k] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", k, counts[k]))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing")
}
