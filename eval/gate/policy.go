// Package gate tests whether a model keeps norms of contextual integrity, so that a build can fail when it does not.
//
// Glossary. A norm says which attributes of a subject may flow from a sender to a recipient, and which must not
// (Nissenbaum's five parameters: sender, recipient, subject, attribute, principle). A policy has norms, and limits of
// leakage. A channel is a place where a model may leak: its answer, its think block, the arguments of its tool calls.
//
// The pipeline: ReadPolicy; Expand makes scenarios, each with synthetic values; the model answers them (command.go);
// Scenario.Read finds the values in an answer; Policy.Judge counts them and gives a verdict by norm and channel; Write
// prints it. docs/evaluation.md says what the verdicts promise, and why.
package gate

import (
	"fmt"
	"maps"
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
	Name    string              `yaml:"-"`          // of its file
	Limits  map[Channel]float64 `yaml:"limits"`     // the most leakage, in (0, 1), of the channels that are tested
	Utility float64             `yaml:"utility"`    // the least utility, in (0, 1)
	Error   float64             `yaml:"error"`      // the chance that a model within all limits fails, at most
	Match   string              `yaml:"match"`      // how values are found: substring or word
	Values  map[string][]string `yaml:"attributes"` // of each attribute; ? is any digit
	Norms   []Norm              `yaml:"norms"`
}

// Norm says what may flow, and what must not.
type Norm struct {
	Name      string              `yaml:"name" want:"given" words:"a text"`
	Domain    string              `yaml:"domain"` // for the reader; may be empty
	Sender    string              `yaml:"sender" want:"given" words:"a text"`
	Recipient string              `yaml:"recipient" want:"given" words:"a text"`
	Subject   string              `yaml:"subject" want:"given" words:"a text"`
	Principle string              `yaml:"principle" want:"given" words:"a text"`
	Task      string              `yaml:"task"` // what the model is to do; may be empty
	Allow     []string            `yaml:"allow"`
	Forbid    []string            `yaml:"forbid"`
	Limits    map[Channel]float64 `yaml:"limits"` // the norm's own, and the policy's for the other channels
	Utility   float64             `yaml:"utility"`
}

// ReadPolicy reads a policy from a YAML file. An error names the file.
func ReadPolicy(path string) (*Policy, error) {
	text, err := config.Open(path)
	if err != nil {
		return nil, err
	}
	return parsePolicy(path, text)
}

func parsePolicy(name string, text []byte) (*Policy, error) {
	p := &Policy{Name: name, Error: 0.05, Match: "substring"}
	if err := config.Decode(name, text, p, true); err != nil {
		return nil, err
	}
	err := p.check()
	flows, names := map[flow]ruling{}, map[string]bool{}
	for i := 0; i < len(p.Norms) && err == nil; i++ {
		n := &p.Norms[i]
		if err = p.complete(n, flows); err == nil && names[n.Name] {
			err = fmt.Errorf("a second norm %q: want other names", n.Name)
		}
		names[n.Name] = true
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// check looks at all but the norms.
func (p *Policy) check() error {
	switch {
	case len(p.Limits) == 0 || len(p.Values) == 0 || len(p.Norms) == 0:
		return fmt.Errorf("limits, attributes or norms is missing or empty: want limits, utility, attributes and norms")
	case p.Match != "substring" && p.Match != "word":
		return fmt.Errorf("match %q: want substring or word", p.Match)
	}
	for _, attribute := range slices.Sorted(maps.Keys(p.Values)) {
		if err := checkTexts(attribute, p.Values[attribute]); err != nil {
			return err
		}
	}
	return checkShares(p.Limits, Channels, p.Utility, p.Error)
}

// checkShares wants shares of channels, and others, to be above 0 and below 1.
func checkShares(limits map[Channel]float64, channels []Channel, others ...float64) error {
	for _, c := range slices.Sorted(maps.Keys(limits)) {
		if others = append(others, limits[c]); !slices.Contains(channels, c) {
			return fmt.Errorf("limits: %s is no channel that is tested: want some of %v", c, channels)
		}
	}
	for _, x := range others {
		if !(x > 0 && x < 1) {
			return fmt.Errorf("a limit, utility or error is %v: want a number above 0 and below 1", x)
		}
	}
	return nil
}

// checkTexts wants a list of texts, each of them once.
func checkTexts(key string, texts []string) error {
	sorted := slices.Compact(slices.Sorted(slices.Values(texts)))
	if len(texts) == 0 || len(sorted) < len(texts) || strings.TrimSpace(sorted[0]) == "" {
		return fmt.Errorf("%s %q: want a list of texts, each of them once", key, texts)
	}
	return nil
}

// complete gives a norm the policy's limits where it has no own ones, checks it, and notes what it rules.
func (p *Policy) complete(n *Norm, flows map[flow]ruling) error {
	if err := fault.Err("", fault.Check(*n)); err != nil {
		return fmt.Errorf("norm %q: %w", n.Name, err)
	}
	if strings.Contains(n.Name, "/") || n.Name == AllNorms { // it is part of ids
		return fmt.Errorf("norm %q: want a name without a slash, other than %q", n.Name, AllNorms)
	}
	for side, names := range map[string][]string{"allow": n.Allow, "forbid": n.Forbid} {
		if err := checkTexts("norm \""+n.Name+"\": "+side, names); err != nil {
			return err
		}
		for _, name := range names {
			if _, known := p.Values[name]; !known {
				return fmt.Errorf("norm %q: %s %q: attributes has no values for it", n.Name, side, name)
			}
		}
	}
	if n.Utility == 0 {
		n.Utility = p.Utility
	}
	limits := maps.Clone(p.Limits)
	maps.Copy(limits, n.Limits)
	n.Limits = limits
	if err := checkShares(limits, slices.Collect(maps.Keys(p.Limits)), n.Utility); err != nil {
		return fmt.Errorf("norm %q: %w", n.Name, err)
	}
	return n.agree(flows)
}

// flow is what one norm rules on, in small letters. The principle is not part of it: two norms that give different
// reasons for opposite rulings contradict each other all the same.
type flow struct{ sender, recipient, subject, attribute string }

type ruling struct {
	allowed bool
	norm    string
}

// agree notes what a norm rules, and refuses the opposite of an earlier ruling.
func (n *Norm) agree(flows map[flow]ruling) error {
	words := map[bool]string{true: "allowed", false: "forbidden"}
	plain := func(text string) string { return strings.ToLower(strings.Join(strings.Fields(text), " ")) }
	for _, attribute := range slices.Concat(n.Allow, n.Forbid) {
		f := flow{plain(n.Sender), plain(n.Recipient), plain(n.Subject), attribute}
		allowed := slices.Contains(n.Allow, attribute)
		if allowed && slices.Contains(n.Forbid, attribute) {
			return fmt.Errorf("norm %q both allows and forbids %q", n.Name, attribute)
		}
		if old, known := flows[f]; known && old.allowed != allowed {
			return fmt.Errorf("norm %q contradicts norm %q: %q from %s to %s about %s is %s here and %s there", n.Name,
				old.norm, attribute, n.Sender, n.Recipient, n.Subject, words[allowed], words[old.allowed])
		}
		flows[f] = ruling{allowed, n.Name}
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
