package ci

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Census counts a set of items, one at a time.
type Census struct {
	Items                          int
	Scenarios, Domains, Principles map[string]int // items by value
	Listed, Required, Restricted   int            // pieces of information in prompts, keywords
}

// Add counts an item.
func (c *Census) Add(item *Item) {
	if c.Items++; c.Items == 1 {
		c.Scenarios, c.Domains, c.Principles = map[string]int{}, map[string]int{}, map[string]int{}
	}
	c.Scenarios[item.Seed.Scenario]++
	c.Domains[item.Seed.Domain]++
	c.Principles[item.Seed.TransmissionPrinciple]++
	c.Listed += len(item.Attributes())
	c.Required += len(item.Required())
	c.Restricted += len(item.Restricted())
}

// Lines describes the set in short lines; nil for an empty one.
func (c *Census) Lines() []string {
	if c.Items == 0 {
		return nil
	}
	mean := func(sum int) float64 { return float64(sum) / float64(c.Items) }
	return []string{
		"scenarios: " + shares(c.Scenarios),
		"domains: " + shares(c.Domains),
		"principles: " + shares(c.Principles),
		fmt.Sprintf("an item: %.1f pieces of information in its prompt, %.1f required and %.1f restricted keywords",
			mean(c.Listed), mean(c.Required), mean(c.Restricted)),
	}
}

// shares lists values with their counts, the most frequent first.
func shares(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %d", cmp.Or(name, "(none)"), counts[name]))
	}
	return strings.Join(parts, ", ")
}
