package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/gomlx/compute"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// learning is how posttrain learns from groups in a comparison. The prompts are those of a world, each once.
type learning struct {
	backend    string
	bfloat16   bool
	checkpoint bool
	apart      bool // every answer repeats its prompt
	samples    int  // answers of a prompt
	rate       float64
}

func (l learning) graph() model.GraphOptions {
	return form{bfloat16: l.bfloat16, checkpoint: l.checkpoint}.options()
}

// klCoef is the weight of KL in the comparisons, that of the paper's released config; peer_grpo.py gets the same.
const klCoef = 0.001

// options are for one update per rollout batch and the k3 estimate of KL.
func (l learning) options(prompts int) grpo.Options {
	o := grpo.DefaultOptions()
	o.Prompts, o.GroupSize, o.Updates, o.KL, o.KLCoef = prompts, l.samples, 1, grpo.K3, klCoef
	return o
}

func newServeGroups() *cobra.Command {
	return newSide("one step of GRPO for each line read, as peer_grpo.py does it",
		&learning{backend: "auto", samples: 16, rate: 1e-6})
}

func (l *learning) command() string { return "serve-groups" }

func (l *learning) register(flags *pflag.FlagSet) {
	flags.StringVar(&l.backend, "backend", l.backend, "engine")
	flags.BoolVar(&l.bfloat16, "bfloat16", l.bfloat16, "compute in bfloat16")
	flags.BoolVar(&l.checkpoint, "checkpoint", l.checkpoint, "recompute layers in the backward pass")
	flags.BoolVar(&l.apart, "apart", l.apart, "every answer repeats its prompt")
	flags.IntVar(&l.samples, "samples", l.samples, "answers of a prompt")
	flags.Float64Var(&l.rate, "rate", l.rate, "learning rate")
}

// pupil learns from groups.
type pupil struct {
	learning
	engine    *backend.Engine
	learner   *train.Learner
	sampler   *rollout.Cached
	trainer   *grpo.Trainer
	reference []compute.Buffer
	world     *prompts
	vocab     int
	steps     uint64
	fixed     []grpo.Group // for updates without a rollout
}

// newPupil puts a world's model into an engine, which the pupil closes.
func newPupil(e *backend.Engine, dir string, l learning) (p *pupil, err error) {
	p = &pupil{learning: l, engine: e}
	if err := p.load(dir); err != nil {
		e.Close()
		return nil, err
	}
	c := p.learner.Config()
	p.vocab = c.VocabSize
	p.sampler = rollout.NewCached(e, c, p.learner.Weights, rollout.Options{Graph: l.graph(), Decoder: words{}})
	p.trainer = &grpo.Trainer{Learner: p.learner, Options: l.options(len(p.world.Prompts)), Apart: l.apart}
	return p, nil
}

// load reads the world and makes the policy and its reference.
func (p *pupil) load(dir string) (err error) {
	if p.world, err = readPrompts(dir); err != nil {
		return err
	}
	m, err := model.Load(dir)
	if err != nil {
		return err
	}
	if p.learner, err = train.NewLearner(p.engine, m, p.graph()); err != nil {
		return err
	}
	if p.reference, err = p.learner.Upload(m); err != nil {
		p.learner.Close()
	}
	return err
}

func (p *pupil) close() {
	p.sampler.Close()
	backend.FinalizeAll(p.reference...)
	p.learner.Close()
	p.engine.Close()
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

func (l *learning) serve(dir string, in io.Reader, out io.Writer) error {
	e, err := backend.Open(l.backend)
	if err != nil {
		return err
	}
	p, err := newPupil(e, dir, *l)
	if err != nil {
		return err
	}
	defer p.close()
	tokens := len(p.world.Prompts) * l.samples * p.world.New
	r := ready{Engine: p.engine.Name, Parameters: p.learner.Config().ParamCount(), Tokens: tokens}
	return obey(in, out, r, "step, update, measure, products or quit",
		map[string]work{"step": p.step, "update": p.update, "measure": p.measure, "products": p.products})
}

// step is a whole step: rollout, scoring (rewards, advantages, the reference's log-probs), training.
func (p *pupil) step(int) (d did, err error) {
	begin := time.Now()
	p.steps++
	groups, err := p.roll(&d)
	if err != nil {
		return d, err
	}
	rolled := time.Now()
	if err := p.score(groups, &d); err != nil {
		return d, err
	}
	scored := time.Now()
	if err := p.train(groups, &d); err != nil {
		return d, err
	}
	d.Rollout, d.Scoring = rolled.Sub(begin).Seconds(), scored.Sub(rolled).Seconds()
	d.Training = time.Since(scored).Seconds()
	return d, nil
}

// products is the time that the engine takes for a step's matrix products by weights alone. Each prompt is read once. The
// products of scoring and training are those of as many tokens as the engine wants at a time.
func (p *pupil) products(int) (d did, err error) {
	prompts, prompt := len(p.world.Prompts), len(p.world.Prompts[0])
	dtype := p.graph().ComputeType()
	sampling, err := alone{p.engine, *p.learner.Config(), p.graph()}.floor(prompts, prompt, p.samples, p.world.New)
	if err != nil {
		return d, err
	}
	slots := prompts * p.samples * p.world.New
	all := prompts*prompt + slots
	n := min(all, cmp.Or(p.engine.Wants.Tokens, floorTokens))
	times := float64(all) / float64(n)
	for _, one := range productsOf(p.learner.Config(), n, n*slots/all) {
		for backward := range 3 {
			seconds, err := one.fastest(p.engine, dtype, backward)
			if err != nil {
				return d, err
			}
			seconds *= float64(one.count) * times
			if d.Training += seconds; backward == 0 {
				d.Scoring += seconds
			}
		}
	}
	d.Rollout = sampling
	d.Seconds = d.Rollout + d.Scoring + d.Training
	return d, nil
}

// roll samples every prompt's answers. They end with token 0 or after New tokens.
func (p *pupil) roll(d *did) ([]grpo.Group, error) {
	var requests []rollout.Request
	sampling := rollout.Sampling{MaxNew: p.world.New, Temperature: 1}
	for i, prompt := range p.world.Prompts {
		r := rollout.Request{Sampling: sampling, Prompt: prompt, Seed: p.steps<<32 | uint64(i)}
		requests = append(requests, r.Samples(p.samples)...)
	}
	completions, err := p.sampler.Sample(context.Background(), requests)
	if err != nil {
		return nil, err
	}
	groups := make([]grpo.Group, len(p.world.Prompts))
	for i, c := range completions {
		g := &groups[i/p.samples]
		g.Prompt, g.Answers, g.Sampled = requests[i].Prompt, append(g.Answers, c.Tokens), append(g.Sampled, c.Logps)
		d.Tokens += len(c.Tokens)
	}
	return groups, nil
}

// score adds rewards, advantages and the reference's log-probs.
func (p *pupil) score(groups []grpo.Group, d *did) error {
	for i := range groups {
		rewards := make([]float64, len(groups[i].Answers))
		for a, ids := range groups[i].Answers {
			rewards[a] = even(ids)
			d.Reward += rewards[a] / float64(len(groups)*len(rewards))
		}
		groups[i].Advantages, _ = grpo.Advantages(rewards, p.trainer.Options.Std)
	}
	return p.refer(groups)
}

// even is the reward: the share of even token ids, as in peer_grpo.py.
func even(ids []int32) float64 {
	n := 0.0
	for _, id := range ids {
		n += float64(1 - id%2)
	}
	return n / float64(len(ids))
}

func (p *pupil) refer(groups []grpo.Group) error {
	logps, err := p.trainer.Measure(groups, p.reference)
	if err != nil {
		return err
	}
	for i := range groups {
		groups[i].Reference = logps[i]
	}
	return nil
}

// train is one update on all groups.
func (p *pupil) train(groups []grpo.Group, d *did) (err error) {
	rule := train.AdamW{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, MaxNorm: 1}
	m := train.NewMetrics()
	if d.Norm, err = p.trainer.Update(groups, rule, p.rate, m); err != nil {
		return err
	}
	means := m.Means("")
	d.Loss, d.KL, d.Entropy = means[grpo.MetricLoss], means[grpo.MetricKL], means[grpo.MetricEntropy]
	return nil
}

// update trains on the fixed groups.
func (p *pupil) update(int) (d did, err error) {
	if err := p.fix(); err != nil {
		return d, err
	}
	begin := time.Now()
	err = p.train(p.fixed, &d)
	d.Seconds = time.Since(begin).Seconds()
	d.Loss = d.Entropy // -log p of all answers; GRPO's loss is near 0 for any model while the ratio is 1
	return d, err
}

// measure returns the log-probs of the fixed answers' tokens, a row for every answer.
func (p *pupil) measure(int) (d did, err error) {
	if err := p.fix(); err != nil {
		return d, err
	}
	begin := time.Now()
	logps, err := p.trainer.Measure(p.fixed, nil)
	d.Seconds = time.Since(begin).Seconds()
	for _, g := range logps {
		d.Logps = append(d.Logps, g...)
	}
	return d, err
}

// fix makes the fixed groups, at the first call: random answers with random rewards.
func (p *pupil) fix() error {
	if p.fixed != nil {
		return nil
	}
	r := rand.New(rand.NewPCG(5, 5))
	groups := make([]grpo.Group, len(p.world.Prompts))
	for i := range groups {
		rewards := make([]float64, p.samples)
		groups[i].Group = batch.Group{Prompt: p.world.Prompts[i], Answers: make([][]int32, p.samples)}
		for a := range rewards {
			rewards[a] = r.Float64()
			for range p.world.New {
				groups[i].Answers[a] = append(groups[i].Answers[a], r.Int32N(int32(p.vocab)))
			}
		}
		groups[i].Advantages, _ = grpo.Advantages(rewards, p.trainer.Options.Std)
	}
	p.fixed = groups
	return p.refer(groups)
}
