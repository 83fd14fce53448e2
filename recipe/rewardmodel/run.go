package rewardmodel

import (
	"context"
	"fmt"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/tokenizer"
	"github.com/posttrain/posttrain/train"
)

// Run trains a reward model on pairs: it loads model and pairs, trains, saves the best model and reports. A nil
// Reporter is silent.
func Run(ctx context.Context, o Options, reporter run.Reporter) (*recipe.Result, error) {
	r, err := o.open(reporter, false)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	set, err := load(ctx, r, o)
	if err != nil {
		return nil, err
	}
	return r.Learn(ctx, set, func(records []run.Record) string { return report(records, len(set.Held)) })
}

// open opens engine and model.
func (o *Options) open(reporter run.Reporter, dry bool) (*recipe.Run, error) {
	if err := Spec.Verify(o); err != nil {
		return nil, err
	}
	load := local.LoadAny
	if dry {
		load = local.LoadWeightless
	}
	return recipe.Open(recipe.Config{Base: &o.Base, Command: Command, Title: "Reward model", Load: o.withHead(load),
		Options: o, Dry: dry}, reporter)
}

// DryRun makes the run up to its first step without the weights of the model. Close it.
func (o Options) DryRun(ctx context.Context, reporter run.Reporter) (*recipe.DryRun, error) {
	r, err := o.open(reporter, true)
	if err != nil {
		return nil, err
	}
	set, err := load(ctx, r, o)
	return recipe.DryRunOf(r, "pairs", set, err)
}

// withHead loads a reward model, or a language model, which gets a new head.
func (o *Options) withHead(load recipe.Loader) recipe.Loader {
	return func(folder string) (*model.Model, *tokenizer.Tokenizer, error) {
		m, t, err := load(folder)
		if err == nil && m.Config.Head != nil {
			m.Release()
			return nil, nil, fmt.Errorf("%s: the head of %s is for scoring, not for training: want a language model, "+
				"or a reward model with one score", folder, m.Config.Class())
		}
		if err != nil || m.Config.Reward {
			return m, t, err
		}
		return local.ToReward(m, t, o.Seed), t, nil
	}
}

// load reads the pairs to train on and the held-out ones.
func load(ctx context.Context, r *recipe.Run, o Options) (*train.Dataset, error) {
	pairs, held, err := recipe.Load(ctx, r, o.Data.Source, recipe.Encoding[data.Preference]{
		Unit: "pairs",
		Read: func(name string) ([]data.Preference, error) {
			return o.Data.Pairs(r, name, o.Data.PreferenceOptions)
		},
		Encode: func(e *batch.Encoder, p data.Preference) (x train.Example, err error) {
			x.Source = p.Source
			if x.Gap, err = o.Loss.marginOf(p); err == nil {
				x.Group, err = e.Scored(p.Source, r.Model.Config.Pad, p.Prompt, p.Chosen, p.Rejected)
			}
			return x, err
		},
		Limit: func(name string, groups []batch.Group, _ int) ([]int, error) {
			return limit(r, name, groups, o.Data.MaxTokens)
		},
	})
	method := &train.Reward{Options: losses.BradleyTerry{Center: o.Loss.Center}}
	return &train.Dataset{Method: method, Examples: pairs, Held: held, Share: r.SharesPrompts(train.Groups(pairs))}, err
}

// marginOf is a pair's margin; 0 without margins.
func (l Loss) marginOf(p data.Preference) (float64, error) {
	switch {
	case l.Margin == "none":
		return 0, nil
	case !p.Scored:
		return 0, fmt.Errorf("%s: the pair has no scores: loss.margin scores wants them in every row", p.Source)
	}
	return l.MarginScale * (p.ChosenScore - p.RejectedScore), nil
}

// limit lists the pairs that are short enough for the model and data.max_tokens.
func limit(r *recipe.Run, path string, groups []batch.Group, maxTokens int) (keep []int, err error) {
	most := r.Model.Config.MaxPositions
	if maxTokens > 0 {
		most = min(most, maxTokens)
	}
	for i, g := range groups {
		if g.ScoredTokens() <= most {
			keep = append(keep, i)
		}
	}
	r.Say("%s: %d kept, %d dropped as longer than %d tokens", path, len(keep), len(groups)-len(keep), most)
	if len(keep) == 0 {
		return nil, fmt.Errorf("%s: no pair is left: all have more than %d tokens (data.max_tokens %d, where 0 is no "+
			"limit; the model takes %d tokens)", path, most, maxTokens, r.Model.Config.MaxPositions)
	}
	return keep, nil
}

// report says how often the chosen answer scores higher.
func report(records []run.Record, held int) string {
	accuracy, known := recipe.ChangeOf(records, train.MetricAccuracy)
	margin, _ := recipe.ChangeOf(records, train.MetricMargin)
	if !known {
		return ""
	}
	where, n := "training", 0
	if accuracy.Held {
		where, n = fmt.Sprintf("%d held-out", held), held
	}
	return fmt.Sprintf("On %s pairs the chosen answer scores higher in %s at the end, %.3f at the start; the mean "+
		"margin went from %.3f to %.3f.\n", where, recipe.Accuracy(accuracy.Last, n), accuracy.First, margin.First,
		margin.Last)
}
