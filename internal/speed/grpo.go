package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gomlx/compute"
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/tokenizer"
	"github.com/posttrain/posttrain/train"
)

// groupOptions are the options of the comparison of reinforcement learning.
type groupOptions struct {
	options
	prompts       []int // tokens of a prompt
	groups, fresh int
	micro         int
	vllm          bool
	model, data   string // of real prompts
}

// klCoef is the weight of KL, as in the paper's released config; groupRate is the learning rate.
const klCoef, groupRate = 0.001, 1e-6

func newGRPO() *cobra.Command {
	o := &groupOptions{options: options{presets: []string{"5.4M"}}}
	cmd := newComparison(&o.options, "grpo", "A whole step of GRPO against TRL's GRPOTrainer with transformers' generate",
		func(preset string, out io.Writer) error {
			if o.model != "" {
				world, err := itemWorld(o.model, o.data, o.groups, o.fresh)
				if err != nil {
					return err
				}
				return o.compare(world, "CI-CoT prompts", out)
			}
			for _, length := range o.prompts {
				world, err := promptWorld(preset, o.groups, length, o.fresh)
				if err == nil {
					err = o.compare(world, fmt.Sprintf("%s, prompts of %d tokens", preset, length), out)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	flags := cmd.Flags()
	flags.IntSliceVar(&o.prompts, "prompt", []int{64, 256}, "tokens of a prompt")
	flags.IntVar(&o.groups, "groups", 8, "prompts")
	flags.IntVar(&o.Samples, "samples", 16, "samples of each")
	flags.IntVar(&o.fresh, "new", 64, "tokens of a sample")
	flags.IntVar(&o.micro, "micro", 0, "TRL's completions a forward pass; 0: all of a step")
	flags.StringVar(&o.model, "model", "", "model folder, instead of a preset: it answers contextual-integrity items")
	flags.StringVar(&o.data, "data", "", "file of these items, such as the released dataset.json")
	cmd.MarkFlagsRequiredTogether("model", "data")
	cmd.MarkFlagsMutuallyExclusive("model", "preset")
	cmd.MarkFlagsMutuallyExclusive("model", "prompt")
	flags.BoolVar(&o.vllm, "vllm", false, "vLLM samples for TRL, on a GPU")
	return cmd
}

// means are what the rounds of both sides must be close in: each samples for itself. The bounds are several times the
// variation that was seen between steps of 8 x 16 x 64 tokens.
var means = []struct {
	column
	bound float64
}{
	{medianOf("tokens", "%.0f", func(d did) float64 { return float64(d.Tokens) }), 0.05},
	{medianOf("reward", "%.4f", func(d did) float64 { return d.Reward }), 0.05},
	{medianOf("entropy", "%.3f", func(d did) float64 { return d.Entropy }), 0.02},
	{medianOf("gradient", "%.3f", func(d did) float64 { return d.Norm }), 0.15},
}

// compare compares whole steps in a world.
func (o *groupOptions) compare(world, what string, out io.Writer) error {
	args := []string{"--world", world, "--group", fmt.Sprint(o.Samples), "--micro", fmt.Sprint(o.micro), "--kl",
		fmt.Sprint(klCoef), "--rate", fmt.Sprint(groupRate)}
	if o.vllm {
		args = append(args, "--vllm")
	}
	sides := []launch{o.peer("TRL", "peer_grpo.py", args...), o.own("grpo", world)}
	return play(world, sides, func(sides []*side) error {
		all, err := o.alternate(sides, "step", math.Inf(1))
		if err != nil {
			return err
		}
		columns := []column{medianOf("rollout", "%.3f", func(d did) float64 { return d.Rollout }),
			medianOf("scoring", "%.3f", func(d did) float64 { return d.Scoring }),
			medianOf("training", "%.3f", func(d did) float64 { return d.Training })}
		for _, m := range means {
			columns = append(columns, m.column)
		}
		report(out, fmt.Sprintf("a step of GRPO, %s, %d prompts x %d answers of %d, %s", what, o.groups, o.Samples,
			o.fresh, o.dtype), all, columns...)
		return o.compareMeans(all)
	})
}

// compareMeans allows steps of fewer answers or tokens wider bounds: long answers differ as much as short ones.
func (o *groupOptions) compareMeans(all []*series) error {
	answers := float64(o.groups * o.Samples)
	wider := math.Sqrt(max(1, 8*16/answers, 8*16*64/(answers*float64(o.fresh))))
	for _, m := range means {
		if a, b := m.of(all[0]), m.of(all[1]); !(math.Abs(a-b) <= wider*m.bound*math.Abs(a)) {
			return fmt.Errorf("%s: %.4g on one side and %.4g on the other: they do not do the same thing", m.title, a, b)
		}
	}
	return nil
}

// pupil learns from groups with one update per rollout batch and the k3 estimate of KL.
type pupil struct {
	setup
	learner   *train.Learner
	sampler   *rollout.Cached
	trainer   *grpo.Trainer
	reference []compute.Buffer
	world     prompts
	steps     uint64
}

func newPupil(of opened) (_ worker, err error) {
	p := &pupil{setup: of.setup}
	if err := readJSON(of.dir, promptsFile, &p.world); err != nil {
		return nil, err
	}
	if p.learner, err = train.NewLearner(of.engine, of.model, of.graph()); err == nil {
		p.reference, err = p.learner.Upload(of.model)
	}
	if err != nil { // the process ends
		return nil, err
	}
	var decoder rollout.Decoder = words{}
	if _, err := os.Stat(filepath.Join(of.dir, "tokenizer.json")); err == nil {
		if decoder, err = tokenizer.Load(of.dir); err != nil {
			return nil, err
		}
	}
	p.sampler = rollout.NewCached(of.engine, of.model.Config, p.learner.Weights, rollout.Options{Graph: of.graph(),
		Decoder: decoder})
	o := grpo.DefaultOptions()
	o.Prompts, o.GroupSize, o.Updates, o.KL, o.KLCoef = len(p.world.Prompts), p.Samples, 1, grpo.K3, klCoef
	p.trainer = &grpo.Trainer{Learner: p.learner, Options: o}
	return p, nil
}

func (p *pupil) close() {
	p.sampler.Close()
	backend.FinalizeAll(p.reference...)
	p.learner.Close()
}

// words decodes like peer_grpo.py's tokenizer: to t2, t3, ..., and 0 is the end of a text.
type words struct{}

func (words) Decode(ids []int32, skipSpecial bool) string {
	var b strings.Builder
	for _, id := range ids {
		if id != 0 || !skipSpecial {
			fmt.Fprintf(&b, "t%d ", id)
		}
	}
	return strings.TrimSuffix(b.String(), " ")
}

// do is a whole step, whatever the word: rollout, scoring (rewards, advantages, the reference's log-probs), training.
func (p *pupil) do(string, int) (d did, err error) {
	begin := time.Now()
	p.steps++
	groups, err := p.roll(&d)
	if err != nil {
		return d, err
	}
	rolled := time.Now()
	logps, err := p.trainer.Measure(groups, p.reference)
	if err != nil {
		return d, err
	}
	for i := range groups {
		rewards := make([]float64, len(groups[i].Answers))
		for a, ids := range groups[i].Answers {
			rewards[a] = even(ids)
			d.Reward += rewards[a] / float64(len(groups)*len(rewards))
		}
		groups[i].Advantages, _ = grpo.Advantages(rewards, p.trainer.Options.Std)
		groups[i].Reference = logps[i]
	}
	scored, m := time.Now(), train.NewMetrics()
	rule := train.AdamW{Options: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, MaxNorm: 1}}
	if d.Norm, err = p.trainer.Update(groups, rule, groupRate, m); err != nil {
		return d, err
	}
	of := m.Means("")
	d.Loss, d.Entropy = of[grpo.MetricLoss], of[grpo.MetricEntropy]
	d.Rollout, d.Scoring = rolled.Sub(begin).Seconds(), scored.Sub(rolled).Seconds()
	d.Training = time.Since(scored).Seconds()
	return d, nil
}

// roll samples every prompt's answers. They end with token 0 or after New tokens.
func (p *pupil) roll(d *did) ([]grpo.Group, error) {
	var requests []rollout.Request
	sampling := rollout.Sampling{MaxNew: p.world.New, Temperature: 1}
	for i, prompt := range p.world.Prompts {
		r := rollout.Request{Sampling: sampling, Prompt: prompt, Seed: p.steps<<32 | uint64(i)}
		requests = append(requests, r.Samples(p.Samples)...)
	}
	completions, err := p.sampler.Sample(context.Background(), requests)
	groups := make([]grpo.Group, len(p.world.Prompts))
	for i, c := range completions {
		g := &groups[i/p.Samples]
		g.Prompt, g.Answers, g.Sampled = requests[i].Prompt, append(g.Answers, c.Tokens), append(g.Sampled, c.Logps)
		d.Tokens += len(c.Tokens)
	}
	return groups, err
}

// even is the reward: the share of even token ids, as in peer_grpo.py.
func even(ids []int32) float64 {
	n := 0.0
	for _, id := range ids {
		n += float64(1 - id%2)
	}
	return n / float64(len(ids))
}
