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

	"github.com/gomlx/compute"

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
	"train.eval_metric"}

// Settings are the sections of a command's options that the loop reads.
type Settings struct {
	Base       *recipe.Base
	Sampling   *Sampling
	Rollout    *fleet.Options
	GRPO       *grpo.Options
	Validation *grpo.ValidationOptions
}

// usualCap bounds the ratios of truncated importance sampling where other servers sample, as in TRL and verl.
const usualCap = 2

// Resolve gives the options that depend on others their defaults.
func (s Settings) Resolve(g *config.Given) {
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

// Loop is a run on its way: rollouts, rewards, updates.
type Loop struct {
	*recipe.Run
	Settings
	Data    string          // names the training data
	Tasks   []grpo.Task     // to train on
	Held    []grpo.Task     // for validation
	Sampler rollout.Sampler // of the weights that learn; from Begin on

	// Of episodes: how long they are. Its Sampler is not set.
	Episodes rollout.Episodes

	reference []compute.Buffer
}

// Limit is the most tokens of a prompt: the configuration's (0: no limit), and room for one more in the model.
func (l *Loop) Limit(most int) int {
	room := l.Model.Config.MaxPositions - 1
	if most > 0 {
		return min(most, room)
	}
	return room
}

// Begin puts the model, the reference and the sampler in place. Call what it returns ahead of closing the run.
func (l *Loop) Begin() (closeAll func(), err error) {
	if err := l.Start(); err != nil {
		return nil, err
	}
	size := 0
	if l.GRPO.NeedsReference() {
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
	if l.Episodes.Turns > 0 {
		l.Episodes.Sampler = l.Sampler
		l.Sampler = l.Episodes
	}
	return func() { closeSampler(); backend.FinalizeAll(l.reference...) }, nil
}

// openSampler opens the sampler of this process, or the servers that sample.
func (l *Loop) openSampler() (closeSampler func(), err error) {
	if l.Rollout.Engine != "" {
		return l.openFleet()
	}
	sampler := l.Run.Sampler(l.Sampling.CacheGB)
	plan, err := l.plan(sampler)
	if err != nil {
		sampler.Close()
		return nil, err
	}
	l.Say("rollouts: %v", plan)
	l.Sampler = sampler
	return sampler.Close, nil
}

func (l *Loop) openFleet() (closeFleet func(), err error) {
	o := *l.Rollout
	o.Key, o.Folder = os.Getenv(fleet.KeyVariable), cmp.Or(o.Folder, l.Folder.Path("served"))
	if dir, err := filepath.Abs(l.Folder.Dir); err == nil {
		o.Run = dir
	}
	for _, task := range l.Tasks[:min(len(l.Tasks), probes)] {
		o.Probes = append(o.Probes, task.Tokens)
	}
	f, err := fleet.New(o, policy{l.Run}, l.Model.Config, l.Tokenizer, l.Warn)
	if err != nil {
		return nil, err
	}
	l.Say("rollouts: %s on %s, which read the weights from %s", o.Engine, strings.Join(o.URLs, ", "), o.Folder)
	l.Sampler = f
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
func (l *Loop) plan(s *rollout.Cached) (rollout.Plan, error) {
	longest := 0
	for _, task := range l.Tasks {
		longest = max(longest, len(task.Tokens))
	}
	longest = max(longest, l.Episodes.Tokens-l.Sampling.MaxNew) // the prompt of an episode's last message
	plan, err := s.Plan(l.GRPO.Prompts*l.GRPO.GroupSize, longest, l.Sampling.MaxNew)
	if err != nil {
		err = fmt.Errorf("sampling.%w", err)
	}
	return plan, err
}

// Rollouts are the source of the trainer. The score, and what else a command has, is for the command to fill in.
func (l *Loop) Rollouts() *grpo.Rollouts {
	return &grpo.Rollouts{Options: *l.GRPO, Tasks: l.Tasks, Held: l.Held, Sampler: l.Sampler,
		Sampling: l.Settings.Sampling.Sampling, Longest: l.Episodes.Tokens, Reference: l.reference,
		Validation: *l.Validation}
}

// Trainer learns from the model's own answers. Progress shows the reward and these metrics; not the loss, which is
// about 0 at every step, because a group's advantages sum to 0.
func (l *Loop) Trainer(rs *grpo.Rollouts, shown ...string) *train.Trainer {
	t := l.Run.Trainer(rs)
	show := t.OnStep
	t.OnStep = func(step, last int, values map[string]float64) {
		picked := map[string]float64{}
		for _, name := range slices.Concat([]string{"reward"}, shown, []string{"tokens_per_second"}) {
			if v, ok := values[name]; ok {
				picked[name] = v
			}
		}
		show(step, last, picked)
	}
	return t
}

// Learn trains to the last step, and saves the best weights.
func (l *Loop) Learn(ctx context.Context, t *train.Trainer) (*run.Best, error) {
	l.WatchHealth()
	if err := l.Fit(ctx, t); err != nil {
		return nil, l.sayResume(err)
	}
	return l.Save(t)
}

// sayResume says how a run continues that something outside has ended, such as a reward or a server that is away.
func (l *Loop) sayResume(err error) error {
	if l.Folder == nil || !errors.As(err, new(train.ServerError)) {
		return err
	}
	return fmt.Errorf("%w; --resume %s continues", err, l.Folder.Dir)
}

// Count fills in what a run does that tests on a number of prompts at both ends.
func (l *Loop) Count(d *recipe.DryRun, rs func() *grpo.Rollouts, tests int) error {
	if err := l.Start(); err != nil {
		return err
	}
	if l.GRPO.NeedsReference() {
		d.ReferenceBytes, l.reference = l.Learner.ReferenceBytes(), []compute.Buffer{} // of which nothing is read
	}
	if err := d.Count(l.Trainer(rs())); err != nil {
		return err
	}
	if l.Settings.Rollout.Engine != "" { // other machines sample
		return nil
	}
	sampler := l.Run.Sampler(l.Sampling.CacheGB)
	defer sampler.Close()
	plan, err := l.plan(sampler)
	d.Sampling = &recipe.Sampling{Plan: plan, New: l.Sampling.MaxNew, Answers: l.answers(d.Steps, tests)}
	return err
}

// answers is how many completions a run of that length draws: those of its groups, of validations and of the tests at
// both ends.
func (l *Loop) answers(steps, tests int) float64 {
	evaluated := l.Settings.Base.Train
	evaluated.EvalEvery = l.Validation.Every
	return float64(steps*l.GRPO.Prompts*l.GRPO.GroupSize) + float64(evaluated.Evaluations(steps)*len(l.Held)) +
		2*float64(tests)
}
