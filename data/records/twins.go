package records

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"unicode"

	"github.com/posttrain/posttrain/data"
)

// mostTwins are the rows that repeated ones are looked for among: about 130 MB.
const mostTwins = 1 << 22

// twins finds rows that are there twice, or nearly.
type twins struct {
	*Report
	near *index
	rule Rule
	seen map[uint64]uint32 // hash of a row's record → number of the row
}

// The rule of rows that are there already.
var twice = Rule{Warning, "duplicate", "the row is there already"}

// newTwins finds near-duplicates of this severity, too.
func newTwins(r *Report, o Options, s Severity) *twins {
	return &twins{Report: r, near: newIndex(o.Near), seen: map[uint64]uint32{}, rule: Rule{s, "near-duplicate",
		fmt.Sprintf("%.0f %% or more of the triples of words are those of an earlier row", 100*o.Near)}}
}

// name is an earlier row, as the row of a finding is called.
func (t *twins) name(row string, number uint32) string {
	what, _ := rowOf(t.Path, row)
	return fmt.Sprintf("%s %d", what, number)
}

// look compares a row with the rows before it: its record by a hash, its texts by their words.
func (t *twins) look(row string, hash uint64, texts ...string) {
	if first, found := t.seen[hash]; found {
		t.add(twice, row, "", "as "+t.name(row, first))
		return
	}
	n := numberOf(row)
	t.remember(hash, n)
	if earlier, share, found := t.near.add(n, texts...); found {
		t.add(t.rule, row, "", fmt.Sprintf("%.0f %% are those of %s", 100*share, t.name(row, earlier)))
	}
}

func (t *twins) remember(hash uint64, number uint32) {
	if len(t.seen) < mostTwins {
		t.seen[hash] = number
	}
}

// numberOf is the number at the end of a row's name.
func numberOf(row string) uint32 {
	digits := row[len(strings.TrimRightFunc(row, unicode.IsDigit)):]
	n, _ := strconv.ParseUint(digits, 10, 32)
	return uint32(n)
}

// hashOf hashes values as JSON, and what the JSON of texts leaves out.
func hashOf(values ...any) uint64 {
	h := fnv.New64a()
	json.NewEncoder(h).Encode(values)
	for i, v := range values {
		if t, ok := v.(data.Text); ok && t.Unwritten() != nil {
			fmt.Fprintf(h, "%d %q", i, t.Unwritten())
		}
	}
	return h.Sum64()
}
