package records

import (
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/data/ci"
)

// The rules of contextual-integrity items that are gates.
var gates = map[Gate]Rule{
	Schema: {Warning, "schema", "a field is missing, or has a value that the release does not have"},
	Label: {Note, "label", "a piece of information has several keywords or no keyword, or a keyword has no " +
		"information"},
	Short:    {Note, "short", fmt.Sprintf("a keyword has more than %d words", MaxWords)},
	Verbatim: {Warning, "verbatim", "a keyword does not occur in its information value"},
	Task: {Warning, "task", "the user task contains a restricted keyword: an answer that repeats the task " +
		"leaks"},
	Elsewhere: {Warning, "elsewhere", "a restricted keyword occurs in the context or in required information"},
	Sides:     {Error, "sides", "a keyword is on both sides"},
	Inside: {Error, "inside", "a restricted keyword is part of a required one: the full reward cannot be " +
		"reached"},
	NeutralKey:    {Note, "neutral key", "a key gives the label of its information away"},
	Attainable:    {Error, "attainable", "the ideal answer has a reward below 1"},
	Discriminates: {Warning, "discriminates", "repeating all information has a reward above 0"},
}

// The other rules of items.
var (
	flatVerbatim = Rule{Warning, "verbatim", "a keyword does not occur in its information value, one of them being " +
		"no string"}
	repeated    = Rule{Note, "repeated", ci.Repeated}
	notInPrompt = Rule{Warning, "prompt", ci.NotInPrompt}
	unreleased  = Rule{Note, "released", "a keyword, or the information that it is for, is no string: the released " +
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
	if !raw.Released {
		c.add(unreleased, raw.Source, "", "")
	}
	for _, f := range Gates(&raw.Item) {
		c.gate(raw.Source, f, plain)
	}
	for _, oddity := range raw.Oddities() {
		for _, rule := range []Rule{repeated, notInPrompt} {
			if oddity == rule.What {
				c.add(rule, raw.Source, "", "")
			}
		}
	}
	c.twins.look(raw.Source, hashOf(raw.Item), itemTexts(&raw.Item)...)
	if c.lastLeft != raw.Source {
		c.flattened += flattened
	}
}

// gate notes what a gate has found.
func (c *items) gate(row string, f Finding, plain map[string]bool) {
	rule := gates[f.Gate]
	if f.Gate == Verbatim && !plain[strings.SplitN(f.Place, ".", 4)[3]] { // dataset_item.annotation.SIDE.KEY
		rule = flatVerbatim
	}
	if f.Gate == Attainable && c.group(gates[Inside]).last == row {
		return // that is why
	}
	c.add(rule, row, f.Place, f.Reason)
	if f.Gate == Sides { // equal keywords are parts of one another
		c.add(gates[Inside], row, f.Place, f.Reason)
	}
}

func (c *items) finish() { c.Profile = c.census.Lines() }
