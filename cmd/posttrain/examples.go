package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/train"
)

// This is what mappo and sft have in common beyond the job: examples to learn from, and train.Loop.

// limit applies the limits to the groups of a data set, and says what fell to them.
func (j *job) limit(path string, groups []batch.Group, o batch.Options, drift int) ([]int, error) {
	l := batch.Limit(groups, o, j.world.model.Config.MaxPositions)
	j.say("%s: %s", path, l)
	if drift > 0 {
		j.say("%s: %d completions merge with their prompt when tokenised together; they were tokenised apart", path, drift)
	}
	if len(l.Keep) == 0 {
		return nil, fmt.Errorf("%s: no row is left: %d are too long, %d have an empty answer (data.max_prompt_tokens %d, data.max_completion_tokens %d, data.max_tokens %d, where 0 is no limit; the model takes %d)",
			path, l.Dropped, l.Empty, o.MaxPromptTokens, o.MaxCompletionTokens, o.MaxTokens, j.world.model.Config.MaxPositions)
	}
	return l.Keep, nil
}

// shares decides whether prompts are shared in one row.
func (j *job) shares(groups []batch.Group) bool {
	switch j.options.SharePrefix {
	case "on":
		return true
	case "off":
		return false
	}
	return batch.SharePays(groups, j.options.Micro(), j.world.model.Config.HiddenSize)
}

// reference measures the log-probs of a set of pairs, or takes them from the run folder.
func (j *job) reference(ctx context.Context, name string, l *train.Learner, share bool, set *pairSet) error {
	layout := batch.Layout{Share: share, Pad: j.options.Micro()}
	j.say("reference log-probs of %d pairs", len(set.groups))
	bar := j.newProgress("pair", 0, len(set.groups))
	sums, cached, err := train.CachedPairSums(j.folder.Path(name), l, set.groups, layout, func(done int) error {
		bar.Step(done, nil)
		return context.Cause(ctx)
	})
	bar.Close()
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w during the reference pass; nothing was trained yet: go on with %s", train.ErrInterrupted, j.flags.again(j.folder.Dir))
	}
	if err != nil {
		return err
	}
	if cached {
		j.say("taken from %s", j.folder.Path(name))
	}
	set.method.Reference = sums
	return nil
}

// newLoop is the loop of mappo and sft.
func (j *job) newLoop(examples, heldOut *train.Examples) *train.Loop {
	return &train.Loop{Course: j.course(nil), Options: j.options, Train: *examples, Eval: heldOut}
}

// train runs the loop of mappo or sft, and reports.
func (j *job) train(ctx context.Context, l *train.Loop) error {
	if err := j.run(ctx, l); err != nil {
		return err
	}
	best, err := j.save(l)
	if err != nil {
		return err
	}
	records, err := j.folder.ReadMetrics()
	if err != nil {
		return err
	}
	return j.conclude(summary(j, l, best, records))
}
