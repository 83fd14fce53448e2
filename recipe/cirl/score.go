package cirl

import (
	"fmt"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/reward"
)

// Tasks are the cases as prompts that [Score] computes rewards for.
func Tasks(cases []eval.Case) []grpo.Task {
	all := make([]grpo.Task, len(cases))
	for i := range cases {
		c := &cases[i]
		k := reward.Of(c.Item)
		all[i] = grpo.Task{Tokens: c.Tokens, Prompt: c.Text(), Source: c.Item.Source, Data: c,
			Target: fmt.Sprintf("%q %q %v", k.Required, k.Restricted, c.Prefilled())}
	}
	return all
}

// Score is the contextual-integrity reward of [Tasks].
func Score(o reward.Options) func(t *grpo.Task, completion string) grpo.Score {
	return func(t *grpo.Task, completion string) grpo.Score {
		c := t.Data.(*eval.Case)
		s := reward.Evaluate(reward.Of(c.Item), completion, c.Prefilled(), o)
		return grpo.Score{Reward: s.Reward, Fault: s.Fault, Parts: s.Parts()}
	}
}
