package main

import (
	"github.com/posttrain/posttrain/embedded"
	"github.com/posttrain/posttrain/recipe/preference"
	"github.com/posttrain/posttrain/rollout/local"

	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/run"
	"github.com/posttrain/posttrain/train"
)

func newMappo(s streams) *cobra.Command {
	f := &trainFlags{command: preference.Command, known: mappoFlags}
	cmd := &cobra.Command{
		Use:   "mappo",
		Short: "Train on preference pairs with MaPPO, or plain DPO, IPO, SimPO or CPO",
		Long: "Train a model on preference pairs. The loss is one of the DPO family; with the MaPPO prior (arXiv 2507.21183) the rejected\n" +
			"answer's term is scaled by the pair's reward gap. Without flags it trains the embedded tiny model on embedded pairs.",
		Example: "  posttrain mappo\n" +
			"  posttrain mappo --prior none --out runs/dpo\n" +
			"  posttrain mappo --config configs/mappo-paper.yaml --model DIR --data pairs.jsonl\n" +
			"  posttrain mappo --resume runs/mappo-20260102-150405",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runMappo(cmd.Context(), s, f, cmd) },
	}
	f.register(cmd)
	return cmd
}

// runMappo loads, measures the reference, trains, reports.
func runMappo(ctx context.Context, s streams, f *trainFlags, cmd *cobra.Command) error {
	c, err := loadConfig(f, cmd, preference.Spec, func(c *preference.Options) *string { return &c.Backend })
	if err != nil {
		return err
	}
	j := newJob(s, f, c.Train, c.Seed, c.Resolved(), title(c))
	if !c.Loss.ReferenceFree() && c.Reference == "" {
		j.beta = c.Loss.Beta
	}
	if err := j.openWorld(c.Backend, c.Model); err != nil {
		return err
	}
	defer j.world.close()
	reference, err := loadReference(j, c)
	if err != nil {
		return err
	}
	pairs, heldOut, err := loadPairs(j, c)
	if err != nil {
		return err
	}
	if err := j.open(); err != nil {
		return err
	}
	defer j.close()
	l := j.newLoop(pairs.examples(), heldOut.examples())
	l.Share = j.shares(pairs.groups)
	if err := measureReference(ctx, j, c, reference, l.Share, pairs, heldOut); err != nil {
		return err
	}
	return j.train(ctx, l)
}

// title names the run in its picture and summary: MaPPO-DPO, DPO, …
func title(c *preference.Options) string { return c.Loss.Name() }

// pairSet is a set of encoded pairs with the method that trains on it.
type pairSet struct {
	method  *train.Preference
	groups  []batch.Group
	sources []string
}

func (p *pairSet) examples() *train.Examples {
	if p == nil {
		return nil
	}
	return &train.Examples{Method: p.method, Groups: p.groups, Sources: p.sources}
}

// loadPairs reads the training pairs and the held-out ones (nil where there are none). Whether scores pass through the
// logistic function is decided for both together: losses of differently scaled rewards could not be compared.
func loadPairs(j *job, c *preference.Options) (pairs, heldOut *pairSet, err error) {
	first, err := readPairs(j, c, c.Data.Train)
	if err != nil {
		return nil, nil, err
	}
	if c.Data.Eval == "" {
		all, err := encodePairs(j, c, c.Data.Train, first, c.Data.RewardOptions)
		if err != nil || c.Data.EvalFraction == 0 {
			return all, nil, err
		}
		return splitPairs(c, all)
	}
	second, err := readPairs(j, c, c.Data.Eval)
	if err != nil {
		return nil, nil, err
	}
	rewards := c.Data.RewardOptions.Over(first, second)
	if pairs, err = encodePairs(j, c, c.Data.Train, first, rewards); err != nil {
		return nil, nil, err
	}
	heldOut, err = encodePairs(j, c, c.Data.Eval, second, rewards)
	return pairs, heldOut, err
}

// splitPairs holds a share of the pairs out.
func splitPairs(c *preference.Options, all *pairSet) (pairs, heldOut *pairSet, err error) {
	first, second := data.Split(len(all.groups), c.Data.EvalFraction, c.Seed)
	if len(first) == 0 || len(second) == 0 {
		return nil, nil, fmt.Errorf("data.eval_fraction %v: of %d pairs it leaves %d to train on and %d to evaluate on: want at least one of each",
			c.Data.EvalFraction, len(all.groups), len(first), len(second))
	}
	return all.subset(first), all.subset(second), nil
}

func (p *pairSet) subset(keep []int) *pairSet {
	q := &pairSet{method: &train.Preference{Options: p.method.Options}}
	for _, i := range keep {
		q.groups, q.sources = append(q.groups, p.groups[i]), append(q.sources, p.sources[i])
		if p.method.Gaps != nil {
			q.method.Gaps = append(q.method.Gaps, p.method.Gaps[i])
		}
	}
	return q
}

// encodePairs makes the prior's gaps (none where there are no scores and the loss needs none), encodes, and applies the
// limits.
func encodePairs(j *job, c *preference.Options, path string, pairs []data.Preference, rewards data.RewardOptions) (*pairSet, error) {
	all := &pairSet{method: &train.Preference{Options: c.Loss}}
	if c.Loss.NeedsGap() || allScored(pairs) {
		kept, gaps, report, err := data.Prior(pairs, rewards)
		if err != nil {
			return nil, err
		}
		j.say("%s", report)
		pairs, all.method.Gaps = kept, gaps
	}
	e := batch.Encoder{Tokenizer: j.world.tokenizer}
	for _, p := range pairs {
		g, err := e.Preference(p)
		if err != nil {
			return nil, err
		}
		all.groups, all.sources = append(all.groups, g), append(all.sources, p.Source)
	}
	keep, err := j.limit(path, all.groups, c.Data.Options, e.Drift)
	if err != nil {
		return nil, err
	}
	return all.subset(keep), nil
}

// readPairs reads a file of pairs, or the embedded ones.
func readPairs(j *job, c *preference.Options, path string) (pairs []data.Preference, err error) {
	var report *data.Report
	if path == embedded.Name {
		pairs, report, err = data.ReadPreferencesFS(embedded.Files, embedded.Pairs, c.Data.PreferenceOptions)
	} else {
		pairs, report, err = data.ReadPreferences(path, c.Data.PreferenceOptions)
	}
	if err == nil {
		j.say("%s", report)
	}
	return pairs, err
}

func allScored(pairs []data.Preference) bool {
	for _, p := range pairs {
		if !p.Scored {
			return false
		}
	}
	return true
}

// loadReference loads the reference model where the config names another than the model itself, nil where not.
func loadReference(j *job, c *preference.Options) (*model.Model, error) {
	if c.Reference == "" {
		return nil, nil
	}
	m, _, err := local.Load(c.Reference)
	if err == nil && m.Config.VocabSize != j.world.model.Config.VocabSize {
		err = fmt.Errorf("reference %s: its vocabulary has %d tokens, the model's %d: they must be the same", c.Reference, m.Config.VocabSize, j.world.model.Config.VocabSize)
	}
	return m, err
}

// measureReference computes the reference's log-probs of all pairs, once, ahead of training; reference-free losses need
// none.
func measureReference(ctx context.Context, j *job, c *preference.Options, reference *model.Model, share bool, pairs, heldOut *pairSet) (err error) {
	if c.Loss.ReferenceFree() {
		return nil
	}
	learner := j.learner
	if reference == nil {
		pairs.method.Tolerance = j.world.tolerance()
	} else {
		if learner, err = train.NewLearner(j.world.engine, reference, j.world.graph); err != nil {
			return err
		}
		defer learner.Close()
	}
	if err := j.reference(ctx, run.ReferenceName, learner, share, pairs); err != nil || heldOut == nil {
		return err
	}
	return j.reference(ctx, run.ReferenceEvalName, learner, share, heldOut)
}
