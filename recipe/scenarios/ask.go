package scenarios

import (
	"context"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/cirl"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
)

// Set is scenarios to put to a model.
type Set struct {
	Items []ci.Item
	Order func(i int) uint64 // the seed of the order in which the prompt of item i lists its attributes
	What  string             // in words
}

// Read reads or makes the scenarios.
func (o *Options) Read(r run.Reporter) (Set, error) {
	switch {
	case o.Run != "":
		return o.readRun(r)
	case o.Data != "":
		return o.readFile(r)
	}
	s := Set{ci.Synthesize(o.N, o.Seed), func(i int) uint64 { return uint64(i) },
		fmt.Sprintf("%d synthetic scenarios", o.N)}
	if o.HeldOut {
		s.Items, s.What = ci.SynthesizeHeldOut(o.N, o.Seed), fmt.Sprintf("%d held-out synthetic scenarios", o.N)
	}
	return s, nil
}

// readRun reads the part of a ci-rl run.
func (o *Options) readRun(r run.Reporter) (Set, error) {
	c, err := cirl.Spec.Load(config.Input{Path: o.Run})
	if err != nil {
		return Set{}, err
	}
	if o.Split == "test" {
		r = nil // the sizes of the other parts are of no interest
	}
	items, err := c.Items(r)
	if err != nil {
		return Set{}, err
	}
	part := parts[o.Split]
	if len(items[part]) == 0 {
		return Set{}, fmt.Errorf("%s: the run has no test split (data.test_fraction 0)", o.Run)
	}
	what := fmt.Sprintf("%d %s scenarios of %s", len(items[part]), o.Split, o.Run)
	return Set{items[part], c.Order(part), what}, nil
}

// readFile reads the part of a file.
func (o *Options) readFile(r run.Reporter) (Set, error) {
	all, report, err := ci.ReadItems(o.Data, o.Items)
	if err != nil {
		return Set{}, err
	}
	run.Listen(r).Say("%s", report)
	train, validation, test := ci.Split(len(all), o.ValidationFraction, o.TestFraction, o.SplitSeed)
	what := fmt.Sprintf("%s split of seed %d", o.Split, o.SplitSeed)
	part := map[string][]int{"train": train, "validation": validation, "test": test}[o.Split]
	if o.Split == "all" {
		part = slices.Sorted(slices.Values(slices.Concat(train, validation, test)))
		what = "all"
	}
	if len(part) == 0 {
		return Set{}, fmt.Errorf("%s: the %s split has no items (validation_fraction %v and test_fraction %v of %d): "+
			"want other fractions, or split all", o.Data, o.Split, o.ValidationFraction, o.TestFraction, len(all))
	}
	if o.N > 0 {
		part = part[:min(o.N, len(part))]
	}
	what = fmt.Sprintf("%d of %d items of %s (%s)", len(part), len(all), o.Data, what)
	order := func(i int) uint64 { return ci.Order(o.SplitSeed, parts[o.Split], i) }
	return Set{data.Pick(all, part), order, what}, nil
}

// Cases puts scenarios into prompts, each to be answered n times.
func (o *Options) Cases(s Set, n int) ([]eval.Case, error) {
	return eval.Cases(s.Items, o.Form, s.Order, rollout.Conversation{Sampling: o.Sampling, Samples: n})
}

// Fit leaves out the prompts that a model, or the limit, does not take, and warns of them.
func (o *Options) Fit(m *local.Model, cases []eval.Case, r run.Reporter) ([]eval.Case, eval.Left, error) {
	positions := m.Model.Config.MaxPositions
	if err := o.CheckLength(positions); err != nil {
		return nil, eval.Left{}, err
	}
	limit := positions - 1
	if o.MaxPromptTokens > 0 {
		limit = min(limit, o.MaxPromptTokens)
	}
	cases, left, err := eval.Fit(m.Chat(nil), cases, limit)
	if err == nil {
		err = left.Err()
	}
	if err == nil && left.Count > 0 {
		r.Warn("%v", left)
	}
	return cases, left, err
}

// Ask shows progress while a chat answers. open gets the function that the chat calls with the number of cases done.
func (o *Options) Ask(
	ctx context.Context, r run.Reporter, cases []eval.Case, open func(tick func(done int)) (rollout.Chat, error),
) ([]eval.Sample, error) {
	bar := r.Progress("scenario", 0, len(cases))
	defer bar.Close()
	chat, err := open(func(done int) { bar.Step(done, nil) })
	if err != nil {
		return nil, err
	}
	samples, err := eval.Ask(ctx, chat, cases, o.Reward)
	if err != nil && ctx.Err() != nil {
		return nil, recipe.ErrInterrupted
	}
	return samples, err
}
