package main

import (
	"github.com/posttrain/posttrain/embedded"
	cirlrecipe "github.com/posttrain/posttrain/recipe/cirl"

	"fmt"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/reward"
)

// ciSplits are the three parts of the items, as tasks.
type ciSplits struct {
	train, validation []grpo.Task
	test              []testCase
}

// testCase is a task of the test split with the item that it was made from.
type testCase struct {
	grpo.Task
	item *ci.Item
}

// loadCISplits reads or makes the items, splits them, and encodes their prompts.
func loadCISplits(j *job, c *cirlrecipe.Options) (*ciSplits, error) {
	items, err := readCIItems(j, c)
	if err != nil {
		return nil, err
	}
	e := &ciEncoder{job: j, config: c, encoder: batch.Encoder{Tokenizer: j.world.tokenizer}}
	s := &ciSplits{}
	for k, part := range items {
		cases, err := e.encode(part, ci.Part(k))
		if err != nil {
			return nil, err
		}
		switch k {
		case 0:
			s.train = tasksOf(cases)
		case 1:
			s.validation = tasksOf(cases)
		default:
			s.test = cases
		}
	}
	e.tell()
	return s, e.check(s)
}

func tasksOf(cases []testCase) []grpo.Task {
	tasks := make([]grpo.Task, len(cases))
	for i, c := range cases {
		tasks[i] = c.Task
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

// ciEncoder turns items into tasks, and counts what it leaves out.
type ciEncoder struct {
	*job
	config  *cirlrecipe.Options
	encoder batch.Encoder
	dropped int
	tooLong int // tokens of the longest prompt that was dropped
}

// encode makes the tasks of one part. The attributes' order follows from the seed, the part and the item's place in it.
func (e *ciEncoder) encode(items []ci.Item, part ci.Part) (cases []testCase, err error) {
	for i := range items {
		task, err := e.task(&items[i], ci.Order(e.config.Seed, part, i))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", items[i].Source, err)
		}
		if n := len(task.Tokens); n > e.limit() {
			e.dropped, e.tooLong = e.dropped+1, max(e.tooLong, n)
			continue
		}
		cases = append(cases, testCase{task, &items[i]})
	}
	return cases, nil
}

// task encodes the prompt of an item.
func (e *ciEncoder) task(item *ci.Item, order uint64) (t grpo.Task, err error) {
	d := e.config.Data
	messages := ci.Prompt(*item, d.Prompt, order)
	text := data.Text{Messages: messages}
	t = grpo.Task{
		Keywords: reward.Of(item), Source: item.Source, Prompt: messages[len(messages)-1].Content, Prefilled: d.Prefill,
	}
	if !d.Prefill {
		if t.Prefilled, err = e.encoder.Opens(text, ci.ThinkPrefill); err != nil {
			return t, err
		}
		t.Tokens, err = e.encoder.Prompt(text)
		return t, err
	}
	t.Tokens, err = e.encoder.Prefilled(text, ci.ThinkPrefill)
	return t, err
}

// limit is the most tokens of a prompt: the configuration's, and room for one more in the model.
func (e *ciEncoder) limit() int {
	room := e.world.model.Config.MaxPositions - 1
	if most := e.config.Data.MaxPromptTokens; most > 0 {
		return min(most, room)
	}
	return room
}

// tell says how many prompts were too long.
func (e *ciEncoder) tell() {
	if e.dropped > 0 {
		e.say("%s: %d prompts dropped as longer than %d tokens (the longest has %d)", e.config.Data.Train, e.dropped, e.limit(), e.tooLong)
	}
}

// check refuses what the limits leave nothing of, and completions that the model has no positions for.
func (e *ciEncoder) check(s *ciSplits) error {
	d, positions := e.config.Data, e.world.model.Config.MaxPositions
	if len(s.train) == 0 || len(s.validation) == 0 || len(s.test) == 0 && d.TestFraction > 0 {
		return fmt.Errorf("%s: prompts of at most %d tokens leave %d to train on, %d for validation and %d for the test: want at least one of each; %d were dropped, the longest has %d tokens (data.max_prompt_tokens %d, where 0 is no limit; the model takes %d)",
			d.Train, e.limit(), len(s.train), len(s.validation), len(s.test), e.dropped, e.tooLong, d.MaxPromptTokens, positions)
	}
	return grpo.CheckTasks(e.config.GRPO, e.config.Sampling, positions, s.train, s.validation, tasksOf(s.test))
}
