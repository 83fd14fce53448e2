package federated

import (
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/federated/lm"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/cirl"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// CIRL is the workload ci-rl: a model, items and rewards as posttrain ci-rl has them, the training items dealt to the
// agents.
type CIRL struct {
	Model      string           `yaml:"model" want:"@model" hub:"model"`
	Adapting   recipe.Adapting  `yaml:",inline"`
	Backend    string           `yaml:"backend" want:"@backend"`
	Data       cirl.Data        `yaml:"data"`
	Deal       Deal             `yaml:",inline"`
	Sampling   rollout.Sampling `yaml:"sampling"`
	Reward     reward.Options   `yaml:"reward"`
	GRPO       grpo.Options     `yaml:"grpo"`
	Validation Validation       `yaml:"validation"`
	// gigabytes for the gradients of a batch's completions, one by one, with which fednpg-admm solves at once
	Memory float64 `yaml:"memory_gb" want:">=0" zero:"products by differences"`
}

// Validation says how agents measure what they hold out of their items: data.validation_fraction of those of the run,
// or of their own file.
type Validation struct {
	// an agent's batches from one validation to the next
	Every       int     `yaml:"every" want:">=0" zero:"off"`
	Temperature float64 `yaml:"temperature" want:">=0" zero:"greedy"` // of the answers, one an item
}

// Deal says how the items are dealt.
type Deal struct {
	// in turn, or of each domain and principle by shares of its own
	Split string `yaml:"split" want:"equal|dirichlet"`
	// the smaller, the more the agents' items differ
	Alpha float64 `yaml:"dirichlet_alpha" want:">=0.01"`
}

// withoutKeys are those of ci-rl and mappo that agents have no use for.
var withoutKeys = []string{"ci_rl.grpo.updates_per_rollout", "ci_rl.grpo.dynamic_sampling",
	"ci_rl.grpo.importance_cap", "ci_rl.data.weights", "mappo.data.eval", "mappo.data.weights"}

// defaultCIRL is the embedded model with a batch that is small for the sake of many agents.
func defaultCIRL() CIRL {
	d := cirl.Defaults()
	c := CIRL{Model: embedded.Name, Backend: "auto", Data: d.Data, Deal: Deal{lm.Equal, 0.3},
		Sampling: d.Sampling.Sampling, Reward: d.Reward, GRPO: d.GRPO, Memory: 0.5,
		Validation: Validation{5, d.Validation.Temperature}}
	c.Data.Train, c.Data.Scenarios, c.Data.Prompt, c.Data.MaxPromptTokens = config.Names{embedded.Name}, 5000, ci.PromptCompact, 256
	c.Data.ValidationFraction, c.Data.TestFraction = 0.04, 0.2
	c.Sampling.MaxNew = 128
	c.GRPO.Prompts, c.GRPO.GroupSize, c.GRPO.Updates, c.GRPO.KL, c.GRPO.KLCoef = 4, 8, 1, grpo.None, 0
	return c
}

// settle gives the options that depend on others their defaults.
func (c *CIRL) settle(g *config.Given) {
	if !c.Data.Train.Are(embedded.Name) && !g.Has("ci_rl.data.scenarios") {
		c.Data.Scenarios = 0
	}
	if c.Model != embedded.Name && !g.Has("ci_rl.data.prompt") {
		c.Data.Prompt = ci.PromptCoT
	}
	if !g.Has("ci_rl.data.prefill") {
		c.Data.Prefill = c.Data.Thinks()
	}
	if c.GRPO.KL != grpo.None && !g.Has("ci_rl.grpo.kl_coef") {
		c.GRPO.KLCoef = grpo.DefaultOptions().KLCoef
	}
}

// check looks at what only this workload has.
func (c *CIRL) check(g *config.Given, o *Options) {
	g.In("ci_rl.sampling.").Take(cirl.CheckDraws(c.Sampling)...)
	if e := o.Local.Entropy; e != nil && *e != 0 {
		g.Fault("local.entropy", "local.entropy %v: workload ci-rl has no such term; remove it", *e)
	}
	if slices.Contains(c.idle(o.Method), "ci_rl.memory_gb") && g.Has("ci_rl.memory_gb") {
		g.Fault("ci_rl.memory_gb", "ci_rl.memory_gb %v: %s makes no natural gradients, only fednpg and fednpg-admm "+
			"do; remove it", c.Memory, o.Method)
	}
	if g.Has("ci_rl.validation.temperature") && c.Validation.Every == 0 {
		g.Fault("ci_rl.validation.temperature", "ci_rl.validation.temperature %v: ci_rl.validation.every 0 asks for no "+
			"validation; remove it, or want every above 0", c.Validation.Temperature)
	}
	checkAlpha(g, "ci_rl.", c.Deal.Split, c.Deal.Alpha)
}

// idle are the keys that others replace, or that the method does not use.
func (c *CIRL) idle(method string) (keys []string) {
	if method != protocol.FedNPG && method != protocol.FedNPGADMM {
		keys = append(keys, "ci_rl.memory_gb")
	}
	if c.Deal.Split != lm.Dirichlet {
		keys = append(keys, "ci_rl.dirichlet_alpha")
	}
	if c.Validation.Every == 0 {
		keys = append(keys, "ci_rl.validation.temperature")
	}
	return keys
}

// itemWorld is what the agents of this process share in the workload ci-rl.
type itemWorld struct {
	trained
	tasks  []grpo.Task
	held   []grpo.Task // that nobody trains on
	owned  [][]int     // of the tasks, by agent; nil: all are those of this process's agent
	heldBy [][]int     // the same of those held
}

// openItems loads model and items. The engine is opened when an agent samples.
func openItems(o *Options) (world, error) {
	c := &o.CIRL
	w := &itemWorld{trained: trained{o: o, name: CIRLName, folder: c.Model, adapting: c.Adapting, backend: c.Backend,
		samples: true, reference: c.GRPO.NeedsReference()}}
	return w, w.load()
}

// deal reads or makes the items and gives them to the agents.
func (w *itemWorld) deal() error {
	c := w.o.CIRL
	training := cirl.Defaults()
	training.Model, training.Seed, training.Data, training.Reward, training.GRPO = c.Model, w.o.Seed, c.Data, c.Reward,
		c.GRPO
	training.Sampling.Sampling = c.Sampling
	parts, err := w.items(&training)
	if err != nil {
		return err
	}
	classes, others := []string(nil), []string(nil)
	if w.tasks, classes, err = w.cases(&training, ci.Train, parts[0]); err != nil {
		return err
	}
	if w.held, others, err = w.cases(&training, ci.Validation, parts[1]); err != nil {
		return err
	}
	err = grpo.CheckTasks(c.GRPO, c.Sampling, w.model.Config.MaxPositions, w.tasks, w.held)
	if err != nil || w.o.items != "" {
		return err
	}
	how := lm.Split{Kind: c.Deal.Split, Alpha: c.Deal.Alpha, Least: c.GRPO.Prompts, Seed: w.o.Seed}
	if w.owned, err = how.Deal(classes, w.o.Agents); err == nil {
		w.heldBy = how.Along(w.owned, classes, others)
	}
	return err
}

// cases are items of a part as tasks, with their classes.
func (w *itemWorld) cases(training *cirl.Options, part ci.Part, items []ci.Item) ([]grpo.Task, []string, error) {
	limit := w.model.Config.MaxPositions - 1
	if most := training.Data.MaxPromptTokens; most > 0 {
		limit = min(limit, most)
	}
	chat := &rollout.Local{Encoder: &batch.Encoder{Tokenizer: w.tokenizer}}
	cases, _, err := training.Cases(chat, part, items, limit)
	classes := make([]string, len(cases))
	for i, one := range cases {
		classes[i] = one.Item.Seed.Domain + "/" + one.Item.Seed.TransmissionPrinciple
	}
	return cirl.Tasks(cases), classes, err
}

// items are those to train on and those to hold out, as training has them, or of the agent's own file.
func (w *itemWorld) items(training *cirl.Options) (parts [2][]ci.Item, err error) {
	every := w.o.CIRL.Validation.Every
	if w.o.items == "" {
		all, err := training.Items(nil)
		if parts[0] = all[ci.Train]; every > 0 {
			parts[1] = all[ci.Validation]
		}
		return parts, err
	}
	parts[0], _, err = ci.ReadItems(w.o.items, training.Data.Items)
	if every > 0 {
		first, second, _ := ci.Split(len(parts[0]), training.Data.ValidationFraction, 0, w.o.Seed)
		parts[0], parts[1] = data.Pick(parts[0], first), data.Pick(parts[0], second)
	}
	return parts, err
}

// agent makes the workload of an agent.
func (w *itemWorld) agent(number int) (protocol.Workload, error) {
	if w.tasks == nil {
		if err := w.deal(); err != nil {
			return nil, err
		}
	}
	o, c := train.Defaults(), w.o.CIRL
	a := lm.Agent{Tasks: w.tasks, Held: w.held, Temperature: c.Validation.Temperature, Options: c.GRPO,
		Sampling: c.Sampling, Score: cirl.Score(c.Reward), Shuffle: o.Shuffle, Rule: o.Rule().Numbers(),
		Memory: c.Memory * 1e9}
	if w.owned != nil {
		a.Tasks, a.Held = data.Pick(w.tasks, w.owned[number]), data.Pick(w.held, w.heldBy[number])
	}
	return lm.New(w.policy, a, number, w.o.Seed), nil
}

// describe says in words what agents learn from.
func (c *CIRL) describe() string {
	how := "dealt in turn"
	if c.Deal.Split == lm.Dirichlet {
		how = fmt.Sprintf("dealt by Dirichlet(%v) over domains and principles", c.Deal.Alpha)
	}
	kl := ""
	if c.GRPO.NeedsReference() {
		kl = fmt.Sprintf(", KL to the start (%s) times %v", c.GRPO.KL, c.GRPO.KLCoef)
	}
	measured := ""
	if every := c.Validation.Every; every > 0 {
		measured = fmt.Sprintf(", a validation on items of its own every %d batches", every)
	}
	return fmt.Sprintf("the model %s%s, items of %s, %s, %d prompts of %d completions a batch%s%s", c.Model,
		adapterText(c.Adapting), c.Data.Train, how, c.GRPO.Prompts, c.GRPO.GroupSize, kl, measured)
}

func adapterText(a recipe.Adapting) string {
	if !a.On() {
		return ""
	}
	return " with an adapter"
}
