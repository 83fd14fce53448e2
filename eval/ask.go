package eval

import (
	"context"
	"fmt"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
)

// Case is a contextual-integrity item as it is put to a model.
type Case struct {
	rollout.Conversation // the prompt, how it is answered, and the seed of the draws
	Item                 *ci.Item
	Opened               bool    // the chat template opens the think block: Fit finds out, a server's user says
	Tokens               []int32 // the prompt, after Fit
}

// Prefilled says that the answer begins inside the think block.
func (c *Case) Prefilled() bool { return c.Opened || c.Prefill != "" }

// Text is the prompt as text, without the chat template.
func (c *Case) Text() string { return c.Messages[len(c.Messages)-1].Content }

// Cases puts items into prompts of a form. order gives the seed of the order in which the prompt of item i lists its
// attributes. All are answered like c, with the form's prefill.
func Cases(items []ci.Item, form ci.Form, order func(i int) uint64, c rollout.Conversation) ([]Case, error) {
	write, err := form.Writer()
	if err != nil {
		return nil, err
	}
	if form.Prefill {
		c.Prefill = ci.ThinkPrefill
	}
	cases := make([]Case, len(items))
	for i := range items {
		cases[i] = Case{Conversation: c, Item: &items[i]}
		if cases[i].Messages, err = write(items[i], order(i)); err != nil {
			return nil, fmt.Errorf("%s: %w", items[i].Source, err)
		}
	}
	return cases, nil
}

// SeedDraws gives each case draws of its own, which follow from the seed and the case's place in the list.
func SeedDraws(cases []Case, seed uint64) {
	for i := range cases {
		cases[i].Seed = rollout.DrawSeed(seed, i)
	}
}

// Left says how many cases were left out because their prompts are too long.
type Left struct{ Count, Of, Limit, Longest int }

func (l Left) String() string {
	return fmt.Sprintf("%d of %d scenarios left out: their prompts have more than %d tokens (the longest has %d)",
		l.Count, l.Of, l.Limit, l.Longest)
}

// And adds what was left out of other items.
func (l Left) And(other Left) Left {
	return Left{l.Count + other.Count, l.Of + other.Of, other.Limit, max(l.Longest, other.Longest)}
}

// Err is an error where no case is left.
func (l Left) Err() error {
	if l.Count < l.Of {
		return nil
	}
	return fmt.Errorf("no prompt fits: all %d have more than %d tokens (the longest has %d)", l.Of, l.Limit, l.Longest)
}

// Fit encodes the prompts and leaves out the cases with more than limit tokens; 0 is no limit.
func Fit(l *rollout.Local, cases []Case, limit int) (kept []Case, left Left, err error) {
	left.Of, left.Limit = len(cases), limit
	for _, c := range cases {
		if c.Tokens, err = l.Prompt(c.Conversation); err == nil {
			c.Opened, err = l.Encoder.Opens(data.Text{Messages: c.Messages}, ci.ThinkPrefill)
		}
		if err != nil {
			return nil, left, fmt.Errorf("%s: %w", c.Item.Source, err)
		}
		left.Longest = max(left.Longest, len(c.Tokens))
		if limit > 0 && len(c.Tokens) > limit {
			left.Count++
			continue
		}
		kept = append(kept, c)
	}
	return kept, left, nil
}

// Ask lets a model answer the cases and scores the answers: those to the first case, then those to the second, and so
// on. Where the context has ended, the error is its cause.
func Ask(ctx context.Context, chat rollout.Chat, cases []Case, o reward.Options) ([]Sample, error) {
	asked := make([]rollout.Conversation, len(cases))
	for i, c := range cases {
		asked[i] = c.Conversation
	}
	answers, err := chat.Answer(ctx, asked)
	if err != nil {
		return nil, err
	}
	var samples []Sample
	for i := range cases {
		for k, a := range answers[i] {
			samples = append(samples, cases[i].Score(i, k, a, o))
		}
	}
	return samples, nil
}

// Score scores answer number k to the case, which is number i.
func (c *Case) Score(i, k int, a rollout.Answer, o reward.Options) Sample {
	s := Score(i, c.Item, a.Text, c.Prefilled(), o)
	s.Case, s.Number, s.Answer, s.Cut = c, k, a, a.Reason == rollout.Length
	return s
}

// Row is a scored completion as a line of cases.jsonl, test-before.jsonl, test-after.jsonl and samples.jsonl.
type Row struct {
	Item       string             `json:"item"` // its place in a file
	Sample     int                `json:"sample"`
	Prompt     data.Text          `json:"prompt"`
	Prefill    string             `json:"prefill,omitempty"`
	Completion string             `json:"completion"`
	Tokens     int                `json:"tokens,omitempty"` // of the completion
	Reason     string             `json:"reason"`           // why it ends: eos, length, stop, or a server's own word
	Reward     float64            `json:"reward"`
	Format     bool               `json:"format"`          // whether the format is kept
	Fault      string             `json:"fault,omitempty"` // what breaks it
	Parts      map[string]float64 `json:"parts,omitempty"` // of the reward
	*KeywordRow
	*ItemRow
}

// KeywordRow is the part of a Row that tasks with keywords have.
type KeywordRow struct {
	Answer     string         `json:"answer"`
	Required   []reward.Match `json:"required"`
	Restricted []reward.Match `json:"restricted"`
	Integrity  bool           `json:"integrity"`
	Utility    bool           `json:"utility"`
	Complete   bool           `json:"complete"`
}

// ItemRow is the part of a Row that contextual-integrity items have beside keywords.
type ItemRow struct {
	Domain    string         `json:"domain"`
	Principle string         `json:"principle"`
	ThinkLeak bool           `json:"think_leak"`
	Think     []reward.Match `json:"restricted_in_think"` // places in the think block
}

// NewRow is the row of a completion with its score.
func NewRow(item string, prompt data.Text, a rollout.Answer, s reward.Score) Row {
	return Row{Item: item, Prompt: prompt, Completion: a.Text, Tokens: a.Tokens, Reason: a.Reason,
		Reward: s.Reward, Format: s.Fault == "", Fault: s.Fault}
}

// NewKeywordRow says which keywords an answer has. Where the format is broken it has none.
func NewKeywordRow(k reward.Keywords, s reward.Score) *KeywordRow {
	return &KeywordRow{Answer: s.Answer, Required: allMatches(k.Required, s.Required),
		Restricted: allMatches(k.Restricted, s.Restricted),
		Integrity:  s.Integrity(), Utility: s.Utility(), Complete: s.Integrity() && s.Utility()}
}

// allMatches lists all keywords with their places; matches is nil where nothing was looked for.
func allMatches(keywords []string, matches []reward.Match) []reward.Match {
	if matches != nil {
		return matches
	}
	all := make([]reward.Match, len(keywords))
	for i, k := range keywords {
		all[i] = reward.Match{Keyword: k, At: -1}
	}
	return all
}

// Row is the sample as a line of a file.
func (s *Sample) Row() Row {
	r := NewRow(s.Case.Item.Source, data.Text{Messages: s.Case.Messages}, s.Answer, s.Score)
	r.Sample, r.Prefill = s.Number, s.Case.Prefill
	r.KeywordRow = NewKeywordRow(reward.Of(s.Case.Item), s.Score)
	r.ItemRow = &ItemRow{s.Domain, s.Principle, s.ThinkLeak(), append([]reward.Match{}, s.Think...)}
	return r
}

// AsSample reads the row of an episode.
func (r *Row) AsSample(number int, item *ci.Item, o reward.Options) Sample {
	score := reward.Score{Reward: r.Reward, Fault: r.Fault, Format: r.Format}
	if r.KeywordRow != nil {
		score.Answer, score.Required, score.Restricted = r.Answer, r.Required, r.Restricted
	}
	s := SampleOf(number, item, r.Completion, score, o)
	s.Answer = rollout.Answer{Text: r.Completion, Tokens: r.Tokens, Reason: r.Reason}
	s.Cut = r.Reason == rollout.Length || r.Reason == rollout.Turns
	return s
}
