package grpo

import (
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
)

// shown is a line of samples.jsonl: a completion of a held-out task, its reward and what it is made of.
type shown struct {
	Step       int     `json:"step"` // of the weights that wrote it
	Item       string  `json:"item"` // the task's place in its file
	Prompt     string  `json:"prompt"`
	Completion string  `json:"completion"`
	Tokens     int     `json:"tokens"` // of the completion
	Reason     string  `json:"reason"` // why it ends: eos, length, stop
	Reward     float64 `json:"reward"`
	Format     bool    `json:"format"`          // whether the format is kept
	Fault      string  `json:"fault,omitempty"` // what breaks it

	Parts      map[string]float64 `json:"parts,omitempty"`    // of the reward
	Required   *keywords          `json:"required,omitempty"` // for tasks with keywords
	Restricted *keywords          `json:"restricted,omitempty"`
}

// keywords are those of one side of a task, and the share of them that the answer has.
type keywords struct {
	Share    float64           `json:"share"`
	Keywords []keywordInAnswer `json:"keywords"`
}

// keywordInAnswer is a keyword with its byte offset in the answer block, -1 where it is missing.
type keywordInAnswer struct {
	Keyword string `json:"keyword"`
	At      int    `json:"at"`
}

// show writes the first few completions of a validation into samples.jsonl: always of the same tasks, so that one can
// watch them change.
func (l *Loop) show(completions []rollout.Completion, scores []reward.Score) error {
	if l.Folder == nil {
		return nil
	}
	var lines []any
	for i, t := range l.Held[:min(l.Validation.Samples, len(l.Held))] {
		c, s := completions[i], scores[i]
		line := shown{Step: l.Step(), Item: t.Source, Prompt: t.Prompt, Completion: c.Text, Tokens: len(c.Tokens),
			Reason: c.Reason, Reward: s.Reward, Format: s.Fault == "", Fault: s.Fault, Parts: s.Parts}
		if t.Keywords.Required != nil || t.Keywords.Restricted != nil {
			line.Required = found(s.RequiredShare(), t.Keywords.Required, s.Required)
			line.Restricted = found(s.RestrictedShare(), t.Keywords.Restricted, s.Restricted)
		}
		lines = append(lines, line)
	}
	if lines == nil {
		return nil
	}
	return l.Folder.LogSamples(lines...)
}

// found lists keywords with their places. Where the format is broken nothing was looked for, and nothing found.
func found(share float64, words []string, matches []reward.Match) *keywords {
	k := &keywords{Share: share, Keywords: []keywordInAnswer{}}
	for _, m := range matches {
		k.Keywords = append(k.Keywords, keywordInAnswer{m.Keyword, m.At})
	}
	if matches == nil {
		for _, w := range words {
			k.Keywords = append(k.Keywords, keywordInAnswer{w, -1})
		}
	}
	return k
}
