package rl

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/scorer"
	"github.com/posttrain/posttrain/train"
)

// Result is what a run leaves. Before and After measure the test split, nil without one.
type Result struct {
	recipe.Result
	Before, After *Tally
}

// Run trains a model on the rewards of its own answers: it loads model and prompts, measures the test split, trains,
// measures the test split with the best model, and reports. A nil Reporter is silent.
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
	place := scorer.Caller{Cache: t.Folder.Path("replies.jsonl"), Warn: t.Warn}
	if t.reward, err = scorer.Open(t.o.Reward, place); err != nil {
		return nil, err
	}
	defer t.reward.Close()
	trainer := t.Trainer(t.rollouts())
	before, after, best, err := t.measure().Around(ctx, trainer)
	if err != nil {
		return nil, err
	}
	return t.report(trainer, best, t.tally(before), t.tally(after))
}

// DryRun makes the run up to its first step without the weights of the model. Every answer is as long as
// sampling.max_new_tokens allows. Close it.
func (o Options) DryRun(_ context.Context, r run.Reporter) (*recipe.DryRun, error) {
	t, err := o.open(r, true)
	if err != nil {
		return nil, err
	}
	d := &recipe.DryRun{Run: t.Run, Unit: "prompts"}
	if err = t.load(); err == nil {
		err = t.Count(d, t.rollouts, len(t.test))
	}
	return d.Or(err)
}

// open opens engine and model.
func (o Options) open(r run.Reporter, dry bool) (*training, error) {
	if err := Spec.Verify(&o); err != nil {
		return nil, err
	}
	t := &training{o: o}
	j, err := recipe.Open(recipe.Config{Base: &t.o.Base, Command: Command, Title: "GRPO", Samples: true, Options: &t.o,
		Dry: dry}, r)
	if err != nil {
		return nil, err
	}
	t.Loop = Loop{Run: j, Settings: t.o.settings(), Data: t.o.Data.Train.String()}
	return t, nil
}

// training is a run on its way.
type training struct {
	Loop
	o      Options
	reward scorer.Source
	test   []grpo.Task
}

// load reads the prompts, splits them, and encodes them.
func (t *training) load() error {
	parts, err := Read(t.o.Data.Files, t.o.Data.Parts, t.Seed, t.readPrompts,
		func(p records.Prompt) string { return fmt.Sprint(p.Text, p.Row) }, t.Warn)
	if err != nil {
		return err
	}
	for k, to := range []*[]grpo.Task{&t.Tasks, &t.Held, &t.test} {
		if *to, err = t.tasks(parts[k]); err != nil {
			return err
		}
	}
	if len(t.Tasks) == 0 || len(t.Held) == 0 || len(t.test) == 0 && t.o.Data.HasTest() {
		return fmt.Errorf("%s: prompts of at most %d tokens leave %d to train on, %d for validation and %d for the "+
			"test: want at least one of each (data.max_prompt_tokens %d, where 0 is no limit; the model takes %d tokens)",
			t.o.Data.Train, t.Limit(t.o.Data.MaxPromptTokens), len(t.Tasks), len(t.Held), len(t.test),
			t.o.Data.MaxPromptTokens, t.Model.Config.MaxPositions)
	}
	t.Say("%s: %d prompts to train on, %d for validation, %d for the test", t.o.Data.Train, len(t.Tasks), len(t.Held),
		len(t.test))
	return grpo.CheckTasks(t.o.GRPO, t.o.Sampling.Sampling, t.Model.Config.MaxPositions, t.Tasks, t.Held, t.test)
}

// rollouts are what the model learns from.
func (t *training) rollouts() *grpo.Rollouts {
	rs := t.Rollouts()
	rs.Score, rs.Weights, rs.Formless = t.score, t.o.weights(), true
	rs.Row = func(step int, task *grpo.Task, c rollout.Completion, s grpo.Score) any {
		return struct {
			Step int `json:"step"` // of the weights that wrote it
			answer
		}{step, lineOf(task, grpo.Answer{Completion: c, Score: s})}
	}
	return rs
}

// lineOf is an answer as a line.
func lineOf(task *grpo.Task, a grpo.Answer) answer {
	return answer{Source: task.Source, Prompt: task.Data.(*records.Prompt).Text, Completion: a.Text,
		Tokens: len(a.Tokens), Cut: a.Reason == rollout.Length, Reward: a.Reward, Rewards: a.Rewards,
		Missing: a.Missing}
}

// score asks the reward.
func (t *training) score(ctx context.Context, replies []grpo.Reply) ([]grpo.Score, error) {
	answers := make([]scorer.Answer, len(replies))
	for i, r := range replies {
		p := r.Task.Data.(*records.Prompt)
		answers[i] = scorer.Answer{Prompt: p.Text, Response: p.Text.Reply(r.Text), Source: p.Source, Row: p.Row}
	}
	all, err := scorer.All(ctx, t.reward, answers)
	scores := make([]grpo.Score, len(all))
	for i, s := range all {
		scores[i] = grpo.Score{Reward: s.Value, Rewards: s.Parts, Missing: s.Why, Parts: map[string]float64{}}
		for k, x := range s.Parts {
			scores[i].Parts[partName(t.o.Reward.Kinds()[k])] = x
		}
	}
	return scores, err
}

// partName is the metric of one of several rewards.
func partName(kind string) string { return "rewards/" + kind + "/mean" }

// measure is the test split, and how it is measured.
func (t *training) measure() Test[answer] {
	return Test[answer]{Loop: &t.Loop, Size: len(t.test),
		Ask: func(ctx context.Context, tick func(done int)) (lines []answer, err error) {
			answers, err := t.rollouts().Ask(ctx, t.test, t.Seed^Draws, tick)
			for i, a := range answers {
				lines = append(lines, lineOf(&t.test[i], a))
			}
			return lines, err
		},
		Row: func(a answer) any { return a },
		Read: func(i int, text []byte) (a answer, ofThisTest bool, err error) {
			err = json.Unmarshal(text, &a)
			task := &t.test[i]
			return a, a.Source == task.Source && a.Prompt.Equal(task.Data.(*records.Prompt).Text), err
		}}
}

// Tally is what a test came to.
type Tally struct {
	Reward   eval.Mean            `json:"reward"`
	Rewards  map[string]eval.Mean `json:"rewards,omitempty"` // of several kinds: each, without its weight
	Length   eval.Mean            `json:"tokens"`
	Unscored int                  `json:"unscored"` // answers that have no reward
}

// tally counts the answers to the test, nil without one.
func (t *training) tally(answers []answer) *Tally {
	if len(t.test) == 0 {
		return nil
	}
	all := &Tally{Rewards: map[string]eval.Mean{}}
	for i, a := range answers {
		if a.Missing != "" {
			all.Unscored++
			continue
		}
		all.Reward.Add(i, a.Reward)
		all.Length.Add(i, float64(a.Tokens))
		for k, x := range a.Rewards {
			kind := t.o.Reward.Kinds()[k]
			m := all.Rewards[kind]
			m.Add(i, x)
			all.Rewards[kind] = m
		}
	}
	return all
}

// report writes the summary, for programs and in words.
func (t *training) report(trainer *train.Trainer, best *run.Best, before, after *Tally) (*Result, error) {
	text := t.Head(trainer)
	if before != nil {
		text += fmt.Sprintf("Test of %d prompts, one completion each at temperature %v; in brackets the 95%% "+
			"intervals:\n", len(t.test), t.o.Validation.Temperature) + t.table(before, after)
	}
	result, err := t.Finish(trainer, best, text+t.WhichModel(best, trainer.Step()),
		t.Outcome(asAll(before), asAll(after)))
	if err != nil {
		return nil, err
	}
	return &Result{*result, before, after}, nil
}

// asAll is the place of a tally in summary.json, nil of none.
func asAll(t *Tally) any {
	if t == nil {
		return nil
	}
	return map[string]any{"all": t}
}

// table shows a test split before and after training, and says what the intervals prove.
func (t *training) table(before, after *Tally) string {
	text := Row("", "before", "after") + Row("mean reward", MeanCell(&before.Reward), MeanCell(&after.Reward))
	if len(before.Rewards) > 1 {
		for _, kind := range t.o.Reward.Kinds() {
			b, a := before.Rewards[kind], after.Rewards[kind]
			text += Row("  "+kind, MeanCell(&b), MeanCell(&a))
		}
	}
	text += Row("tokens", MeanCell(&before.Length), MeanCell(&after.Length))
	if n := max(before.Unscored, after.Unscored); n > 0 {
		text += fmt.Sprintf("Without a reward, and left out: %d answers before, %d after.\n", before.Unscored,
			after.Unscored)
	}
	return text + fmt.Sprintf("The mean reward %s.\n", Direction(OfMean(&before.Reward), OfMean(&after.Reward)))
}

// Runs are the sweeps of the command.
var Runs = recipe.NewSweeps(recipe.Sweeps[Options]{Spec: Spec, Example: "seed=1,2,3", Split: "test",
	Columns: []string{"reward", "tokens"},
	Tested:  func(o *Options) bool { return o.Data.HasTest() },
	Run: func(ctx context.Context, o Options, r run.Reporter) error {
		_, err := Run(ctx, o, r)
		return err
	}})
