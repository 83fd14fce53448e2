package records

import (
	"strings"

	"github.com/posttrain/posttrain/data/ci"
)

// The rules of items that are no gates.
var (
	flatVerbatim = Rule{Warning, "verbatim", "a keyword does not occur in its information value, one of them being " +
		"no string"}
	unreleased = Rule{Note, "released", "a keyword, or the information that it is for, is no string: the released " +
		"preprocessing leaves the item out, and so does items: released"}
)

// items are the rules of contextual-integrity items.
type items struct {
	*Report
	o      Options
	census ci.Census
	twins  *twins
}

func (c *items) look(r Record) {
	raw := r.raw
	c.census.Add(&raw.Item)
	flattened := 0
	plain := map[string]bool{} // by key, whether information and keyword are strings
	for _, v := range raw.Values {
		flat := !v.IsString() && v.Kind != "null"
		if flat {
			flattened++
			c.add(Rule{Note, "flattened", v.What + " is " + v.Kind}, raw.Source, v.Place, "")
		}
		plain[v.Key] = !flat && (v.What == ci.InformationValue || plain[v.Key])
	}
	if !raw.Released() {
		c.add(unreleased, raw.Source, "", "")
	}
	for _, f := range Gates(&raw.Item) {
		c.gate(raw.Source, f, plain)
	}
	c.twins.look(raw.Source, hashOf(raw.Item), itemTexts(&raw.Item)...)
	if c.lastLeft != raw.Source {
		c.flattened += flattened
	}
}

// gate notes what a gate has found.
func (c *items) gate(row string, f Finding, plain map[string]bool) {
	rule, inside := gates[gateNumber(f.Gate)], gates[gateNumber("inside")]
	if f.Gate == "verbatim" && !plain[strings.SplitN(f.Place, ".", 4)[3]] { // dataset_item.annotation.SIDE.KEY
		rule = flatVerbatim
	}
	if f.Gate == "attainable" && c.group(inside).last == row {
		return // that is why
	}
	c.add(rule, row, f.Place, f.Reason)
	if f.Gate == "sides" { // equal keywords are parts of one another
		c.add(inside, row, f.Place, f.Reason)
	}
}

func (c *items) finish() { c.Profile = c.census.Lines() }
