package rl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/fleet"
	"github.com/posttrain/posttrain/train"
)

// Sampling says how completions are drawn, and what their cache of keys and values may take, in gigabytes.
type Sampling struct {
	rollout.Sampling `yaml:",inline" defaults:"max_new_tokens=2048 temperature=1" paper:"max_new_tokens=2048 temperature=1 top_k=0 top_p=0 min_p=0 stop="`
	CacheGB          float64 `yaml:"cache_gb,omitempty" want:">=0" zero:"a quarter of the memory" help:"most gigabytes of the cache of keys and values; 0: a quarter of the memory"`
}

// Check refuses draws that cannot differ: a group of equal completions teaches nothing.
func (s Sampling) Check() []fault.Fault { return CheckDraws(s.Sampling) }

// CheckDraws refuses draws that cannot differ.
func CheckDraws(s rollout.Sampling) []fault.Fault {
	return s.CheckVaried("all completions of a prompt would be the same, and their advantages 0: want ")
}

// Unused are the keys of train.Options about batches of examples and their evaluation, which the sections grpo and
// validation settle.
var Unused = []string{"train.batch_size", "train.micro_batch_size", "train.share_prefix", "train.eval_every",
	"train.eval_metric", "train.patience", "train.show_samples"}

// Settings are what the loop reads of a command's options.
type Settings struct {
	Command, Title string
	Shown          []string // metrics of the progress, besides the reward

	Base       *recipe.Base
	Sampling   *Sampling
	Rollout    *fleet.Options
	GRPO       *grpo.Options
	Validation *grpo.ValidationOptions

	recipe.Files
	Parts           Parts
	MaxPromptTokens int
}

// usualCap bounds the ratios of truncated importance sampling where other servers sample, as in TRL and verl.
const usualCap = 2

// Resolve gives the options that depend on others their defaults.
func (s Settings) Resolve(g *config.Given) {
	s.Base.UseRate(s.Command)
	if s.Base.Train.Unset = nil; s.Base.Adapting.On() && !g.Has("train.learning_rate") {
		s.Base.Train.Unset = []string{"learning_rate"} // nothing else follows the data
	}
	if s.GRPO.KL == grpo.None && !g.Has("grpo.kl_coef") {
		s.GRPO.KLCoef = 0
	}
	if s.Rollout.Engine != "" && !g.Has("grpo.importance_cap") {
		s.GRPO.ImportanceCap = usualCap
	}
	if s.GRPO.Aggregation == grpo.SeqMeanConstant && !g.Has("grpo.norm_length") {
		s.GRPO.NormLength = s.Sampling.MaxNew
	}
}

// Validate looks across sections.
func (s Settings) Validate(g *config.Given) {
	switch e := s.Rollout.Engine; {
	case e == fleet.SGLang && s.Base.Adapting.On():
		g.Fault("rollout.engine", "rollout.engine sglang: these servers are given whole weights, and an adapter is "+
			"trained: want vllm")
	case e != "" && s.Base.Adapting.Quantized():
		g.Fault("quantize", "quantize %s: the servers of rollout.urls draw with whole weights, another model: remove "+
			"one of the two", s.Base.Adapting.Quantize)
	case e == fleet.VLLM && !s.Base.Adapting.On():
		g.Fault("rollout.engine", "rollout.engine vllm: these servers are given an adapter: want sglang, or an "+
			"adapter (lora.rank)")
	}
	if s.Rollout.Engine != "" && s.Sampling.CacheGB > 0 {
		g.Fault("sampling.cache_gb", "sampling.cache_gb %v: the servers of rollout.urls have caches of their own; "+
			"remove it", s.Sampling.CacheGB)
	}
}

// loop is a run on its way: rollouts, rewards, updates.
type loop struct {
	*recipe.Run
	set       Settings
	task      task
	questions [3][]ask.Question // to train on, for validation, for the test
	left      ask.Left          // out of them

	episodes       rollout.Episodes // how long they are; without Turns there are none
	rolloutSampler rollout.Sampler  // of the weights that learn; from begin on
	judge          ask.Judge

	reference []compute.Buffer

	estimated bool // it was looked how long a step samples
}

func (l *loop) encoder() *batch.Encoder { return l.Chat.Encoder(l.Tokenizer) }

// begin puts the model, the reference, the sampler and the judge in place. Call what it returns ahead of closing the
// run.
func (l *loop) begin() (closeAll func(), err error) {
	if err := l.Start(); err != nil {
		return nil, err
	}
	size := 0
	if l.set.GRPO.NeedsReference() {
		if l.reference, err = l.Learner.Upload(l.Model); err != nil {
			return nil, err
		}
		size = l.Learner.ReferenceBytes()
	}
	l.ReportMemory(size)
	closeSampler, err := l.openSampler()
	if err != nil {
		backend.FinalizeAll(l.reference...)
		return nil, err
	}
	closeRest := func() { closeSampler(); backend.FinalizeAll(l.reference...) }
	if l.judge, err = l.task.openJudge(l.Folder.Path("replies.jsonl")); err != nil {
		closeRest()
		return nil, err
	}
	return func() { l.judge.Close(); closeRest() }, nil
}

// openSampler opens the sampler of this process, or the servers that sample.
func (l *loop) openSampler() (closeSampler func(), err error) {
	if l.set.Rollout.Engine != "" {
		closeSampler, err = l.openFleet()
	} else {
		sampler := l.Sampler(l.set.Sampling.CacheGB)
		plan, err := l.plan(sampler)
		if err != nil {
			sampler.Close()
			return nil, err
		}
		l.Say("rollouts: %v", plan)
		l.rolloutSampler, closeSampler = sampler, sampler.Close
	}
	if l.episodes.Turns > 0 {
		l.episodes.Sampler = l.rolloutSampler
		l.rolloutSampler = l.episodes
	}
	return closeSampler, err
}

func (l *loop) openFleet() (closeFleet func(), err error) {
	o := *l.set.Rollout
	o.Key, o.Folder = os.Getenv(fleet.KeyVariable), cmp.Or(o.Folder, l.Folder.Path("served"))
	if dir, err := filepath.Abs(l.Folder.Dir); err == nil {
		o.Run = dir
	}
	all := l.questions[ci.Train]
	for _, task := range all[:min(len(all), probes)] {
		o.Probes = append(o.Probes, task.Tokens)
	}
	f, err := fleet.New(o, policy{l.Run}, l.Model.Config, l.Tokenizer, l.Warn)
	if err != nil {
		return nil, err
	}
	l.Say("rollouts: %s on %s, which read the weights from %s", o.Engine, strings.Join(o.URLs, ", "), o.Folder)
	l.rolloutSampler = f
	return func() {
		if err := f.Close(); err != nil {
			l.Warn("%v", err)
		}
	}, nil
}

// probes are the prompts of the parity probe.
const probes = 4

// policy is the model that learns, for servers.
type policy struct{ *recipe.Run }

func (p policy) Version() int { return p.Learner.Version() }

// Write writes the weights in the type in which the model is computed.
func (p policy) Write(folder string) error {
	dtype := "float32"
	if p.Learner.BFloat16() {
		dtype = "bfloat16"
	}
	return p.Exporter().Write(folder, p.Learner, dtype)
}

// Logps measures with the trainer's own graph.
func (p policy) Logps(prompts, answers [][]int32) ([][]float32, error) {
	t := &grpo.Trainer{Learner: p.Learner}
	var groups []grpo.Group
	for i, prompt := range prompts {
		groups = append(groups, grpo.Group{Group: batch.Group{Prompt: prompt, Answers: [][]int32{answers[i]}}})
	}
	measured, err := t.Measure(groups, nil)
	if err != nil {
		return nil, err
	}
	logps := make([][]float32, len(measured))
	for i, answers := range measured {
		logps[i] = answers[0]
	}
	return logps, nil
}

// plan says how many completions of a step are drawn at once.
func (l *loop) plan(s *rollout.Cached) (rollout.Plan, error) {
	longest := 0
	for _, task := range l.questions[ci.Train] {
		longest = max(longest, len(task.Tokens))
	}
	longest = max(longest, l.episodes.Tokens-l.set.Sampling.MaxNew) // the prompt of an episode's last message
	plan, err := s.Plan(l.set.GRPO.Prompts*l.set.GRPO.GroupSize, longest, l.set.Sampling.MaxNew)
	if err != nil {
		err = fmt.Errorf("sampling.%w", err)
	}
	return plan, err
}

// rollouts are the source of the trainer.
func (l *loop) rollouts() *grpo.Rollouts {
	rs := &grpo.Rollouts{Options: *l.set.GRPO, Tasks: l.questions[ci.Train], Held: l.questions[ci.Validation],
		Sampler: l.rolloutSampler, Judge: l.judge, Sampling: l.set.Sampling.Sampling, Longest: l.episodes.Tokens,
		Reference: l.reference, Validation: *l.set.Validation, OnPart: l.watch}
	l.task.prepare(rs)
	rs.Row = func(step int, a ask.Answer) any {
		row := l.task.row(&a)
		if len(row.Rewards) == 0 { // which are the parts
			row.Parts = a.Score.Parts
		}
		return struct {
			Step int `json:"step"` // of the weights that wrote it
			eval.Row
		}{step, row}
	}
	return rs
}

// watch shows how far a step is. When it has sampled for a while and will for a minute or more, it says so once.
func (l *loop) watch(p run.Part) {
	l.Part(p)
	now := time.Now()
	passed := now.Sub(p.Start)
	if left, ok := p.Left(now); ok && p.What == grpo.Sampling && !l.estimated && passed > 10*time.Second {
		if l.estimated = true; passed+left > time.Minute {
			l.Say("a step of %d answers takes up to %v to sample, and then learns from them; fewer "+
				"--prompts, a smaller --group-size or --max-new-tokens make it shorter", p.Total,
				(passed + left).Round(10*time.Second))
		}
	}
}

// newTrainer learns from the model's own answers. Progress shows the reward and the command's metrics; not the loss, which
// is about 0 at every step, because a group's advantages sum to 0.
func (l *loop) newTrainer() (*train.Trainer, error) {
	t, err := l.Trainer(l.rollouts())
	show := t.OnStep
	t.OnStep = func(step, last int, values map[string]float64) {
		picked := map[string]float64{}
		for _, name := range slices.Concat([]string{"reward"}, l.set.Shown, []string{"tokens_per_second"}) {
			if v, ok := values[name]; ok {
				picked[name] = v
			}
		}
		show(step, last, picked)
	}
	return t, err
}

// trainToEnd trains to the last step, and saves the best weights.
func (l *loop) trainToEnd(ctx context.Context, t *train.Trainer) (*run.Best, error) {
	l.WatchHealth()
	if err := l.Fit(ctx, t); err != nil {
		return nil, l.sayResume(err)
	}
	return l.Save(t)
}

// sayResume says how a run continues that something outside has ended, such as a reward or a server that is away.
func (l *loop) sayResume(err error) error {
	if l.Folder == nil || !errors.As(err, new(train.ServerError)) {
		return err
	}
	return fmt.Errorf("%w; --resume %s continues", err, l.Folder.Dir)
}

// count fills in what the run does, with its tests at both ends.
func (l *loop) count(d *recipe.DryRun) error {
	if err := l.Start(); err != nil {
		return err
	}
	l.judge = ask.Rule(nil) // who is asked nothing
	if l.set.GRPO.NeedsReference() {
		d.ReferenceBytes, l.reference = l.Learner.ReferenceBytes(), []compute.Buffer{} // of which nothing is read
	}
	if err := d.Count(l.rollouts()); err != nil {
		return err
	}
	if l.set.Rollout.Engine != "" { // other machines sample
		return nil
	}
	sampler := l.Sampler(l.set.Sampling.CacheGB)
	plan, err := l.plan(sampler)
	if l.Engine.Absent() == nil {
		sampler.Close()
	} else {
		d.Rehearse = func(ctx context.Context) error {
			defer sampler.Close()
			return sampler.Rehearse(ctx, plan, l.set.GRPO.GroupSize)
		}
	}
	d.Sampling = &recipe.Sampling{Plan: plan, Answers: l.answers(d.Steps)}
	return err
}

// answers is how many completions a run of that length draws: for its groups, for validations, and for the tests at
// both ends.
func (l *loop) answers(steps int) float64 {
	evaluated := l.set.Base.Train
	evaluated.EvalEvery = l.set.Validation.Every
	return float64(steps*l.set.GRPO.Prompts*l.set.GRPO.GroupSize) +
		float64(evaluated.Evaluations(steps)*len(l.questions[ci.Validation])) + 2*float64(len(l.questions[ci.Test]))
}
