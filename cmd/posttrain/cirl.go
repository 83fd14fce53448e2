package main

import (
	cirlrecipe "github.com/posttrain/posttrain/recipe/cirl"

	"context"

	"github.com/gomlx/compute"
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/rollout"
)

func newCIRL(s streams) *cobra.Command {
	f := &trainFlags{command: cirlrecipe.Command, known: cirlFlags, kind: cirlrecipe.Spec.TypeOf}
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
	config    *cirlrecipe.Options
	items     *ciSplits
	loop      *grpo.Loop
	sampler   *rollout.Cached
	reference []compute.Buffer // the weights that training starts from; nil without KL
}

// runCIRL loads, measures the test split, trains, measures it again, reports.
func runCIRL(ctx context.Context, s streams, f *trainFlags, cmd *cobra.Command) error {
	c, err := loadConfig(f, cmd, cirlrecipe.Spec, func(c *cirlrecipe.Options) *string { return &c.Backend })
	if err != nil {
		return err
	}
	r := &cirl{job: newJob(s, f, c.Train, c.Seed, c.Resolved(), "CI-RL"), config: c}
	if err := r.openWorld(c.Backend, c.Model); err != nil {
		return err
	}
	defer r.world.close()
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
	if err := r.run(ctx, r.loop); err != nil {
		return err
	}
	return r.finish(ctx, before)
}

// open is the job's, with a sampler that shares the learner's weights and, where there is KL, the weights of the reference.
func (r *cirl) open() (err error) {
	if err := r.job.open(); err != nil {
		return err
	}
	if r.config.GRPO.NeedsReference() {
		if r.reference, err = rollout.Upload(r.world.engine, r.world.model); err != nil {
			r.job.close()
			return err
		}
	}
	r.sampler = rollout.NewCached(r.world.engine, r.world.model.Config, r.learner.Weights, rollout.Options{Graph: r.world.graph, Decoder: r.world.tokenizer})
	r.loop = r.newLoop()
	return nil
}

func (r *cirl) newLoop() *grpo.Loop {
	c := r.config
	return &grpo.Loop{
		Course:  r.course(worthTelling),
		Options: c.GRPO, Train: r.options, Sampling: c.Sampling, Score: grpo.CIScore(c.Reward), Validation: c.Validation,
		Sampler: r.sampler, Reference: r.reference, Tasks: r.items.train, Held: r.items.validation,
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
	backend.FinalizeAll(r.reference...)
	r.job.close()
}

// finish writes the best model and the picture, measures the test split with it, and reports.
func (r *cirl) finish(ctx context.Context, before *measurement) error {
	best, err := r.save(r.loop)
	if err != nil {
		return err
	}
	after, err := r.after(ctx)
	if err != nil {
		return err
	}
	return r.report(best, before, after)
}
