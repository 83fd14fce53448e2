package federated

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/embedded"
	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/lm"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/cirl"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/run"
	"github.com/posttrain/posttrain/tokenizer"
	"github.com/posttrain/posttrain/train"
)

// CIRL is the workload ci-rl: a model, items and rewards as posttrain ci-rl has them, the training items dealt to the
// agents.
type CIRL struct {
	Model    string           `yaml:"model" want:"given" words:"embedded, or a Hugging Face model folder"`
	Adapting recipe.Adapting  `yaml:",inline"`
	Backend  string           `yaml:"backend" want:"@backend"`
	Data     cirl.Data        `yaml:"data"`
	Deal     Deal             `yaml:",inline"`
	Sampling rollout.Sampling `yaml:"sampling"`
	Reward   reward.Options   `yaml:"reward"`
	GRPO     grpo.Options     `yaml:"grpo"`
	// gigabytes for the gradients of a batch's completions, one by one, with which fednpg-admm solves at once
	Memory float64 `yaml:"memory_gb" want:">=0" zero:"products by differences"`
}

// Deal says how the items are dealt.
type Deal struct {
	// in turn, or of each domain and principle by shares of its own
	Split string `yaml:"split" want:"equal|dirichlet"`
	// the smaller, the more the agents' items differ
	Alpha float64 `yaml:"dirichlet_alpha" want:">=0.01"`
}

// withoutKeys are those of ci-rl that an agent's gradient has no use for.
var withoutKeys = []string{"ci_rl.grpo.updates_per_rollout", "ci_rl.grpo.dynamic_sampling",
	"ci_rl.grpo.importance_cap"}

// defaultCIRL is the embedded model with a batch that is small for the sake of many agents.
func defaultCIRL() CIRL {
	d := cirl.Defaults()
	c := CIRL{Model: embedded.Name, Backend: "auto", Data: d.Data, Deal: Deal{lm.Equal, 0.3},
		Sampling: d.Sampling.Sampling, Reward: d.Reward, GRPO: d.GRPO, Memory: 0.5}
	c.Data.Train, c.Data.Scenarios, c.Data.Prompt, c.Data.MaxPromptTokens = embedded.Name, 5000, ci.PromptCompact, 256
	c.Data.ValidationFraction, c.Data.TestFraction = 0.04, 0.2
	c.Sampling.MaxNew = 128
	c.GRPO.Prompts, c.GRPO.GroupSize, c.GRPO.Updates, c.GRPO.KL, c.GRPO.KLCoef = 4, 8, 1, grpo.None, 0
	return c
}

// settle gives the options that depend on others their defaults.
func (c *CIRL) settle(g *config.Given) {
	if c.Data.Train != embedded.Name && !g.Has("ci_rl.data.scenarios") {
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
	if c.Adapting.LoRA.Rank > 0 && !g.Has("ci_rl.lora.alpha") {
		c.Adapting.LoRA.Alpha = 2 * float64(c.Adapting.LoRA.Rank)
	}
}

// check looks at what only this workload has.
func (c *CIRL) check(g *config.Given, o *Options) {
	recipe.CheckPrompt(g, "ci_rl.data.", &c.Data.Form)
	cirl.CheckDraws(g, "ci_rl.", c.Sampling)
	if e := o.Local.Entropy; e != nil && *e != 0 {
		g.Fault("local.entropy", "local.entropy %v: workload ci-rl has no such term; remove it", *e)
	}
	if slices.Contains(c.idle(o.Method), "ci_rl.memory_gb") && g.Has("ci_rl.memory_gb") {
		g.Fault("ci_rl.memory_gb", "ci_rl.memory_gb %v: %s makes no natural gradients, only fednpg and fednpg-admm "+
			"do; remove it", c.Memory, o.Method)
	}
	if g.Has("ci_rl.dirichlet_alpha") && c.Deal.Split != lm.Dirichlet {
		g.Fault("ci_rl.dirichlet_alpha", "ci_rl.dirichlet_alpha %v: split %s does not use it; remove it, or want "+
			"split dirichlet", c.Deal.Alpha, c.Deal.Split)
	}
}

// idle are the keys that others replace, or that the method does not use.
func (c *CIRL) idle(method string) (keys []string) {
	if method != protocol.FedNPG && method != protocol.FedNPGADMM {
		keys = append(keys, "ci_rl.memory_gb")
	}
	if c.Deal.Split != lm.Dirichlet {
		keys = append(keys, "ci_rl.dirichlet_alpha")
	}
	return keys
}

// world is what the agents of this process share in the workload ci-rl.
type world struct {
	o         *Options
	model     *model.Model
	tokenizer *tokenizer.Tokenizer
	policy    *lm.Policy
	tasks     []grpo.Task
	owned     [][]int // of the tasks, by agent
}

// openWorld loads model and items. The engine is opened when an agent samples.
func openWorld(o *Options) (w *world, err error) {
	w = &world{o: o}
	if w.model, w.tokenizer, err = local.Load(o.CIRL.Model); err != nil {
		return nil, err
	}
	if w.model, err = o.CIRL.Adapting.Adapt(w.model, o.CIRL.Model, o.Seed); err == nil {
		err = w.load()
	}
	if err != nil {
		w.model.Release()
		return nil, err
	}
	return w, nil
}

func (w *world) load() (err error) {
	w.policy = &lm.Policy{Open: w.open}
	if w.policy.Identity, err = w.identity(); err != nil {
		return err
	}
	if w.policy.Start, err = lm.WeightsOf(w.model); err != nil {
		return err
	}
	return w.deal()
}

// identity has the hash of what is not trained: the architecture, and the weights below an adapter.
func (w *world) identity() (id protocol.Identity, err error) {
	config, err := w.model.Config.JSON("float32")
	base := ""
	if l := w.model.Config.LoRA; l != nil {
		base = fmt.Sprint(l.Base, l.Rank, l.Alpha, l.RSLoRA)
	}
	sum := sha256.Sum256(fmt.Appendf(config, "\n%s", base))
	return protocol.Identity{Protocol: protocol.Version, Task: CIRLName + "/" + w.model.Config.ModelType,
		Tensors: lm.TensorsOf(w.model), Base: hex.EncodeToString(sum[:])}, err
}

// deal reads or makes the items and gives them to the agents.
func (w *world) deal() error {
	c := w.o.CIRL
	training := cirl.Defaults()
	training.Model, training.Seed, training.Data, training.Reward, training.GRPO = c.Model, w.o.Seed, c.Data, c.Reward,
		c.GRPO
	training.Sampling.Sampling = c.Sampling
	items, err := w.items(&training)
	if err != nil {
		return err
	}
	limit := w.model.Config.MaxPositions - 1
	if c.Data.MaxPromptTokens > 0 {
		limit = min(limit, c.Data.MaxPromptTokens)
	}
	chat := &rollout.Local{Encoder: &batch.Encoder{Tokenizer: w.tokenizer}}
	cases, _, err := training.Cases(chat, ci.Train, items, limit)
	if err != nil {
		return err
	}
	w.tasks = cirl.Tasks(cases)
	if err := grpo.CheckTasks(c.GRPO, c.Sampling, w.model.Config.MaxPositions, w.tasks); err != nil {
		return err
	}
	classes := make([]string, len(cases))
	for i, one := range cases {
		classes[i] = one.Item.Seed.Domain + "/" + one.Item.Seed.TransmissionPrinciple
	}
	if w.o.items != "" {
		return nil
	}
	how := lm.Split{Kind: c.Deal.Split, Alpha: c.Deal.Alpha, Least: c.GRPO.Prompts, Seed: w.o.Seed}
	w.owned, err = how.Deal(classes, w.o.Agents)
	return err
}

// items are those that training has, or those of the agent's own file.
func (w *world) items(training *cirl.Options) ([]ci.Item, error) {
	if w.o.items != "" {
		items, _, err := ci.ReadItems(w.o.items, training.Data.Items)
		return items, err
	}
	parts, err := training.Items(nil)
	return parts[ci.Train], err
}

// open puts the model into an engine.
func (w *world) open() (*lm.Opened, error) {
	c, o := w.o.CIRL, train.Defaults()
	recipe.PinBackend(&c.Backend, c.Model, o, recipe.Devices{}, true, run.Listen(nil))
	load := func(string) (*model.Model, *tokenizer.Tokenizer, error) { return w.model, w.tokenizer, nil }
	opened, err := recipe.OpenWorld(load, c.Backend, c.Model, o, recipe.Devices{})
	if err != nil {
		return nil, err
	}
	learner, err := train.NewLearner(opened.Engine, w.model, opened.Graph)
	if err != nil {
		opened.Engine.Close()
		return nil, err
	}
	var reference []compute.Buffer
	if c.GRPO.NeedsReference() {
		if reference, err = learner.Upload(w.model); err != nil {
			learner.Close()
			opened.Engine.Close()
			return nil, err
		}
	}
	sampler := rollout.NewReplicas(opened.Engine, w.model.Config, learner.Weights,
		rollout.Options{Graph: opened.Graph, Decoder: w.tokenizer})
	return &lm.Opened{Learner: learner, Sampler: sampler, Reference: reference, Release: func() {
		sampler.Close()
		backend.FinalizeAll(reference...)
		learner.Close()
		opened.Engine.Close()
	}}, nil
}

// agent makes the workload of an agent.
func (w *world) agent(number int) protocol.Workload {
	o, c := train.Defaults(), w.o.CIRL
	a := lm.Agent{Tasks: w.tasks, Options: c.GRPO, Sampling: c.Sampling, Score: grpo.CIScore(c.Reward),
		Shuffle: o.Shuffle, Rule: o.Rule().Numbers(), Memory: c.Memory * 1e9}
	if w.owned != nil {
		a.Tasks = data.Pick(w.tasks, w.owned[number])
	}
	return lm.New(w.policy, a, number, w.o.Seed)
}

func (w *world) close() {
	w.policy.Close()
	w.model.Release()
}

// write stores parameters as a model folder, or an adapter's.
func (w *world) write(folder *run.Folder, theta []float64) (path string, err error) {
	name := run.ModelName
	if w.o.CIRL.Adapting.On() {
		name = run.AdapterName
	}
	x, weights := train.Exporter{Model: w.model, Tokenizer: w.tokenizer}, federated.Narrow(theta)
	return folder.Path(name), folder.WriteResult(name, func(dir string) error {
		return x.WriteFlat(dir, weights, "")
	})
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
	return fmt.Sprintf("the model %s%s, items of %s, %s, %d prompts of %d completions a batch%s", c.Model,
		adapterText(c.Adapting), c.Data.Train, how, c.GRPO.Prompts, c.GRPO.GroupSize, kl)
}

func adapterText(a recipe.Adapting) string {
	if !a.On() {
		return ""
	}
	return " with an adapter"
}
