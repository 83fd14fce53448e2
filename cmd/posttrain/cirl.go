package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/gomlx/compute"
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/run"
	"github.com/posttrain/posttrain/train"
)

func newCIRL(s streams) *cobra.Command {
	f := &trainFlags{command: config.CommandCIRL}
	cmd := &cobra.Command{
		Use:   "ci-rl",
		Short: "Teach contextual integrity by reinforcement learning (GRPO)",
		Long: "Teach a model to share what a task needs and to keep the rest to itself: GRPO on the contextual-integrity reward, which counts\n" +
			"required and restricted keywords in the model's answers. A test split is measured before and after. Without flags it trains the\n" +
			"embedded tiny model on embedded scenarios; --data takes the released dataset, or any file in its form.",
		Example: "  posttrain ci-rl\n" +
			"  posttrain ci-rl --config configs/ci-rl.yaml --model DIR --data dataset.json\n" +
			"  posttrain ci-rl --model DIR --data items.parquet --group-size 8 --kl none --max-steps 200\n" +
			"  posttrain ci-rl --resume runs/ci-rl-20260102-150405",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runCIRL(cmd.Context(), s, f, cmd) },
	}
	f.register(cmd)
	return cmd
}

// cirl is a CI-RL run on its way.
type cirl struct {
	*job
	config    *config.CIRL
	items     *ciSplits
	loop      *grpo.Loop
	sampler   *rollout.Cached
	reference []compute.Buffer // the weights that training starts from; nil without KL
}

// runCIRL loads, measures the test split, trains, measures it again, reports.
func runCIRL(ctx context.Context, s streams, f *trainFlags, cmd *cobra.Command) error {
	c, err := loadCIRL(f, cmd)
	if err != nil {
		return err
	}
	options := c.Train.Options()
	r := &cirl{job: newJob(s, f, options, c.Seed, c.Resolved(), "CI-RL"), config: c}
	if r.world, err = openWorld(c.Backend, c.Model, options); err != nil {
		return err
	}
	defer r.world.close()
	r.warn()
	if r.items, err = loadCISplits(r.job, c); err != nil {
		return err
	}
	if err := r.open(); err != nil {
		return err
	}
	defer r.close()
	before, err := r.before(ctx)
	if err != nil {
		return err
	}
	if err := r.train(ctx); err != nil {
		return err
	}
	return r.finish(ctx, before)
}

// loadCIRL makes up the config from file and flags.
func loadCIRL(f *trainFlags, cmd *cobra.Command) (*config.CIRL, error) {
	c, err := loadConfig(f, cmd, config.LoadCIRL)
	if err != nil {
		return nil, err
	}
	pinEngine(&c.Backend)
	return c, f.check(c.Resolved())
}

// open makes the run folder, or opens the one to go on with, and puts the model into the engine: once for learner and
// sampler, which share the weights, and once more for the reference where there is KL.
func (r *cirl) open() (err error) {
	if r.flags.resume != "" {
		err = r.openEarlier()
	} else {
		err = r.create()
	}
	if err != nil {
		return err
	}
	learner, err := train.NewLearner(r.world.engine, r.world.model, r.world.graph)
	if err != nil {
		return errors.Join(err, r.folder.Close())
	}
	if r.config.GRPO.NeedsReference() {
		if r.reference, err = rollout.Upload(r.world.engine, r.world.model); err != nil {
			learner.Close()
			return errors.Join(err, r.folder.Close())
		}
	}
	r.sampler = rollout.NewCached(r.world.engine, r.world.model.Config, learner.Weights, rollout.Options{Graph: r.world.graph, Decoder: r.world.tokenizer})
	r.loop = r.newLoop(learner)
	return nil
}

func (r *cirl) newLoop(l *train.Learner) *grpo.Loop {
	c := r.config
	return &grpo.Loop{
		Options: c.GRPO, Train: r.options, Sampling: c.Sampling, Reward: c.Reward, Validation: c.Validation,
		Learner: l, Sampler: r.sampler, Reference: r.reference, Tasks: r.items.train, Held: r.items.validation,
		Folder: r.folder, Seed: r.seed, ConfigHash: run.HashConfig(r.resolved),
		Export:   train.Exporter{Model: r.world.model, Tokenizer: r.world.tokenizer},
		OnNotice: func(line string) { r.progress.Notice(line) },
		OnStep:   func(step, total int, values map[string]float64) { r.progress.Step(step, worthTelling(values)) },
	}
}

// worthTelling are the metrics of a step that progress shows. The loss is not among them: it is about 0 at every step, since
// the advantages of a group are.
func worthTelling(values map[string]float64) map[string]float64 {
	told := map[string]float64{}
	for _, name := range []string{"reward", "complete", "tokens_per_second"} {
		if v, ok := values[name]; ok {
			told[name] = v
		}
	}
	return told
}

func (r *cirl) close() {
	r.sampler.Close()
	r.loop.Learner.Close()
	backend.FinalizeAll(r.reference...)
	r.folder.Close()
}

// train goes to the last step, from the start or from the newest checkpoint.
func (r *cirl) train(ctx context.Context) error {
	if err := r.resume(); err != nil {
		return err
	}
	r.progress = r.newProgress("step", r.loop.Step(), r.loop.Total())
	err := r.loop.Run(ctx)
	r.progress.Close()
	if errors.Is(err, train.ErrInterrupted) {
		return fmt.Errorf("%w at step %d of %d, saved: go on with %s", err, r.loop.Step(), r.loop.Total(), r.flags.again(r.folder.Dir))
	}
	return err
}

// resume loads the newest checkpoint of a resumed run; a run that was stopped before its first starts over.
func (r *cirl) resume() error {
	if r.flags.resume == "" {
		return nil
	}
	warnings, err := r.loop.Resume()
	for _, w := range warnings {
		fmt.Fprintln(r.err, "warning: "+string(w))
	}
	if err == nil {
		r.say("%s: going on after step %d of %d", r.folder.Dir, r.loop.Step(), r.loop.Total())
	}
	return err
}

// finish writes the best model and the picture, measures the test split with it, and reports.
func (r *cirl) finish(ctx context.Context, before *measurement) error {
	best, err := r.loop.LoadBest()
	if err != nil {
		return err
	}
	t, _, err := r.loop.Learner.Read()
	if err != nil {
		return err
	}
	err = r.folder.WriteModel(func(dir string) error { return r.loop.Export.Write(dir, t.Weights, r.world.saveDType(r.options)) })
	if err != nil {
		return err
	}
	if err := r.folder.WriteCurves(r.title + " (posttrain " + r.flags.command + ")"); err != nil {
		return err
	}
	after, err := r.after(ctx)
	if err != nil {
		return err
	}
	return r.report(best, before, after)
}
