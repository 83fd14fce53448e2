package check

import (
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/ci/quality"
)

// The rules of contextual-integrity items that are gates of package quality.
var gates = map[quality.Kind]Rule{
	quality.Schema: {Warning, "schema", "a field is missing, or has a value that the release does not have"},
	quality.Label: {Note, "label", "a piece of information has several keywords or no keyword, or a keyword has no " +
		"information"},
	quality.Short:    {Note, "short", fmt.Sprintf("a keyword has more than %d words", quality.MaxWords)},
	quality.Verbatim: {Warning, "verbatim", "a keyword does not occur in its information value"},
	quality.Task: {Warning, "task", "the user task contains a restricted keyword: an answer that repeats the task " +
		"leaks"},
	quality.Elsewhere: {Warning, "elsewhere", "a restricted keyword occurs in the context or in required information"},
	quality.Sides:     {Error, "sides", "a keyword is on both sides"},
	quality.Inside: {Error, "inside", "a restricted keyword is part of a required one: the full reward cannot be " +
		"reached"},
	quality.NeutralKey:    {Note, "neutral key", "a key gives the label of its information away"},
	quality.Attainable:    {Error, "attainable", "the ideal answer has a reward below 1"},
	quality.Discriminates: {Warning, "discriminates", "repeating all information has a reward above 0"},
	quality.Unbalanced:    {Note, "balance", "a domain, principle or scenario has few items"},
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

var itemKind = form[ci.Raw, ci.Item]{
	stream: func(path string, _ Options) (*data.Stream[ci.Raw], error) { return ci.StreamRaw(path), nil },
	rules: func(r *Report, o Options) rules[ci.Raw] {
		return &items{Report: r, o: o, twins: newTwins(r, o, Warning)}
	},
	parts: func(raw ci.Raw) (string, []ci.Item) { return raw.Source, []ci.Item{raw.Item} },
	write: ci.WriteSeq,
}

func (c *items) look(raw ci.Raw) {
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
	for _, f := range quality.Check(&raw.Item) {
		c.gate(raw.Source, f, plain)
	}
	for _, oddity := range raw.Oddities() {
		for _, rule := range []Rule{repeated, notInPrompt} {
			if oddity == rule.What {
				c.add(rule, raw.Source, "", "")
			}
		}
	}
	c.twins.look(raw.Source, hashOf(raw.Item), quality.Texts(&raw.Item)...)
	if c.lastLeft != raw.Source {
		c.flattened += flattened
	}
}

// gate notes what a gate has found.
func (c *items) gate(row string, f quality.Finding, plain map[string]bool) {
	rule := gates[f.Kind]
	if f.Kind == quality.Verbatim && !plain[strings.SplitN(f.Place, ".", 4)[3]] { // dataset_item.annotation.SIDE.KEY
		rule = flatVerbatim
	}
	if f.Kind == quality.Attainable && c.group(gates[quality.Inside]).last == row {
		return // that is why
	}
	c.add(rule, row, f.Place, f.Reason)
	if f.Kind == quality.Sides { // equal keywords are parts of one another
		c.add(gates[quality.Inside], row, f.Place, f.Reason)
	}
}

func (c *items) finish() {
	c.Profile = c.census.Lines()
	for _, f := range quality.BalanceOf(&c.census, c.o.Balance) {
		c.add(gates[quality.Unbalanced], "", f.Place, f.Reason)
	}
}
