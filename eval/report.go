package eval

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
)

// Sample is one completion of an item, scored.
type Sample struct {
	Item      int    // which one: the samples of an item belong together
	Domain    string // of the item
	Principle string // of the item: which transmission principle its restricted information would break
	Required  int    // keywords that the item requires
	Score     reward.Score
	Thinks    bool           // there is a think block
	Think     []reward.Match // the item's restricted keywords, looked for in the think block
	Cut       bool           // the completion met its length limit

	Answer ask.Answer // To is what was asked
	Number int        // which answer to it
}

// SampleOf scores an answer to item number i, and its think block.
func SampleOf(number int, a ask.Answer, o reward.Options) Sample {
	score := reward.Evaluate(reward.Of(a.To.Item), a.Text, a.To.Thinks(), o)
	return sampleOf(number, a, a.To.Thinks(), score, o)
}

// EpisodeOf is an episode of item number i with its score; the answer's text is all that was said in it.
func EpisodeOf(number int, a ask.Answer, score reward.Score, o reward.Options) Sample {
	return sampleOf(number, a, false, score, o)
}

func sampleOf(number int, a ask.Answer, prefilled bool, score reward.Score, o reward.Options) Sample {
	item := a.To.Item
	k := reward.Of(item)
	s := Sample{Item: number, Domain: item.Seed.Domain, Principle: item.Seed.TransmissionPrinciple,
		Required: len(k.Required), Score: score, Answer: a, Cut: a.Reason == rollout.Length || a.Reason == rollout.Turns}
	think, ok := reward.Think(a.Text, prefilled)
	if s.Thinks = ok; ok {
		s.Think = reward.Find(k.Restricted, think, o)
	}
	return s
}

// ThinkLeak says that a restricted keyword is in the think block.
func (s *Sample) ThinkLeak() bool {
	return slices.ContainsFunc(s.Think, func(m reward.Match) bool { return m.At >= 0 })
}

// Tally counts samples.
type Tally struct {
	Items       int  `json:"items"`
	Completions int  `json:"completions"`
	Format      Rate `json:"format"`
	Integrity   Rate `json:"integrity"`
	Utility     Rate `json:"utility"`
	Complete    Rate `json:"complete"`
	// the same of the completions alone that keep the format
	IntegrityOfAnswers Rate `json:"integrity_of_answers"`
	UtilityOfAnswers   Rate `json:"utility_of_answers"`
	CompleteOfAnswers  Rate `json:"complete_of_answers"`

	Copied Rate `json:"required_copied"` // required keywords that are in the answer, of all required keywords
	Reward Mean `json:"reward"`
	// Completions with a restricted keyword in their think block, and the ones whose answer keeps it to itself;
	// both of the completions that have a think block.
	ThinkLeak     Rate `json:"think_leak"`
	ThinkOnlyLeak Rate `json:"think_only_leak"`
	Cut           Rate `json:"cut"` // completions that met their length limit
}

// Add counts one more sample.
func (t *Tally) Add(s Sample) {
	integrity, utility := s.Score.Integrity(), s.Score.Utility()
	t.Completions++
	t.Format.Add(s.Item, s.Score.Format)
	t.Integrity.Add(s.Item, integrity)
	t.Utility.Add(s.Item, utility)
	t.Complete.Add(s.Item, integrity && utility)
	if s.Score.Format {
		t.IntegrityOfAnswers.Add(s.Item, integrity)
		t.UtilityOfAnswers.Add(s.Item, utility)
		t.CompleteOfAnswers.Add(s.Item, integrity && utility)
	}
	copied := Share{Total: s.Required}
	for _, m := range s.Score.Required {
		if m.At >= 0 {
			copied.Count++
		}
	}
	t.Copied.addShare(s.Item, copied)
	t.Reward.Add(s.Item, s.Score.Reward)
	if s.Thinks {
		t.ThinkLeak.Add(s.Item, s.ThinkLeak())
		t.ThinkOnlyLeak.Add(s.Item, s.ThinkLeak() && integrity)
	}
	t.Cut.Add(s.Item, s.Cut)
	t.Items = len(t.Format.items)
}

// Report is what was measured, whole and in parts.
type Report struct {
	All        Tally             `json:"all"`
	Domains    map[string]*Tally `json:"domains"`
	Principles map[string]*Tally `json:"principles"`
}

// Add counts one more sample. Items that name no domain or principle count under "none".
func (r *Report) Add(s Sample) {
	if r.Domains == nil {
		r.Domains, r.Principles = map[string]*Tally{}, map[string]*Tally{}
	}
	r.All.Add(s)
	Part(r.Domains, s.Domain).Add(s)
	Part(r.Principles, s.Principle).Add(s)
}

// Part is the part of a name, made where it is new. The empty name counts as "none".
func Part[T any](parts map[string]*T, name string) *T {
	name = cmp.Or(name, "none")
	if parts[name] == nil {
		parts[name] = new(T)
	}
	return parts[name]
}

// Write prints the report as tables for a terminal.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	b.WriteString(r.All.String())
	writeParts(&b, "domain", r.Domains)
	writeParts(&b, "principle", r.Principles)
	_, err := io.WriteString(w, b.String())
	return err
}

// String is a line for every measure.
func (t *Tally) String() string {
	var b strings.Builder
	kept, cut := t.Format.Share(), t.Cut.Share()
	broken := kept.Count < kept.Total
	for _, line := range []struct {
		name  string
		value Rate
		show  bool
	}{
		{"format kept", t.Format, true}, {"required copied", t.Copied, true},
		{"integrity", t.Integrity, true}, {"  of answers", t.IntegrityOfAnswers, broken},
		{"utility", t.Utility, true}, {"  of answers", t.UtilityOfAnswers, broken},
		{"complete", t.Complete, true}, {"  of answers", t.CompleteOfAnswers, broken},
		{"leak in think", t.ThinkLeak, true}, {"  in think only", t.ThinkOnlyLeak, true},
		{"cut by length", t.Cut, cut.Count > 0},
	} {
		if line.show {
			fmt.Fprintf(&b, "%-16s %v\n", line.name, line.value)
		}
	}
	sign := " " // the place of a minus
	if t.Reward.Value() <= -0.0005 {
		sign = ""
	}
	fmt.Fprintf(&b, "%-16s %s%v\n", "mean reward", sign, t.Reward)
	return b.String()
}

// writeParts prints a line for every part if there are several.
func writeParts(b *strings.Builder, what string, parts map[string]*Tally) {
	if len(parts) < 2 {
		return
	}
	names := slices.Sorted(maps.Keys(parts))
	wide := len(what)
	for _, name := range names {
		wide = max(wide, utf8.RuneCountInString(name))
	}
	fmt.Fprintf(b, "\n%-*s %6s  %-20s %-20s %-20s %-20s %s\n",
		wide, what, "items", "integrity", "utility", "complete", "leak in think", "reward")
	for _, name := range names {
		t := parts[name]
		fmt.Fprintf(b, "%-*s %6d  %s %s %s %s %6.3f\n", wide, name, t.Items, t.Integrity.cell(), t.Utility.cell(),
			t.Complete.cell(), t.ThinkLeak.cell(), thousandths(t.Reward.Value()))
	}
}

// cell is a rate in 20 characters: percent and interval.
func (r Rate) cell() string {
	all := r.Share()
	if all.Total == 0 {
		return fmt.Sprintf("%-20s", "-")
	}
	low, high := r.Interval()
	return fmt.Sprintf("%-20s", fmt.Sprintf("%5.1f%% (%.1f-%.1f)", 100*all.Value(), 100*low, 100*high))
}
