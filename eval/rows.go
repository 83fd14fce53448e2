package eval

import (
	"fmt"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
)

// Questions puts items into prompts of a form. order gives the seed of the order in which the prompt of item i lists its
// attributes.
func Questions(items []ci.Item, form ci.Form, order func(i int) uint64) ([]ask.Question, error) {
	write, err := form.Writer()
	if err != nil {
		return nil, err
	}
	all := make([]ask.Question, len(items))
	for i := range items {
		all[i] = ask.Question{Item: &items[i], Source: items[i].Source}
		if form.Prefill {
			all[i].Prefill = ci.ThinkPrefill
		}
		if all[i].Prompt.Messages, err = write(items[i], order(i)); err != nil {
			return nil, fmt.Errorf("%s: %w", items[i].Source, err)
		}
	}
	return all, nil
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
	Rewards    []float64          `json:"rewards,omitempty"`         // of several kinds: each
	Without    []int              `json:"rewards_without,omitempty"` // those that the answer is not for, counted from 0
	Missing    string             `json:"why,omitempty"`             // why there is no reward
	Parts      map[string]float64 `json:"parts,omitempty"`           // of the reward
	*KeywordRow
	*ItemRow
}

// KeywordRow is the part of a Row that tasks with keywords have.
type KeywordRow struct {
	Format     bool           `json:"format"`          // whether the format is kept
	Fault      string         `json:"fault,omitempty"` // what breaks it
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

// NewRow is the row of an answer with its score.
func NewRow(a *ask.Answer) Row {
	return Row{Item: a.To.Source, Prompt: a.To.Prompt, Prefill: a.To.Prefill, Completion: a.Text, Tokens: a.Length(),
		Reason: a.Reason, Reward: a.Score.Value, Rewards: a.Score.Each, Without: a.Score.Without,
		Missing: a.Score.Missing}
}

// NewKeywordRow says which keywords an answer has. Where the format is broken it has none.
func NewKeywordRow(k reward.Keywords, s reward.Score) *KeywordRow {
	return &KeywordRow{Format: s.Fault == "", Fault: s.Fault, Answer: s.Answer, Required: allMatches(k.Required, s.Required),
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
	r := NewRow(&s.Answer)
	r.Sample, r.Reward = s.Number, s.Score.Reward
	r.KeywordRow = NewKeywordRow(reward.Of(s.Answer.To.Item), s.Score)
	r.ItemRow = &ItemRow{s.Domain, s.Principle, s.ThinkLeak(), append([]reward.Match{}, s.Think...)}
	return r
}

// AsSample reads the row of an answer to question number i.
func (r *Row) AsSample(number int, q *ask.Question, o reward.Options) Sample {
	a := ask.Answer{To: q, Completion: rollout.Completion{Text: r.Completion, Reason: r.Reason}}
	a.Usage.CompletionTokens = r.Tokens
	if q.Open == nil {
		return SampleOf(number, a, o)
	}
	score := reward.Score{Reward: r.Reward}
	if k := r.KeywordRow; k != nil {
		score.Fault, score.Format, score.Answer, score.Required, score.Restricted = k.Fault, k.Format, k.Answer, k.Required,
			k.Restricted
	}
	return EpisodeOf(number, a, score, o)
}
