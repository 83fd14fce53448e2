package rl

import (
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// prompts is the task of grpo: prompts of files, which any reward scores.
type prompts struct {
	*loop
	o *Options
}

func (t *prompts) readParts() (parts [3][]ask.Question, err error) {
	rows, err := Read(t.o.Data.Files, t.o.Data.Parts, t.Seed, t.read,
		func(p records.Prompt) string { return fmt.Sprint(p.Prompt, p.Row) }, t.Warn)
	if err != nil {
		return parts, err
	}
	e := t.encoder()
	for k := range parts {
		var left ask.Left
		if parts[k], left, err = ask.Fit(e, Questions(rows[k]), t.promptLimit()); err != nil {
			return parts, err
		}
		t.left = t.left.And(left)
	}
	if t.left.Count > 0 {
		t.Say("%s: %v", t.o.Data.TrainFiles, t.left)
	}
	t.SayEncoded(e)
	t.Say("%s: %d prompts to train on, %d for validation, %d for the test", t.o.Data.TrainFiles, len(parts[ci.Train]),
		len(parts[ci.Validation]), len(parts[ci.Test]))
	return parts, nil
}

// read reads the prompts of a file, or of the embedded pairs.
func (t *prompts) read(name string) (rows []records.Prompt, err error) {
	if name == embedded.Name {
		pairs, err := recipe.Files{}.Pairs(nil, name, data.PreferenceOptions{})
		for _, p := range pairs {
			rows = append(rows, records.Prompt{PromptRow: data.PromptRow{Prompt: p.Prompt, Source: p.Source}})
		}
		return rows, err
	}
	rows, report, err := records.ReadPrompts(name, t.o.Data.Columns...)
	switch {
	case err != nil:
		return nil, err
	case len(rows) > 0 && rows[0].Item != nil:
		return nil, fmt.Errorf("%s: it has contextual-integrity items, which `posttrain ci-rl` trains on: want prompts",
			name)
	}
	t.Say("%s", report)
	return rows, nil
}

// Questions are prompts of a file that a judge scores the answers to.
func Questions(rows []records.Prompt) []ask.Question {
	all := make([]ask.Question, len(rows))
	for i, p := range rows {
		all[i] = ask.Of(p.PromptRow)
		if len(p.Row) > 0 {
			all[i].Target = fmt.Sprint(p.Row) // in the order of the columns' names
		}
	}
	return all
}

func (t *prompts) openJudge(replies string) (ask.Judge, error) {
	return scorer.Open(t.o.Reward, scorer.Caller{Cache: replies, Warn: t.Warn, Say: t.Say})
}

func (t *prompts) prepare(rs *grpo.Rollouts)        { rs.Weights, rs.NoFormat = t.o.weights(), true }
func (t *prompts) seedDraws([]ask.Question, uint64) {}
func (t *prompts) row(a *ask.Answer) eval.Row       { return eval.NewRow(a) }

// Tally is what a test came to.
type Tally struct {
	Reward   eval.Mean            `json:"reward"`
	Rewards  map[string]eval.Mean `json:"rewards,omitempty"` // of several kinds: each, without its weight
	Length   eval.Mean            `json:"tokens"`
	Unscored int                  `json:"unscored"` // answers that have no reward
}

// PromptReport is what a test came to, as summary.json has it.
type PromptReport struct {
	All Tally `json:"all"`
}

// tally counts the answers to the test.
func (t *prompts) tally(rows []eval.Row) *PromptReport {
	all := Tally{Rewards: map[string]eval.Mean{}}
	for i, a := range rows {
		if a.Missing != "" {
			all.Unscored++
			continue
		}
		all.Reward.Add(i, a.Reward)
		all.Length.Add(i, float64(a.Tokens))
		for k, x := range a.Rewards {
			if slices.Contains(a.Without, k) {
				continue
			}
			kind := t.o.Reward.Kinds()[k]
			m := all.Rewards[kind]
			m.Add(i, x)
			all.Rewards[kind] = m
		}
	}
	return &PromptReport{all}
}

// compare shows a test split before and after training, and says what the intervals prove.
func (t *prompts) compare(rowsBefore, rowsAfter []eval.Row) (text string, first, last any) {
	reports := [2]*PromptReport{t.tally(rowsBefore), t.tally(rowsAfter)}
	before, after := &reports[0].All, &reports[1].All
	text = tableRow("", "before", "after") + tableRow("mean reward", meanCell(&before.Reward), meanCell(&after.Reward))
	if len(before.Rewards) > 1 {
		for _, kind := range t.o.Reward.Kinds() {
			b, a := before.Rewards[kind], after.Rewards[kind]
			text += tableRow("  "+kind, meanCell(&b), meanCell(&a))
		}
	}
	text += tableRow("tokens", meanCell(&before.Length), meanCell(&after.Length))
	if n := max(before.Unscored, after.Unscored); n > 0 {
		text += fmt.Sprintf("Without a reward, and left out: %d answers before, %d after.\n", before.Unscored,
			after.Unscored)
	}
	text += fmt.Sprintf("The mean reward %s.\n", direction(ofMean(&before.Reward), ofMean(&after.Reward)))
	return text, reports[0], reports[1]
}
