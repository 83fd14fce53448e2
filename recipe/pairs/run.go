package pairs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/best"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// Result is the pairs.
type Result struct {
	Pairs   []data.Preference
	Summary string // in words
}

// String gives the summary.
func (r *Result) String() string { return r.Summary }

// Run lets a model answer prompts, scores the answers, pairs the best with the worst, and writes the pairs to
// Options.Out. For prompts of a file, answers and scores are kept beside it until all are there: an interrupted run
// continues with the same options. A nil Reporter is silent.
func Run(ctx context.Context, o Options, r run.Reporter) (*Result, error) {
	if err := Spec.Verify(&o); err != nil {
		return nil, err
	}
	if o.Input == "" {
		return pairScenarios(ctx, o, r)
	}
	p := &pairing{Reporter: run.Listen(r), o: o}
	if err := p.read(); err != nil {
		return nil, err
	}
	source, err := scorer.Open(o.Reward, scorer.Place{Cache: o.Out + ".replies", Warn: p.Warn})
	if err != nil {
		return nil, err
	}
	defer source.Close()
	if err := p.sample(ctx); err != nil {
		return nil, err
	}
	if err := p.score(ctx, source); err != nil {
		return nil, err
	}
	return p.conclude()
}

// pairScenarios pairs answers to synthetic scenarios.
func pairScenarios(ctx context.Context, o Options, r run.Reporter) (*Result, error) {
	b := best.Defaults()
	b.Model, b.Adapter, b.CacheGB, b.Backend, b.Seed = o.Model, o.Adapter, o.CacheGB, o.Backend, o.Seed
	b.N, b.HeldOut, b.Answers, b.Sampling, b.Out, b.Chat = o.N, o.HeldOut, o.Answers, o.Sampling, o.Out, o.Template
	b.Reward.Format, b.Reward.Match = o.Reward.CI.Format, o.Reward.CI.Match
	result, err := best.Pairs(ctx, b, r)
	if err != nil {
		return nil, err
	}
	return &Result{Pairs: result.Pairs, Summary: result.Summary}, nil
}

// pairing is a run on the prompts of a file.
type pairing struct {
	run.Reporter
	o       Options
	prompts []data.PromptRow
	groups  []scorer.Group // prompts with their answers
	tooLong int            // prompts without, since they do not fit the model
	kept    *scorer.Kept
	drawn   *scorer.Drawn
}

// read reads the prompts.
func (p *pairing) read() error {
	prompts, report, err := data.ReadPrompts(p.o.Input)
	if err != nil {
		return err
	}
	p.Say("%s", report)
	for i := range prompts {
		if t := &prompts[i].Prompt; p.o.Chat && !t.IsChat() {
			*t = data.Text{Messages: []data.Message{{Role: "user", Content: t.Plain}}}
		}
	}
	p.prompts = prompts
	return p.checkTemplate()
}

// checkTemplate refuses settings of the chat template where no prompt is a conversation.
func (p *pairing) checkTemplate() error {
	settings, err := p.o.Template.Identify()
	isChat := func(row data.PromptRow) bool { return row.Prompt.IsChat() }
	if err == nil && settings != "" && !slices.ContainsFunc(p.prompts, isChat) {
		err = fmt.Errorf("%s: the prompts are plain text, which has no chat template: add chat, or remove "+
			"chat_template", p.o.Input)
	}
	return err
}

// score scores the answers that have no score yet.
func (p *pairing) score(ctx context.Context, source scorer.Source) (err error) {
	all := scorer.Answers(p.groups)
	if p.kept, err = scorer.Keep(p.o.Out+".scores", p.o.Reward, all, p.o.Answers); err != nil {
		return err
	}
	if n := len(p.kept.Scores); n > 0 {
		p.Say("%s: continuing after %d of %d answers", p.kept.Path(), n, len(all))
	}
	bar := p.Progress("answer", len(p.kept.Scores), len(all))
	defer bar.Close()
	err = p.kept.Score(ctx, source, func(done int) { bar.Step(done, nil) })
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %d of %d answers are scored; the same command continues", recipe.ErrInterrupted,
			len(p.kept.Scores), len(all))
	}
	return errors.Join(err, p.kept.Close())
}

// conclude writes the files.
func (p *pairing) conclude() (*Result, error) {
	summary := ""
	if p.o.Keep != "" {
		all := scorer.Table(p.groups, p.kept.Scores)
		if err := data.WriteAnswers(p.o.Keep, all); err != nil {
			return nil, err
		}
		summary = fmt.Sprintf("%s: the answers to %d prompts with their scores\n", p.o.Keep, len(all))
	}
	pairs, tally, err := scorer.Pairs(p.groups, p.kept.Scores)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.o.Input, err)
	}
	if err := data.WritePreferences(p.o.Out, pairs); err != nil {
		return nil, err
	}
	summary = fmt.Sprintf("%s: %s\n%s", p.o.Out, tally, summary)
	if p.tooLong > 0 {
		summary += fmt.Sprintf("%d prompts are too long for the model and have no answers\n", p.tooLong)
	}
	if _, why := p.kept.Unscored(); why != "" {
		summary += fmt.Sprintf("the last answer without a score: %s\n", why)
	}
	if _, _, report, err := data.Prior(pairs, data.DefaultRewardOptions()); err == nil {
		summary += report.String() + "\n"
		if warning := report.Warning(); warning != "" {
			summary += "warning: " + warning + "\n"
		}
	}
	return &Result{Pairs: pairs, Summary: summary}, errors.Join(p.kept.Remove(), p.drawn.Remove())
}
