package federated

import (
	"cmp"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/federated/lm"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/rl"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// CIRL is the workload ci-rl: a model, items and rewards as posttrain ci-rl has them, the training items dealt to the
// agents. By default it is the embedded model with a batch that is small for the sake of many agents.
type CIRL struct {
	OfModel  `yaml:",inline" defaults:"validation.every=5 validation.temperature=0.7"`
	Data     rl.CIData        `yaml:"data" defaults:"train=embedded scenarios=5000 prompt=compact max_prompt_tokens=256 validation_fraction=0.04 test_fraction=0.2"`
	Sampling rollout.Sampling `yaml:"sampling" defaults:"max_new_tokens=128 temperature=1"`
	Reward   reward.Options   `yaml:"reward"`
	GRPO     grpo.Options     `yaml:"grpo" defaults:"prompts_per_step=4 group_size=8 kl=none kl_coef=0"`
	Memory   float64          `yaml:"memory_gb" want:">=0" default:"0.5" help:"gigabytes for the gradients of a batch's completions, one by one, which natural gradients are made of"`
}

// Resolve gives the options that depend on others their defaults.
func (c *CIRL) Resolve(g *config.Given) {
	if !c.Data.TrainFiles.Are(embedded.Name) && !g.Has("data.scenarios") {
		c.Data.Scenarios = 0
	}
	if c.Model != embedded.Name && !g.Has("data.prompt") {
		c.Data.Prompt = ci.PromptCoT
	}
	if !g.Has("data.prefill") {
		c.Data.Prefill = c.Data.Thinks()
	}
	if c.GRPO.KL != grpo.None && !g.Has("grpo.kl_coef") {
		c.GRPO.KLCoef = grpo.DefaultOptions().KLCoef
	}
}

// items are what the agents of ci-rl learn from.
type items struct {
	tasks, held []ask.Question
	left        ask.Left // out of them
}

// read reads or makes the items.
func (s *items) read(w *world) (classes, others []string, err error) {
	c, training := w.o.CIRL, rl.CISpec.Defaults()
	training.Model, training.Seed, training.Data, training.Reward, training.GRPO = c.Model, w.o.Seed, c.Data, c.Reward,
		c.GRPO
	training.Sampling.Sampling = c.Sampling
	var parts [2][]ci.Item // to train on, and to hold out
	r := run.Listen(w.o.heard)
	if w.o.items == "" {
		all, err := training.Items(r)
		if err != nil {
			return nil, nil, err
		}
		parts = [2][]ci.Item{all[ci.Train], all[ci.Validation]}
	} else {
		all, report, err := ci.ReadItems(w.o.items, c.Data.Items)
		if err != nil {
			return nil, nil, err
		}
		r.Say("%s", report)
		if parts[0] = all; c.Validation.Every > 0 {
			first, second, _ := ci.Split(len(all), c.Data.ValidationFraction, 0, w.o.Seed)
			parts = [2][]ci.Item{data.Pick(all, first), data.Pick(all, second)}
		}
	}
	if c.Validation.Every == 0 {
		parts[1] = nil
	}
	if s.tasks, classes, err = s.cases(w, &training, ci.Train, parts[0]); err != nil {
		return nil, nil, err
	}
	if s.held, others, err = s.cases(w, &training, ci.Validation, parts[1]); err != nil {
		return nil, nil, err
	}
	if s.left.Count > 0 {
		r.Say("%s: %v", cmp.Or(w.o.items, c.Data.TrainFiles.String()), s.left)
	}
	return classes, others, grpo.CheckTasks(c.GRPO, c.Sampling, w.model.Config.MaxPositions, s.tasks, s.held)
}

// cases are items of a part as tasks, with their classes.
func (s *items) cases(w *world, training *rl.CI, part ci.Part, all []ci.Item) ([]ask.Question, []string, error) {
	limit := recipe.PromptLimit(w.model.Config.MaxPositions, training.Data.MaxPromptTokens)
	tasks, left, err := training.Questions(&batch.Encoder{Tokenizer: w.tokenizer}, part, all, limit)
	classes := make([]string, len(tasks))
	for i, one := range tasks {
		classes[i] = one.Item.Seed.Domain + "/" + one.Item.Seed.TransmissionPrinciple
	}
	s.left = s.left.And(left)
	return tasks, classes, err
}

func (s *items) agent(w *world, number int, own, held []int) protocol.Workload {
	c, o := w.o.CIRL, train.Defaults()
	return lm.New(w.policy, lm.Agent{Tasks: data.Pick(s.tasks, own), Held: data.Pick(s.held, held),
		Temperature: c.Validation.Temperature, Options: c.GRPO, Sampling: c.Sampling, Judge: ask.Keywords(c.Reward),
		Optimizer: o.AdamW().Options, Memory: c.Memory * 1e9}, number, w.o.Seed)
}
