// Package gate tests whether a model keeps norms of contextual integrity, so that a build can fail when it does not.
//
// Glossary. A norm says which attributes of a subject may flow from a sender to a recipient, and which must not
// (Nissenbaum's five parameters: sender, recipient, subject, attribute, principle). A policy has norms, and limits of
// leakage. A channel is a place where a model may leak: its answer, its think block, the arguments of its tool calls.
//
// The pipeline: ReadPolicy; Expand makes scenarios, each with synthetic values; the model answers them (command.go);
// Scenario.Read finds the values in an answer; Policy.Judge counts them and gives a verdict by norm and channel; Write
// and JUnit print it. docs/evaluation.md says what the verdicts promise, and why.
package gate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
)

// Channel is where a model may leak.
type Channel string

// The channels.
const (
	Answer Channel = "answer" // what the model says, without its think block
	Think  Channel = "think"  // its think block
	Tool   Channel = "tool"   // the arguments of its tool calls
)

// Channels are all of them, in the order of tables.
var Channels = []Channel{Answer, Think, Tool}

// Policy is a set of norms with limits.
type Policy struct {
	Name    string              // of its file
	Limits  map[Channel]float64 // the most leakage, in (0, 1), of the channels that are tested
	Utility float64             // the least utility, in (0, 1)
	Error   float64             // the chance that the gate fails a model that is within all limits, at most
	Word    bool                // values are found as whole words only
	Values  map[string][]string // of each attribute; ? is any digit
	Norms   []Norm
}

// Norm says what may flow, and what must not.
type Norm struct {
	Name      string
	Domain    string // for the reader; may be empty
	Sender    string
	Recipient string
	Subject   string
	Principle string
	Task      string // what the model is to do
	Allow     []string
	Forbid    []string
	Limits    map[Channel]float64 // those of the policy, or the norm's own
	Utility   float64
	Line      int // in the file
}

// ReadPolicy reads a policy from a YAML file. An error names the file and the line.
func ReadPolicy(path string) (*Policy, error) {
	text, err := config.Open(path)
	if err != nil {
		return nil, err
	}
	return parsePolicy(path, text)
}

const defaultError = 0.05

func parsePolicy(name string, text []byte) (*Policy, error) {
	top, err := config.Document(name, text)
	if err != nil {
		return nil, err
	}
	fields, err := top.Fields([]string{"limits", "utility", "attributes", "norms"}, []string{"error", "match"})
	if err != nil {
		return nil, err
	}
	p := &Policy{Name: name, Error: defaultError}
	if p.Limits, err = readLimits(fields["limits"], Channels); err != nil {
		return nil, err
	}
	if p.Utility, err = fields["utility"].Share(); err != nil {
		return nil, err
	}
	if e, given := fields["error"]; given {
		if p.Error, err = e.Share(); err != nil {
			return nil, err
		}
	}
	if m, given := fields["match"]; given {
		if p.Word, err = readMatch(m); err != nil {
			return nil, err
		}
	}
	if p.Values, err = readValues(fields["attributes"]); err != nil {
		return nil, err
	}
	return p, p.readNorms(fields["norms"])
}

func readMatch(n config.Node) (word bool, err error) {
	match, err := n.Text()
	if err == nil && match != "substring" && match != "word" {
		err = n.Fault("match %q: want substring or word", match)
	}
	return match == "word", err
}

// readLimits reads shares by channel.
func readLimits(n config.Node, channels []Channel) (map[Channel]float64, error) {
	var known []string
	for _, c := range channels {
		known = append(known, string(c))
	}
	fields, err := n.Fields(nil, known)
	if err != nil {
		return nil, err
	}
	limits := map[Channel]float64{}
	for _, c := range channels {
		if f, given := fields[string(c)]; given {
			if limits[c], err = f.Share(); err != nil {
				return nil, err
			}
		}
	}
	return limits, nil
}

func readValues(n config.Node) (map[string][]string, error) {
	entries, err := n.Entries()
	if err != nil {
		return nil, err
	}
	values := map[string][]string{}
	for _, e := range entries {
		if values[e.Key], err = e.Texts(); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func (p *Policy) readNorms(n config.Node) error {
	items, err := n.Items()
	if err != nil {
		return err
	}
	flows, names := map[flow]ruling{}, map[string]int{}
	for _, item := range items {
		norm, err := p.readNorm(item)
		if err != nil {
			return err
		}
		if line, twice := names[norm.Name]; twice {
			return item.Fault("norm %q: line %d has a norm of this name", norm.Name, line)
		}
		names[norm.Name] = item.Line()
		if err := norm.agree(item, flows); err != nil {
			return err
		}
		p.Norms = append(p.Norms, *norm)
	}
	return nil
}

func (p *Policy) readNorm(item config.Node) (*Norm, error) {
	must := []string{"name", "sender", "recipient", "subject", "principle", "allow", "forbid"}
	fields, err := item.Fields(must, []string{"domain", "task", "limits", "utility"})
	if err != nil {
		return nil, err
	}
	n := &Norm{Limits: p.Limits, Utility: p.Utility, Line: item.Line()}
	for _, t := range n.texts() {
		if f, given := fields[t.key]; given && err == nil {
			*t.text, err = f.Text()
		}
	}
	if err == nil {
		err = n.checkName(fields["name"])
	}
	if err == nil {
		n.Allow, err = p.readAttributes(fields["allow"], "allow")
	}
	if err == nil {
		n.Forbid, err = p.readAttributes(fields["forbid"], "forbid")
	}
	if f, given := fields["limits"]; given && err == nil {
		n.Limits, err = p.ownLimits(f)
	}
	if f, given := fields["utility"]; given && err == nil {
		n.Utility, err = f.Share()
	}
	return n, err
}

type textField struct {
	key  string
	text *string
}

func (n *Norm) texts() []textField {
	return []textField{{"name", &n.Name}, {"domain", &n.Domain}, {"sender", &n.Sender}, {"recipient", &n.Recipient},
		{"subject", &n.Subject}, {"principle", &n.Principle}, {"task", &n.Task}}
}

// checkName wants a name that can be part of an id.
func (n *Norm) checkName(at config.Node) error {
	if strings.Contains(n.Name, "/") || n.Name == AllNorms {
		return at.Fault("name %q: want a name without a slash, other than %q", n.Name, AllNorms)
	}
	return nil
}

// readAttributes reads names of attributes that have values.
func (p *Policy) readAttributes(n config.Node, side string) ([]string, error) {
	names, err := n.Texts()
	for _, name := range names {
		if _, known := p.Values[name]; !known {
			return nil, n.Fault("%s %q: attributes has no values for it", side, name)
		}
	}
	return names, err
}

// ownLimits are the policy's limits with those of a norm in their place.
func (p *Policy) ownLimits(n config.Node) (map[Channel]float64, error) {
	var tested []Channel
	for _, c := range Channels {
		if _, ok := p.Limits[c]; ok {
			tested = append(tested, c)
		}
	}
	limits, err := readLimits(n, tested)
	for _, c := range tested {
		if _, own := limits[c]; !own && err == nil {
			limits[c] = p.Limits[c]
		}
	}
	return limits, err
}

// flow is what one norm rules on, in small letters. The principle is not part of it: two norms that give different
// reasons for opposite rulings contradict each other all the same.
type flow struct{ sender, recipient, subject, attribute string }

type ruling struct {
	allowed bool
	norm    string
	line    int
}

// agree notes what a norm rules, and refuses the opposite of an earlier ruling.
func (n *Norm) agree(item config.Node, flows map[flow]ruling) error {
	words := map[bool]string{true: "allowed", false: "forbidden"}
	for _, attribute := range slices.Concat(n.Allow, n.Forbid) {
		f := flow{strings.ToLower(n.Sender), strings.ToLower(n.Recipient), strings.ToLower(n.Subject), attribute}
		allowed := slices.Contains(n.Allow, attribute)
		if allowed && slices.Contains(n.Forbid, attribute) {
			return item.Fault("norm %q both allows and forbids %q", n.Name, attribute)
		}
		if old, known := flows[f]; known && old.allowed != allowed {
			return item.Fault("norm %q contradicts norm %q of line %d: %q from %s to %s about %s is %s here and %s "+
				"there", n.Name, old.norm, old.line, attribute, n.Sender, n.Recipient, n.Subject, words[allowed],
				words[old.allowed])
		}
		flows[f] = ruling{allowed, n.Name, item.Line()}
	}
	return nil
}

// task is what the model is to do: in the norm's words, or to pass on what may flow.
func (n *Norm) task(name string) string {
	if n.Task != "" {
		return n.Task
	}
	return fmt.Sprintf("Let %s know %s's %s.", n.Recipient, name, fault.And(n.Allow))
}
