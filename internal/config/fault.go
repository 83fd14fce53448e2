package config

import (
	"fmt"
	"slices"
	"strings"
)

// A Fault is one thing that is wrong with a configuration.
type Fault struct {
	Place string // "configs/mappo.yaml:12", or "--prior"
	Text  string

	line int // orders the faults; overrides and faults without a line come last
}

func (f Fault) Error() string { return f.Place + ": " + f.Text }

// Faults are all that is wrong with a configuration, a line each.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// list joins words: "a, b or c".
func list(words []string) string { return join(words, " or ") }

// conjoin joins words: "a, b and c".
func conjoin(words []string) string { return join(words, " and ") }

func join(words []string, last string) string {
	n := len(words) - 1
	if n <= 0 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + last + words[n]
}

// unknown says what to write instead of a key that does not exist.
func unknown(key string, schema *schema) string {
	text := fmt.Sprintf("unknown key %q: ", key)
	if schema.has(key) {
		return text + fmt.Sprintf("write %s within the section %s", last(key), strings.TrimSuffix(section(key), "."))
	}
	if others := schema.othersWith(key); len(others) > 0 {
		return text + fmt.Sprintf("only %s %s it", conjoin(others), map[bool]string{true: "has", false: "have"}[len(others) == 1])
	}
	if best := nearest(key, schema.keys()); best != "" {
		return text + "did you mean " + best + "?"
	}
	return text + "want " + list(schema.siblings(key))
}

// nearest is the key that a misspelt one most likely meant, "" if none is near. The same last word in another section
// counts as near.
func nearest(key string, keys []string) string {
	best, least := "", 1+len(last(key))/3
	for _, candidate := range keys {
		if last(candidate) == last(key) {
			return candidate
		}
		d := distance(last(key), last(candidate))
		if section(candidate) != section(key) {
			d++
		}
		if d <= least && (best == "" || d < least) {
			best, least = candidate, d
		}
	}
	return best
}

// last is the last word of a dotted key, section what stands before it.
func last(key string) string { return key[strings.LastIndex(key, ".")+1:] }

func section(key string) string { return key[:strings.LastIndex(key, ".")+1] }

// distance is the number of letters to insert, delete or replace between two words.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		next := make([]int, len(y)+1)
		next[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
		}
		row = next
	}
	return row[len(y)]
}

// sorted orders faults by place: the file's lines, then the rest as they were found.
func sorted(faults []Fault) Faults {
	slices.SortStableFunc(faults, func(a, b Fault) int { return a.line - b.line })
	return faults
}
