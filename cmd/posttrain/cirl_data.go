package main

import (
	"github.com/posttrain/posttrain/embedded"
	cirlrecipe "github.com/posttrain/posttrain/recipe/cirl"

	"fmt"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
)

// ciSplits are the three parts of the items, as tasks.
type ciSplits struct {
	train, validation []grpo.Task
	test              []eval.Case
	chat              rollout.Local // encodes; without a sampler
}

// loadCISplits reads or makes the items, splits them, and encodes their prompts.
func loadCISplits(j *job, c *cirlrecipe.Options) (*ciSplits, error) {
	items, err := readCIItems(j, c)
	if err != nil {
		return nil, err
	}
	e := &ciEncoder{job: j, config: c, chat: rollout.Local{Encoder: &batch.Encoder{Tokenizer: j.world.tokenizer}}}
	var cases [3][]eval.Case
	for k, part := range items {
		if cases[k], err = e.encode(part, ci.Part(k)); err != nil {
			return nil, err
		}
	}
	if e.left.Count > 0 {
		e.say("%s: %v", c.Data.Train, e.left)
	}
	s := &ciSplits{tasksOf(cases[0]), tasksOf(cases[1]), cases[2], e.chat}
	return s, e.check(s)
}

// tasksOf makes tasks of cases.
func tasksOf(cases []eval.Case) []grpo.Task {
	tasks := make([]grpo.Task, len(cases))
	for i, c := range cases {
		tasks[i] = grpo.Task{Tokens: c.Tokens, Prompt: c.Text(), Source: c.Item.Source, Keywords: reward.Of(c.Item), Prefilled: c.Prefilled()}
	}
	return tasks
}

// readCIItems gives the items to train on, to validate on and to test on.
func readCIItems(j *job, c *cirlrecipe.Options) (parts [3][]ci.Item, err error) {
	d := c.Data
	if d.Train == embedded.Name {
		parts = embeddedItems(d, c.Seed)
		j.say("embedded: %d distinct scenarios to train on, %d for validation and %d for the test", len(parts[0]), len(parts[1]), len(parts[2]))
		return parts, nil
	}
	items, report, err := ci.Read(d.Train)
	if err != nil {
		return parts, err
	}
	j.say("%s", report)
	first, second, third := ci.Split(len(items), d.ValidationFraction, d.TestFraction, c.Seed)
	parts = [3][]ci.Item{data.Pick(items, first), data.Pick(items, second), data.Pick(items, third)}
	if err := notEmpty(parts, d, len(items)); err != nil {
		return parts, err
	}
	j.say("%s: %d items to train on, %d for validation, %d for the test", d.Train, len(first), len(second), len(third))
	return parts, nil
}

// notEmpty refuses fractions that leave a part without items.
func notEmpty(parts [3][]ci.Item, d cirlrecipe.Data, n int) error {
	if len(parts[0]) > 0 && len(parts[1]) > 0 && (len(parts[2]) > 0 || d.TestFraction == 0) {
		return nil
	}
	return fmt.Errorf("%s: data.validation_fraction %v and data.test_fraction %v of %d items leave %d to train on, %d for validation and %d for the test: want at least one of each",
		d.Train, d.ValidationFraction, d.TestFraction, n, len(parts[0]), len(parts[1]), len(parts[2]))
}

// embeddedSeed keeps the scenarios of ci-rl apart from those that the embedded model was taught with.
const embeddedSeed = 0x63692d726c

// embeddedItems makes scenarios and splits them; all are distinct.
func embeddedItems(d cirlrecipe.Data, seed uint64) [3][]ci.Item {
	items := ci.Synthesize(d.Scenarios, seed^embeddedSeed)
	first, second, third := ci.Split(len(items), d.ValidationFraction, d.TestFraction, seed)
	return [3][]ci.Item{data.Pick(items, first), data.Pick(items, second), data.Pick(items, third)}
}

// ciEncoder turns items into cases, and counts those that it leaves out.
type ciEncoder struct {
	*job
	config *cirlrecipe.Options
	chat   rollout.Local
	left   eval.Left
}

// encode makes the cases of one part. The attributes' order follows from the seed, the part and the item's place in it.
func (e *ciEncoder) encode(items []ci.Item, part ci.Part) ([]eval.Case, error) {
	d := e.config.Data
	way := rollout.Conversation{Sampling: e.config.Sampling, OneDraw: true}
	way.Temperature = e.config.Validation.Temperature
	if d.Prefill {
		way.Prefill = ci.ThinkPrefill
	}
	order := func(i int) uint64 { return ci.Order(e.config.Seed, part, i) }
	cases, left, err := eval.Fit(&e.chat, eval.Cases(items, d.Prompt, order, way), e.limit())
	e.left = e.left.And(left)
	return cases, err
}

// limit is the most tokens of a prompt: the configuration's, and room for one more in the model.
func (e *ciEncoder) limit() int {
	room := e.world.model.Config.MaxPositions - 1
	if most := e.config.Data.MaxPromptTokens; most > 0 {
		return min(most, room)
	}
	return room
}

// check refuses what the limits leave nothing of, and completions that the model has no positions for.
func (e *ciEncoder) check(s *ciSplits) error {
	d, positions := e.config.Data, e.world.model.Config.MaxPositions
	if len(s.train) == 0 || len(s.validation) == 0 || len(s.test) == 0 && d.TestFraction > 0 {
		return fmt.Errorf("%s: prompts of at most %d tokens leave %d to train on, %d for validation and %d for the test: want at least one of each; %d were dropped, the longest has %d tokens (data.max_prompt_tokens %d, where 0 is no limit; the model takes %d)",
			d.Train, e.limit(), len(s.train), len(s.validation), len(s.test), e.left.Count, e.left.Longest, d.MaxPromptTokens, positions)
	}
	return grpo.CheckTasks(e.config.GRPO, e.config.Sampling, positions, s.train, s.validation, tasksOf(s.test))
}
