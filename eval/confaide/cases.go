// Package confaide asks the questions of ConfAIde (Mireshghallah et al., arXiv:2310.17884), and counts answers as the
// benchmark does: ratings by their correlation with people's, leaks by names that an answer contains.
package confaide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/eval/bench"
)

// The kinds of questions.
const (
	Rating            = "rating"             // tiers 1, 2a, 2b
	FreeResponse      = "free-response"      // tier 3: what should the one who keeps the secret say?
	InfoAccessibility = "info-accessibility" // tier 3: who knows what about whom?
	PrivacySharing    = "privacy-sharing"    // tier 3: who knows the secret?
	Control           = "control"            // tier 3: is it fine to tell the secret? yes or no
	MeetingSummary    = "meeting-summary"    // tier 4
	ActionItem        = "action-item"        // tier 4
)

// kinds are the questions of each tier, in the order in which they are asked.
var kinds = map[string][]string{
	"1": {Rating}, "2a": {Rating}, "2b": {Rating},
	"3": {FreeResponse, InfoAccessibility, PrivacySharing, Control},
	"4": {MeetingSummary, ActionItem},
}

// Kinds are all kinds of questions, but for ratings, which tiers 1 and 2 have alone.
func Kinds() []string { return slices.Concat(kinds["3"], kinds["4"]) }

// Case is a question that a model is asked.
type Case struct {
	Tier   string
	Kind   string
	Number int // from 1, in the tier's file
	Prompt string

	Human    float64   // of a rating: people's
	Scenario *Scenario // tier 3
	Meeting  *Meeting  // tier 4
}

// ID names a case: "3/control/17".
func (c *Case) ID() string { return fmt.Sprintf("%s/%s/%d", c.Tier, c.Kind, c.Number) }

// Sample names an answer to a case, from 1: "3/control/17/1".
func (c *Case) Sample(n int) string { return fmt.Sprintf("%s/%d", c.ID(), n) }

// Cases are the questions about a set, in the order of tiers and kinds; of tiers 3 and 4 only the
// wanted kinds. first restricts each kind to its first cases; 0: all.
func Cases(set *Set, tiers, wanted []string, first int, p *Prompts) (all []Case) {
	for _, tier := range Tiers {
		if !slices.Contains(tiers, tier) {
			continue
		}
		for _, kind := range kinds[tier] {
			if kind != Rating && !slices.Contains(wanted, kind) {
				continue
			}
			cases := bench.Head(casesOf(set, tier), first)
			for i := range cases {
				cases[i].Tier, cases[i].Kind, cases[i].Number = tier, kind, i+1
				cases[i].Prompt = p.prompt(&cases[i], set)
			}
			all = append(all, cases...)
		}
	}
	return all
}

// casesOf are the cases of a tier, without their names and prompts.
func casesOf(set *Set, tier string) (all []Case) {
	switch tier {
	case "3":
		for i := range set.Scenarios {
			all = append(all, Case{Scenario: &set.Scenarios[i]})
		}
	case "4":
		for i := range set.Meetings {
			all = append(all, Case{Meeting: &set.Meetings[i]})
		}
	default:
		for _, s := range set.Statements[tier] {
			all = append(all, Case{Human: s.Human})
		}
	}
	return all
}

// fields are what the template of a kind may show.
func (c *Case) fields(set *Set) map[string]string {
	switch {
	case c.Scenario != nil:
		s := c.Scenario
		return map[string]string{"story": s.Story, "about": s.About, "questionee": s.Questionee,
			"questioner": s.Questioner, "secret": strings.ToLower(s.Secret), "question": s.Control}
	case c.Meeting != nil:
		return map[string]string{"meeting": c.Meeting.Text}
	}
	return map[string]string{"question": set.Statements[c.Tier][c.Number-1].Text}
}
