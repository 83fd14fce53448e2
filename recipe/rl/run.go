package rl

import (
	"context"
	"fmt"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/train"
)

// trainable are the options of a command that learns from rewards: [Options] or [CI].
type trainable interface {
	Resolved() []byte
	Explain() string
	verify() error
	try(ctx context.Context) error // the reward, before the model is opened
	settings() Settings
	task(*loop) (task, error) // after the model is open
}

// task is what a command trains for.
type task interface {
	// readParts reads the questions to train on, those for validation and those for the test, with Tokens.
	readParts() (parts [3][]ask.Question, err error)
	// openJudge opens what scores answers. A server's judge keeps what it says in the file replies.
	openJudge(replies string) (ask.Judge, error)
	// prepare says what the judge's scores are: their weights, or that it knows no format.
	prepare(*grpo.Rollouts)
	// seedDraws gives the questions of a test their draws.
	seedDraws(test []ask.Question, seed uint64)
	// row is an answer with its score as a line of a file.
	row(*ask.Answer) eval.Row
	// compare counts the answers to the test before and after training: as a table, and for programs.
	compare(before, after []eval.Row) (table string, first, last any)
}

// Result is what a run leaves. Before and After measure the test split: a [*PromptReport] of grpo, an [*eval.Report] of
// ci-rl, nil without a test.
type Result struct {
	recipe.Result
	Before, After any
}

// Run trains a model on the rewards of its own answers: it loads model and prompts, measures the test split, trains,
// measures the test split with the best model, and reports. A nil Reporter is silent.
func Run(ctx context.Context, o Options, r run.Reporter) (*Result, error) { return learn(ctx, &o, r) }

// RunCI is [Run] with contextual-integrity items and their reward.
func RunCI(ctx context.Context, o CI, r run.Reporter) (*Result, error) { return learn(ctx, &o, r) }

func learn(ctx context.Context, c trainable, r run.Reporter) (*Result, error) {
	l, err := open(ctx, c, r, false)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if err := l.loadQuestions(); err != nil {
		return nil, err
	}
	closeAll, err := l.begin()
	if err != nil {
		return nil, err
	}
	defer closeAll()
	t, err := l.newTrainer()
	if err != nil {
		return nil, err
	}
	before, err := l.testBefore(ctx)
	if err != nil {
		return nil, err
	}
	best, err := l.trainToEnd(ctx, t)
	if err != nil {
		return nil, err
	}
	after, err := l.testAfter(ctx, best)
	if err != nil {
		return nil, err
	}
	return l.report(t, best, before, after)
}

// DryRun makes the run up to its first step without the weights of the model. Every answer is as long as
// sampling.max_new_tokens allows. Close it.
func (o Options) DryRun(ctx context.Context, r run.Reporter) (*recipe.DryRun, error) {
	return dryRun(ctx, &o, r)
}

// DryRun is as of [Options].
func (o CI) DryRun(ctx context.Context, r run.Reporter) (*recipe.DryRun, error) {
	return dryRun(ctx, &o, r)
}

func dryRun(ctx context.Context, c trainable, r run.Reporter) (*recipe.DryRun, error) {
	l, err := open(ctx, c, r, true)
	if err != nil {
		return nil, err
	}
	d := &recipe.DryRun{Run: l.Run, Unit: "prompts"}
	if err = l.loadQuestions(); err == nil {
		err = l.count(d)
	}
	return d.Or(err)
}

// open opens engine and model.
func open(ctx context.Context, c trainable, r run.Reporter, dry bool) (*loop, error) {
	err := c.verify()
	if err == nil && !dry {
		if err = c.try(ctx); ctx.Err() != nil {
			err = train.ErrInterrupted
		}
	}
	if err != nil {
		return nil, err
	}
	s := c.settings()
	opened, err := recipe.Open(recipe.Config{Base: s.Base, Command: s.Command, Title: s.Title, Samples: true, Options: c,
		Dry: dry}, r)
	if err != nil {
		return nil, err
	}
	opened.Choose(0, 0, "", false)
	l := &loop{Run: opened, set: s}
	if l.task, err = c.task(l); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// loadQuestions reads the questions, and refuses limits that leave nothing, and completions that the model has no positions for.
func (l *loop) loadQuestions() (err error) {
	if l.questions, err = l.task.readParts(); err != nil {
		return err
	}
	q, positions := l.questions, l.Model.Config.MaxPositions
	if len(q[ci.Train]) == 0 || len(q[ci.Validation]) == 0 || len(q[ci.Test]) == 0 && l.set.Parts.HasTest() {
		return fmt.Errorf("%s: prompts of at most %d tokens leave %d to train on, %d for validation and %d for the "+
			"test: want at least one of each; %d were dropped, the longest has %d tokens (data.max_prompt_tokens %d, "+
			"where 0 is no limit; the model takes %d tokens)", l.set.TrainFiles, l.promptLimit(), len(q[ci.Train]),
			len(q[ci.Validation]), len(q[ci.Test]), l.left.Count, l.left.Longest, l.set.MaxPromptTokens, positions)
	}
	if err := l.checkEpisodes(); err != nil {
		return err
	}
	return grpo.CheckTasks(*l.set.GRPO, l.set.Sampling.Sampling, positions, q[ci.Train], q[ci.Validation], q[ci.Test])
}

// checkEpisodes refuses prompts that leave an episode no token.
func (l *loop) checkEpisodes() error {
	if l.episodes.Turns == 0 {
		return nil
	}
	for _, part := range l.questions {
		for _, q := range part {
			if n := len(q.Tokens); n >= l.episodes.Tokens {
				return fmt.Errorf("agent.tokens %d: the prompt of %s has %d tokens: want more, or a lower "+
					"data.max_prompt_tokens to drop such prompts", l.episodes.Tokens, q.Source, n)
			}
		}
	}
	return nil
}

func (l *loop) promptLimit() int {
	return recipe.PromptLimit(l.Model.Config.MaxPositions, l.set.MaxPromptTokens)
}

// report writes the summary, for programs and in words.
func (l *loop) report(t *train.Trainer, best *run.Best, before, after []eval.Row) (*Result, error) {
	text, result := l.head(t), &Result{}
	if n := len(l.questions[ci.Test]); n > 0 {
		text += fmt.Sprintf("Test of %d prompts, one completion each at temperature %v; in brackets the 95%% "+
			"intervals:\n", n, l.set.Validation.Temperature)
		var table string
		table, result.Before, result.After = l.task.compare(before, after)
		text += table
	}
	finished, err := l.Finish(t, best, text+l.WhichModel(best, t.Step()),
		recipe.Outcome{Data: l.set.TrainFiles.String(),
			Test: recipe.Tests{Temperature: &l.set.Validation.Temperature, Before: result.Before, After: result.After}})
	if err != nil {
		return nil, err
	}
	result.Result = *finished
	return result, nil
}

// head is the first line of a summary.
func (l *loop) head(t *train.Trainer) string {
	return fmt.Sprintf("%s: %s of %d prompts with %d completions each, from %d training prompts, engine %s.\n", l.Title,
		recipe.Count(t.Step(), "step"), l.set.GRPO.Prompts, l.set.GRPO.GroupSize, len(l.questions[ci.Train]), l.Engine.Name)
}

// Sweeps are the sweeps of grpo.
var Sweeps = recipe.NewSweeps(recipe.Sweeps[Options]{Spec: Spec, Example: "seed=1,2,3", Split: "test",
	Columns: []string{"reward", "tokens"},
	Tested:  func(o *Options) bool { return o.Data.HasTest() }}, Run)

// CISweeps are the sweeps of ci-rl.
var CISweeps = recipe.NewSweeps(recipe.Sweeps[CI]{Spec: CISpec, Example: "reward.restricted_weight=0.5,1,2",
	Split: "test", Columns: []string{"integrity", "utility", "complete", "reward"},
	Tested: func(o *CI) bool { return o.Data.HasTest() }}, RunCI)
