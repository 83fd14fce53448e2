package records

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// pairs are the rules of preference pairs.
type pairs struct {
	*Report
	twins   *twins
	scores  sample
	lengths lengths
}

var reversed = Rule{Warning, "contradiction", "an earlier row prefers the same two answers the other way round"}

func (c *pairs) look(r Record) {
	p := *r.Pair
	c.messages(p.Source, "prompt", p.Prompt)
	c.thoughts(p.Source, "chosen", p.Chosen)
	c.thoughts(p.Source, "rejected", p.Rejected)
	texts := []string{p.Prompt.Words(), p.Chosen.Words(), p.Rejected.Words()}
	if first, found := c.twins.seen[hashOf(p.Prompt, p.Rejected, p.Chosen)]; found {
		c.add(reversed, p.Source, "", "as "+c.twins.name(p.Source, first))
		texts = nil // no more need be said
	}
	c.twins.look(p.Source, hashOf(p.Prompt, p.Chosen, p.Rejected), texts...)
	c.lengths.add(p)
	if p.Scored {
		c.scores.add(p)
	}
}

// finish looks at scores and lengths.
func (c *pairs) finish() {
	c.gaps()
	c.lengths.finish(c.Report)
}

// gaps says which gaps the scores would have in training, under the default options.
func (c *pairs) gaps() {
	_, _, report, err := data.Prior(c.scores.pairs, data.DefaultRewardOptions())
	if err != nil { // without scores
		return
	}
	c.Profile = report.Lines()
	if n := len(c.scores.pairs); n < c.scores.n {
		c.Profile[0] += fmt.Sprintf(", drawn from %d", c.scores.n)
	}
	if warning := report.Warning(); warning != "" {
		c.add(Rule{Warning, "gaps", warning}, "", "", "")
	}
}

// mostScores are the pairs whose gaps are described.
const mostScores = 100_000

// sample draws pairs from all, each as likely as any other, and keeps their scores alone.
type sample struct {
	rng   *rand.Rand
	n     int
	pairs []data.Preference
}

func (s *sample) add(p data.Preference) {
	p = data.Preference{ChosenScore: p.ChosenScore, RejectedScore: p.RejectedScore, Scored: true}
	if s.n++; len(s.pairs) < mostScores {
		s.pairs = append(s.pairs, p)
	} else if i := s.rng.IntN(s.n); i < mostScores {
		s.pairs[i] = p
	}
}

// The rules of conversations. Chat templates refuse what breaks them, or leave it out in silence.
var (
	roles      = Rule{Warning, "role", "a role is not one of system, user, assistant and tool"}
	lateSystem = Rule{Warning, "system", "a message of the system is not the first"}
	sameRole   = Rule{Note, "turns", "two messages in a row are the user's, or the assistant's"}
	emptyTurn  = Rule{Warning, "empty", "a message of the prompt is empty"}
	unended    = Rule{Warning, "thought", "an answer begins a thought, <think>, that it does not end"}
)

// thoughts looks at the thoughts of an answer.
func (r *Report) thoughts(row, column string, answer data.Text) {
	words := answer.Words()
	if i := strings.LastIndex(words, data.ThinkOpen); i >= 0 && !strings.Contains(words[i:], data.ThinkClose) {
		r.add(unended, row, column, "")
	}
}

// messages looks at the messages of a prompt.
func (r *Report) messages(row, column string, t data.Text) {
	if t.Plain != "" {
		r.Plain++
	}
	for i, m := range t.Messages {
		field := fmt.Sprintf("%s[%d]", column, i)
		switch {
		case !slices.Contains([]string{"system", "user", "assistant", "tool"}, m.Role):
			r.add(roles, row, field+".role", fmt.Sprintf("%q", data.OneLine(m.Role, 40)))
		case m.Role == "system" && i > 0:
			r.add(lateSystem, row, field, "")
		case i > 0 && m.Role == t.Messages[i-1].Role && m.Role != "tool":
			r.add(sameRole, row, field+".role", m.Role)
		}
		if strings.TrimSpace(m.Content) == "" && m.Role != "assistant" {
			r.add(emptyTurn, row, field+".content", "")
		}
	}
}

// demonstrations are the rules of demonstrations.
type demonstrations struct {
	*Report
	twins *twins
}

func (c *demonstrations) look(r Record) {
	d := r.Demo
	c.messages(d.Source, "messages", d.Prompt)
	c.thoughts(d.Source, "completion", d.Completion)
	c.twins.look(d.Source, hashOf(d.Prompt, d.Completion), d.Prompt.Words(), d.Completion.Words())
}

func (c *demonstrations) finish() {}

// labelled are the rules of answers with labels.
type labelled struct {
	*Report
	twins  *twins
	labels map[bool]int
}

var (
	bothLabels = Rule{Warning, "contradiction", "an earlier row has the same answer with the other label"}
	oneLabel   = Rule{Warning, "labels", "all answers have the same label: KTO compares desirable with undesirable " +
		"ones"}
)

func (c *labelled) look(r Record) {
	answers := r.Answers
	var texts []string
	for _, a := range answers {
		c.labels[a.Desirable]++
		c.thoughts(a.Source, "completion", a.Completion)
		if first, found := c.twins.seen[hashOf(a.Prompt, a.Completion, !a.Desirable)]; found {
			c.add(bothLabels, a.Source, "", "as "+c.twins.name(a.Source, first))
			continue
		}
		texts = append(texts, a.Prompt.Words(), a.Completion.Words())
	}
	first := answers[0]
	c.messages(first.Source, "prompt", first.Prompt)
	hash := hashOf(first.Prompt, first.Completion, first.Desirable)
	if len(answers) > 1 { // a pair, which the answers of other rows may repeat in part
		hash = hashOf(first.Prompt, first.Completion, answers[1].Completion)
		for _, a := range answers {
			c.twins.remember(hashOf(a.Prompt, a.Completion, a.Desirable), numberOf(a.Source))
		}
	}
	c.twins.look(first.Source, hash, texts...)
}

func (c *labelled) finish() {
	c.Profile = []string{fmt.Sprintf("labels: %d desirable, %d undesirable", c.labels[true], c.labels[false])}
	if c.labels[true]*c.labels[false] == 0 && len(c.labels) > 0 {
		c.add(oneLabel, "", "label", fmt.Sprint(c.labels[true] > 0))
	}
}
