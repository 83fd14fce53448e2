package ci

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Profile says in short lines what a set of items is made of; nothing about none.
func Profile(items []Item) []string {
	if len(items) == 0 {
		return nil
	}
	var required, restricted, listed int
	for i := range items {
		required += len(items[i].Required())
		restricted += len(items[i].Restricted())
		listed += len(items[i].Attributes())
	}
	mean := func(sum int) float64 { return float64(sum) / float64(len(items)) }
	return []string{
		"scenarios: " + shares(items, func(s Seed) string { return s.Scenario }),
		"domains: " + shares(items, func(s Seed) string { return s.Domain }),
		"principles: " + shares(items, func(s Seed) string { return s.TransmissionPrinciple }),
		fmt.Sprintf("an item: %.1f pieces of information in its prompt, %.1f required and %.1f restricted keywords", mean(listed), mean(required), mean(restricted)),
	}
}

// shares counts the items by a field, the most frequent value first.
func shares(items []Item, field func(Seed) string) string {
	counts := map[string]int{}
	for i := range items {
		counts[field(items[i].Seed)]++
	}
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %d", cmp.Or(name, "(none)"), counts[name]))
	}
	return strings.Join(parts, ", ")
}
