package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/gomlx/compute"
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// samplingFlags choose a model and how it answers.
type samplingFlags struct {
	model, backend string
	answers        int
	maxNew         int
	temperature    float64
}

func (f *samplingFlags) register(cmd *cobra.Command, temperature float64) {
	f.answers = 1
	cmd.Flags().StringVar(&f.model, "model", "embedded", "model folder in Hugging Face layout, or embedded")
	cmd.Flags().StringVar(&f.backend, "backend", "auto", "auto, go, onnx[:LIB] or xla[:cpu|:cuda|:PLUGIN]")
	cmd.Flags().IntVar(&f.maxNew, "max-new-tokens", 128, "most tokens of an answer")
	cmd.Flags().Float64Var(&f.temperature, "temperature", temperature, "of the draws; 0 always takes the likeliest token")
}

// check refuses what no sampling can do.
func (f *samplingFlags) check() error {
	switch {
	case f.answers < 1:
		return usageError{fmt.Errorf("--answers %d: want 1 or more", f.answers)}
	case f.maxNew < 1:
		return usageError{fmt.Errorf("--max-new-tokens %d: want 1 or more", f.maxNew)}
	case !(f.temperature >= 0) || math.IsInf(f.temperature, 0):
		return usageError{fmt.Errorf("--temperature %v: want a number, 0 or more", f.temperature)}
	}
	return nil
}

// answered is a scenario with a model's answers.
type answered struct {
	item   data.CIItem
	prompt []data.Message
	texts  []string
}

// answerScenarios lets a model answer every scenario f.answers times; tick is told how many are done.
func answerScenarios(ctx context.Context, items []data.CIItem, f samplingFlags, seed uint64, tick func(done int)) ([]answered, error) {
	s, err := openSampler(f)
	if err != nil {
		return nil, err
	}
	defer s.close()
	together := max(1, 64/f.answers) // scenarios a call: enough to fill a batch, few enough that Ctrl-C is heard
	var out []answered
	for at := 0; at < len(items); at += together {
		part, err := s.answer(ctx, items[at:min(at+together, len(items))], f, seed, at)
		switch {
		case context.Cause(ctx) != nil:
			return nil, train.ErrInterrupted
		case err != nil:
			return nil, err
		}
		out = append(out, part...)
		tick(len(out))
	}
	return out, nil
}

// sampler is a model that answers.
type sampler struct {
	*world
	rollout *rollout.Cached
	weights []compute.Buffer
}

func openSampler(f samplingFlags) (*sampler, error) {
	w, err := openWorld(f.backend, f.model, train.Options{DType: "auto"})
	if err != nil {
		return nil, err
	}
	weights, err := rollout.Upload(w.engine, w.model)
	if err != nil {
		w.close()
		return nil, err
	}
	live := func() []compute.Buffer { return weights }
	return &sampler{w, rollout.NewCached(w.engine, w.model.Config, live, rollout.Options{Graph: w.graph, Decoder: w.tokenizer}), weights}, nil
}

func (s *sampler) close() {
	s.rollout.Close()
	backend.FinalizeAll(s.weights...)
	s.world.close()
}

// answer samples the answers to some scenarios, the first of which is number first.
func (s *sampler) answer(ctx context.Context, items []data.CIItem, f samplingFlags, seed uint64, first int) ([]answered, error) {
	e := batch.Encoder{Tokenizer: s.tokenizer}
	var out []answered
	var requests []rollout.Request
	for i, item := range items {
		n := uint64(first + i)
		a := answered{item: item, prompt: data.Prompt(item, n)}
		ids, err := e.Prompt(data.Text{Messages: a.prompt})
		if err != nil {
			return nil, err
		}
		r := rollout.Request{Prompt: ids, MaxNew: f.maxNew, Temperature: f.temperature, Seed: rand.New(rand.NewPCG(seed, n)).Uint64()}
		requests = append(requests, r.Samples(f.answers)...)
		out = append(out, a)
	}
	completions, err := s.rollout.Sample(ctx, requests)
	if err != nil {
		return nil, err
	}
	for i, c := range completions {
		a := &out[i/f.answers]
		a.texts = append(a.texts, c.Text)
	}
	return out, nil
}
