package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/train"
)

// samplingFlags choose a model and how it answers.
type samplingFlags struct {
	rollout.Sampling
	model, backend string
	answers        int
	prompt         string // form of a scenario's prompt; "": ci.PromptCompact
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

// conversation is a prompt to be answered, with draws of its own: number n of a seed's.
func (f *samplingFlags) conversation(prompt []data.Message, seed uint64, n int) rollout.Conversation {
	return rollout.Conversation{
		Sampling: f.Sampling, Messages: prompt, Samples: f.answers, Seed: drawSeed(seed, n),
	}
}

// drawSeed is the seed of prompt n's draws.
func drawSeed(seed uint64, n int) uint64 { return rand.New(rand.NewPCG(seed, uint64(n))).Uint64() }

// answered is a scenario with a model's answers.
type answered struct {
	item   ci.Item
	prompt []data.Message
	texts  []string
}

// answerScenarios lets a model answer every scenario f.answers times; tick is told how many are done.
func answerScenarios(ctx context.Context, items []ci.Item, f samplingFlags, seed uint64, tick func(done int)) ([]answered, error) {
	s, err := openSampler(f)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	kind := f.prompt
	if kind == "" {
		kind = ci.PromptCompact
	}
	out, conversations := make([]answered, len(items)), make([]rollout.Conversation, len(items))
	for i, item := range items {
		out[i] = answered{item: item, prompt: ci.Prompt(item, kind, uint64(i))}
		conversations[i] = f.conversation(out[i].prompt, seed, i)
	}
	answers, err := s.Chat(tick).Answer(ctx, conversations)
	if err != nil {
		return nil, stopped(ctx, err)
	}
	for i := range out {
		for _, a := range answers[i] {
			out[i].texts = append(out[i].texts, a.Text)
		}
	}
	return out, nil
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
