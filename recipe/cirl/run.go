package cirl

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/rl"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/agent"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// Result is what a run leaves. Before and After measure the test split, nil without one.
type Result struct {
	recipe.Result
	Before, After *eval.Report
}

// Run teaches contextual integrity: it loads model and items, measures the test split, trains, measures the test split
// with the best model, and reports. A nil Reporter is silent.
func Run(ctx context.Context, o Options, r run.Reporter) (*Result, error) {
	t, err := o.open(r, false)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	if err := t.load(); err != nil {
		return nil, err
	}
	closeAll, err := t.Begin()
	if err != nil {
		return nil, err
	}
	defer closeAll()
	t.chat.Sampler = t.Sampler
	if t.o.Judge.Model != "" {
		place := scorer.Caller{Cache: t.Folder.Path("replies.jsonl"), Warn: t.Warn}
		if t.judge, err = scorer.OpenLeaks(t.o.Judge, place); err != nil {
			return nil, err
		}
		defer t.judge.Close()
	}
	trainer := t.Trainer(t.rollouts(), "complete")
	before, after, best, err := t.measure().Around(ctx, trainer)
	if err != nil {
		return nil, err
	}
	return t.report(trainer, best, t.tally(before), t.tally(after))
}

// open opens engine and model.
func (o Options) open(r run.Reporter, dry bool) (*training, error) {
	if err := Spec.Verify(&o); err != nil {
		return nil, err
	}
	t := &training{o: o}
	j, err := recipe.Open(recipe.Config{Base: &t.o.Base, Command: Command, Title: "CI-RL", Samples: true,
		Options: &t.o, Dry: dry}, r)
	if err != nil {
		return nil, err
	}
	t.Loop = rl.Loop{Run: j, Settings: t.o.settings(), Data: t.o.Data.Train.String()}
	t.chat.Encoder = &batch.Encoder{Tokenizer: j.Tokenizer}
	if t.o.Agent.On() {
		err = t.openAgent()
	}
	return t, err
}

// training is a run on its way.
type training struct {
	rl.Loop
	o    Options
	chat rollout.Local // encodes the prompts; asks the model that learns
	test []eval.Case
	left eval.Left

	// Of an agent.
	form  agent.Form    // of its tool calls
	judge scorer.Source // of leaks in other words; nil: keywords alone count
}

// rollouts are what the model learns from.
func (t *training) rollouts() *grpo.Rollouts {
	rs := t.Rollouts()
	rs.Score, rs.Row = grpo.Each(Score(t.o.Reward)), t.row
	if t.o.Agent.On() {
		rs.Score, rs.Row = t.scoreEpisodes, t.episodeRow
	}
	return rs
}

// row is an answer of a validation as a line of samples.jsonl.
func (t *training) row(step int, task *grpo.Task, c rollout.Completion, s grpo.Score) any {
	of := task.Data.(*eval.Case)
	a := rollout.Answer{Text: c.Text, Tokens: len(c.Tokens), Reason: c.Reason}
	row := plainRow(of.Score(0, 0, a, t.o.Reward))
	row.Parts = s.Parts
	return struct {
		Step int `json:"step"` // of the weights that wrote it
		eval.Row
	}{step, row}
}

// load reads or makes the items, splits them, and encodes their prompts.
func (t *training) load() error {
	parts, err := t.o.Items(t)
	if err != nil {
		return err
	}
	var cases [3][]eval.Case
	for k, items := range parts {
		var left eval.Left
		if cases[k], left, err = t.o.Cases(&t.chat, ci.Part(k), items, t.Limit(t.o.Data.MaxPromptTokens)); err != nil {
			return err
		}
		t.left = t.left.And(left)
		if text := LeftOut(len(items), left.Of); text != "" {
			t.Say("%s: %s", t.o.Data.Train, text)
		}
	}
	if t.left.Count > 0 {
		t.Say("%s: %v", t.o.Data.Train, t.left)
	}
	t.Tasks, t.Held, t.test = t.tasks(cases[0]), t.tasks(cases[1]), cases[2]
	return t.check()
}

// Cases are the items of a part as prompts of at most limit tokens, and how many are longer.
func (o *Options) Cases(chat *rollout.Local, part ci.Part, items []ci.Item, limit int) ([]eval.Case, eval.Left, error) {
	var all []eval.Case
	var err error
	if o.Agent.On() {
		all, err = o.episodes(chat, items, o.Order(part))
	} else {
		all, err = eval.Cases(items, o.Data.Form, o.Order(part), o.way())
	}
	if err != nil {
		return nil, eval.Left{}, err
	}
	return eval.Fit(chat, all, limit)
}

// way is how the test prompts are answered.
func (o *Options) way() rollout.Conversation {
	return rollout.Conversation{Sampling: o.TestSampling(), OneDraw: true}
}

// TestSampling is how the answers to the test split are drawn: at the temperature of validation.
func (o *Options) TestSampling() rollout.Sampling {
	s := o.Sampling.Sampling
	s.Temperature = o.Validation.Temperature
	return s
}

// Order gives the seed of the order in which the prompt of a part's item i lists its attributes.
func (o *Options) Order(part ci.Part) func(i int) uint64 {
	return func(i int) uint64 { return ci.Order(o.Seed, part, i) }
}

// check refuses limits that leave nothing, and completions that the model has no positions for.
func (t *training) check() error {
	d, positions := t.o.Data, t.Model.Config.MaxPositions
	if len(t.Tasks) == 0 || len(t.Held) == 0 || len(t.test) == 0 && d.HasTest() {
		return fmt.Errorf("%s: prompts of at most %d tokens leave %d to train on, %d for validation and %d for the "+
			"test: want at least one of each; %d were dropped, the longest has %d tokens (data.max_prompt_tokens %d, "+
			"where 0 is no limit; the model takes %d tokens)", d.Train, t.Limit(d.MaxPromptTokens), len(t.Tasks), len(t.Held), len(t.test),
			t.left.Count,
			t.left.Longest, d.MaxPromptTokens, positions)
	}
	if err := t.checkTokens(); err != nil {
		return err
	}
	return grpo.CheckTasks(t.o.GRPO, t.o.Sampling.Sampling, positions, t.Tasks, t.Held, t.tasks(t.test))
}

// Items reads or makes the items of a run: those to train on, those for validation, and those for the test.
func (o *Options) Items(r run.Reporter) (parts [3][]ci.Item, err error) {
	d, say := o.Data, run.Listen(r).Say
	if o.Agent.makes() {
		return o.drawnItems(say)
	}
	read := func(name string) ([]ci.Item, error) {
		if name == embedded.Name {
			return ci.Synthesize(d.Scenarios, o.Seed^embeddedSeed), nil
		}
		return readItems(name, d.Items, say)
	}
	identity := func(item ci.Item) string {
		item.Source = ""
		return fmt.Sprint(item)
	}
	parts, err = rl.Read(d.Files, d.Parts, o.Seed, read, identity, run.Listen(r).Warn)
	if err != nil {
		return parts, err
	}
	sizes := "%s: %d items to train on, %d for validation, %d for the test"
	if d.Train.Are(embedded.Name) {
		sizes = "%s: %d distinct scenarios to train on, %d for validation and %d for the test"
	}
	say(sizes, d.Train, len(parts[0]), len(parts[1]), len(parts[2]))
	return parts, nil
}

func readItems(path, which string, say func(string, ...any)) ([]ci.Item, error) {
	items, report, err := ci.ReadItems(path, which)
	if err == nil {
		say("%s", report)
	}
	return items, err
}

// embeddedSeed makes the scenarios of ci-rl other ones than those that the embedded model was taught with.
const embeddedSeed = 0x63692d726c

// measure is the test split, and how it is measured.
func (t *training) measure() rl.Test[eval.Sample] {
	if t.o.Agent.On() {
		return t.measureEpisodes()
	}
	return rl.Test[eval.Sample]{Loop: &t.Loop, Size: len(t.test),
		Ask: func(ctx context.Context, tick func(done int)) ([]eval.Sample, error) {
			chat := t.chat
			chat.Tick = tick
			eval.SeedDraws(t.test, t.Seed^rl.Draws)
			return eval.Ask(ctx, &chat, t.test, t.o.Reward)
		},
		Row: func(s eval.Sample) any { return plainRow(s) },
		Read: func(i int, text []byte) (s eval.Sample, ofThisTest bool, err error) {
			var row eval.Row
			if err := json.Unmarshal(text, &row); err != nil {
				return s, false, err
			}
			c := &t.test[i]
			a := rollout.Answer{Text: row.Completion, Tokens: row.Tokens, Reason: row.Reason}
			return c.Score(i, 0, a, t.o.Reward), row.Item == c.Item.Source && row.Prompt.Plain == c.Text(), nil
		}}
}

// tally counts the answers to the test, nil without one.
func (t *training) tally(samples []eval.Sample) *eval.Report {
	if len(t.test) == 0 {
		return nil
	}
	return eval.NewReport(samples)
}

// plainRow is a sample's row with the prompt as plain text.
func plainRow(s eval.Sample) eval.Row {
	row := s.Row()
	row.Prompt = data.Text{Plain: s.Case.Text()}
	return row
}

// Sweeps are those of the command.
var Sweeps = recipe.NewSweeps(recipe.Sweeps[Options]{Spec: Spec, Example: "reward.restricted_weight=0.5,1,2", Split: "test",
	Columns: []string{"integrity", "utility", "complete", "reward"},
	Tested:  func(o *Options) bool { return o.Data.HasTest() },
	Run: func(ctx context.Context, o Options, r run.Reporter) error {
		_, err := Run(ctx, o, r)
		return err
	}})
