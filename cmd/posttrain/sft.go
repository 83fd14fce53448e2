package main

import (
	"github.com/posttrain/posttrain/embedded"
	"github.com/posttrain/posttrain/recipe/sft"

	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/train"
)

func newSFT(s streams) *cobra.Command {
	f := &trainFlags{command: sft.Command, known: sftFlags}
	cmd := &cobra.Command{
		Use:   "sft",
		Short: "Fine-tune on demonstrations: messages, prompt and completion, or text",
		Example: "  posttrain sft\n" +
			"  posttrain sft --model DIR --data chat.jsonl --set data.loss_on=all\n" +
			"  posttrain sft --resume runs/sft-20260102-150405",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSFT(cmd.Context(), s, f, cmd) },
	}
	f.register(cmd)
	return cmd
}

// runSFT loads, trains, reports.
func runSFT(ctx context.Context, s streams, f *trainFlags, cmd *cobra.Command) error {
	c, err := loadConfig(f, cmd, sft.Spec, func(c *sft.Options) *string { return &c.Backend })
	if err != nil {
		return err
	}
	j := newJob(s, f, c.Train, c.Seed, c.Resolved(), "SFT")
	if err := j.openWorld(c.Backend, c.Model); err != nil {
		return err
	}
	defer j.world.close()
	demos, heldOut, err := loadDemonstrations(j, c)
	if err != nil {
		return err
	}
	if err := j.open(); err != nil {
		return err
	}
	defer j.close()
	return j.train(ctx, j.newLoop(demos, heldOut))
}

// embeddedDemonstrations is how many scenarios the embedded set has.
const embeddedDemonstrations = 4000

// loadDemonstrations reads the training demonstrations and the held-out ones (nil where there are none).
func loadDemonstrations(j *job, c *sft.Options) (demos, heldOut *train.Examples, err error) {
	groups, sources, err := encodeDemonstrations(j, c, c.Data.Train)
	if err != nil {
		return nil, nil, err
	}
	if c.Data.Eval != "" {
		g, s, err := encodeDemonstrations(j, c, c.Data.Eval)
		return sftExamples(groups, sources), sftExamples(g, s), err
	}
	if c.Data.EvalFraction == 0 {
		return sftExamples(groups, sources), nil, nil
	}
	first, second := data.Split(len(groups), c.Data.EvalFraction, c.Seed)
	if len(first) == 0 || len(second) == 0 {
		return nil, nil, fmt.Errorf("data.eval_fraction %v: of %d demonstrations it leaves %d to train on and %d to evaluate on: want at least one of each",
			c.Data.EvalFraction, len(groups), len(first), len(second))
	}
	return sftExamples(data.Pick(groups, first), data.Pick(sources, first)), sftExamples(data.Pick(groups, second), data.Pick(sources, second)), nil
}

func sftExamples(groups []batch.Group, sources []string) *train.Examples {
	return &train.Examples{Method: &train.SFT{Groups: groups}, Groups: groups, Sources: sources}
}

// encodeDemonstrations reads, encodes and applies the limits.
func encodeDemonstrations(j *job, c *sft.Options, path string) ([]batch.Group, []string, error) {
	demos, err := readDemonstrations(j, path, c.Seed)
	if err != nil {
		return nil, nil, err
	}
	e := batch.Encoder{Tokenizer: j.world.tokenizer}
	var groups []batch.Group
	var sources []string
	for _, d := range demos {
		g, err := e.Demonstration(d, c.Data.LossOn == "all")
		if err != nil {
			return nil, nil, err
		}
		groups, sources = append(groups, g), append(sources, d.Source)
	}
	keep, err := j.limit(path, groups, c.Data.Options, e.Drift)
	if err != nil {
		return nil, nil, err
	}
	return data.Pick(groups, keep), data.Pick(sources, keep), nil
}

// readDemonstrations reads a file, or makes the embedded scenarios' ideal completions.
func readDemonstrations(j *job, path string, seed uint64) ([]data.Demonstration, error) {
	if path == embedded.Name {
		j.say("embedded: %d synthetic contextual-integrity scenarios", embeddedDemonstrations)
		return ci.Demonstrations(ci.Synthesize(embeddedDemonstrations, seed), ci.Flaws{}, seed), nil
	}
	demos, report, err := data.ReadDemonstrations(path)
	if err != nil {
		return nil, err
	}
	j.say("%s", report)
	return demos, nil
}
