package federated

import (
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/federated/lm"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe/cirl"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// CIRL is the workload ci-rl: a model, items and rewards as posttrain ci-rl has them, the training items dealt to the
// agents.
type CIRL struct {
	OfModel  `yaml:",inline"`
	Data     cirl.Data        `yaml:"data"`
	Sampling rollout.Sampling `yaml:"sampling"`
	Reward   reward.Options   `yaml:"reward"`
	GRPO     grpo.Options     `yaml:"grpo"`
	// gigabytes for the gradients of a batch's completions, one by one, which natural gradients are made of
	Memory float64 `yaml:"memory_gb" want:">=0"`
}

// defaultCIRL is the embedded model with a batch that is small for the sake of many agents.
func defaultCIRL() CIRL {
	d := cirl.Defaults()
	c := CIRL{OfModel: defaultOfModel(5, d.Validation.Temperature), Data: d.Data, Sampling: d.Sampling.Sampling,
		Reward: d.Reward, GRPO: d.GRPO, Memory: 0.5}
	c.Data.Train, c.Data.Scenarios, c.Data.Prompt, c.Data.MaxPromptTokens = config.Names{embedded.Name}, 5000, ci.PromptCompact, 256
	c.Data.ValidationFraction, c.Data.TestFraction = 0.04, 0.2
	c.Sampling.MaxNew = 128
	c.GRPO.Prompts, c.GRPO.GroupSize, c.GRPO.Updates, c.GRPO.KL, c.GRPO.KLCoef = 4, 8, 1, grpo.None, 0
	return c
}

// Resolve gives the options that depend on others their defaults.
func (c *CIRL) Resolve(g *config.Given) {
	if !c.Data.Train.Are(embedded.Name) && !g.Has("data.scenarios") {
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
type items struct{ tasks, held []grpo.Task }

// read reads or makes the items.
func (s *items) read(w *world) (classes, others []string, err error) {
	c, training := w.o.CIRL, cirl.Defaults()
	training.Model, training.Seed, training.Data, training.Reward, training.GRPO = c.Model, w.o.Seed, c.Data, c.Reward,
		c.GRPO
	training.Sampling.Sampling = c.Sampling
	var parts [2][]ci.Item // to train on, and to hold out
	if w.o.items == "" {
		all, err := training.Items(nil)
		if err != nil {
			return nil, nil, err
		}
		parts = [2][]ci.Item{all[ci.Train], all[ci.Validation]}
	} else {
		all, _, err := ci.ReadItems(w.o.items, c.Data.Items)
		if err != nil {
			return nil, nil, err
		}
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
	return classes, others, grpo.CheckTasks(c.GRPO, c.Sampling, w.model.Config.MaxPositions, s.tasks, s.held)
}

// cases are items of a part as tasks, with their classes.
func (s *items) cases(w *world, training *cirl.Options, part ci.Part, all []ci.Item) ([]grpo.Task, []string, error) {
	limit := w.model.Config.MaxPositions - 1
	if most := training.Data.MaxPromptTokens; most > 0 {
		limit = min(limit, most)
	}
	chat := &rollout.Local{Encoder: &batch.Encoder{Tokenizer: w.tokenizer}}
	cases, _, err := training.Cases(chat, part, all, limit)
	classes := make([]string, len(cases))
	for i, one := range cases {
		classes[i] = one.Item.Seed.Domain + "/" + one.Item.Seed.TransmissionPrinciple
	}
	return cirl.Tasks(cases), classes, err
}

func (s *items) agent(w *world, number int, own, held []int) protocol.Workload {
	c, o := w.o.CIRL, train.Defaults()
	return lm.New(w.policy, lm.Agent{Tasks: data.Pick(s.tasks, own), Held: data.Pick(s.held, held),
		Temperature: c.Validation.Temperature, Options: c.GRPO, Sampling: c.Sampling, Score: cirl.Score(c.Reward),
		Optimizer: o.AdamW().Options, Memory: c.Memory * 1e9}, number, w.o.Seed)
}
