package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/train"
)

// samplingFlags choose a model and how it answers.
type samplingFlags struct {
	rollout.Sampling
	model, backend string
	answers        int
	prompt         string // form of a scenario's prompt
	length         *pflag.Flag
}

func (f *samplingFlags) register(cmd *cobra.Command, temperature float64) {
	f.answers = 1
	cmd.Flags().StringVar(&f.model, "model", "embedded", "model folder in Hugging Face layout, or embedded")
	cmd.Flags().StringVar(&f.backend, "backend", "auto", "auto, go, onnx[:LIB] or xla[:cpu|:cuda|:PLUGIN]")
	cmd.Flags().IntVar(&f.MaxNew, "max-new-tokens", 128, "most tokens of an answer")
	cmd.Flags().Float64Var(&f.Temperature, "temperature", temperature, "of the draws; 0 always takes the likeliest token")
	f.length = cmd.Flags().Lookup("max-new-tokens")
}

func (f *samplingFlags) check() error {
	if f.answers < 1 {
		return usageError{fmt.Errorf("--answers %d: want 1 or more", f.answers)}
	}
	for _, fault := range f.Check() {
		return usageError{fmt.Errorf("--%s %s", strings.ReplaceAll(fault.Key, "_", "-"), fault.Value+": "+fault.Problem)}
	}
	return nil
}

// follow takes what no flag gives from the configuration of a run.
func (f *samplingFlags) follow(s rollout.Sampling, given func(string) bool) {
	take(!given("max-new-tokens"), &s.MaxNew, f.MaxNew)
	take(!given("temperature"), &s.Temperature, f.Temperature)
	f.Sampling = s
}

// way is how a model answers every scenario.
func (f *samplingFlags) way() rollout.Conversation {
	return rollout.Conversation{Sampling: f.Sampling, Samples: f.answers}
}

// stopped is the error of work that a context may have ended.
func stopped(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return train.ErrInterrupted
	}
	return err
}

// openSampler opens the model that the flags choose.
func openSampler(f samplingFlags) (*local.Model, error) {
	m, err := local.Open(f.backend, f.model)
	if err != nil {
		return nil, err
	}
	if n := m.Model.Config.MaxPositions; f.length != nil && f.length.Changed && f.MaxNew >= n {
		m.Close()
		const text = "--max-new-tokens %d: the model has %d positions, for prompt and answer together: want fewer"
		return nil, usageError{fmt.Errorf(text, f.MaxNew, n)}
	}
	return m, nil
}
