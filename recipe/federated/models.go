package federated

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/lm"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/tokenizer"
	"github.com/posttrain/posttrain/train"
)

// OfModel are the keys that the workloads of language models share.
type OfModel struct {
	Model      string          `yaml:"model" want:"@model" hub:"model" default:"embedded" help:"the model to train: folder in Hugging Face layout, org/name[@revision] on the hub, or embedded"`
	Adapting   recipe.Adapting `yaml:",inline"`
	Backend    string          `yaml:"backend" want:"@backend" needs:"libraries" default:"auto" help:"engine:"`
	Split      string          `yaml:"split" want:"equal|column|dirichlet" default:"equal" help:"equal: dealt in turn; column: all pairs with one value in split_column to one agent; dirichlet: pairs of each value, or items of each domain and principle, by shares from Dirichlet(dirichlet_alpha)"`
	Column     string          `yaml:"split_column,omitempty" words:"the name of a column" help:"a column that every row has, such as annotator or domain"`
	Alpha      float64         `yaml:"dirichlet_alpha" want:">=0.01" default:"0.3" help:"the smaller, the more the agents' shares differ"`
	Validation Validation      `yaml:"validation"`
}

// Validation says how agents measure what they hold out: a share of the run's items, or of their own file.
type Validation struct {
	Every       int     `yaml:"every" want:">=0" zero:"off" help:"batches of an agent from one measurement of what it holds out to the next; 0: off"`
	Temperature float64 `yaml:"temperature" want:">=0" zero:"greedy" help:"of the answers, one an item; 0: greedy"`
}

// withoutKeys are the keys of the workloads that agents have no use for.
var withoutKeys = []string{"ci_rl.grpo.recipe", "ci_rl.grpo.updates_per_rollout", "ci_rl.grpo.dynamic_sampling",
	"ci_rl.grpo.importance_cap", "ci_rl.split_column", "mappo.data.eval",
	"mappo.validation.temperature"}

// ofModel are the keys of the workload.
func (o *Options) ofModel() *OfModel {
	if o.Workload == MaPPOName {
		return &o.MaPPO.OfModel
	}
	return &o.CIRL.OfModel
}

// idleOfModels adds the keys without effect.
func (o *Options) idleOfModels(all config.Idle) {
	m, section := o.ofModel(), "ci_rl."
	add := func(when bool, key, why string) {
		if when {
			all.Add(why+"; remove it", key)
		}
	}
	if o.Workload == MaPPOName {
		section = "mappo."
		add(o.Local.LR != nil, "local.clip", "workload mappo has no such term")
		add(o.Local.LR != nil, "local.entropy", "workload mappo has no such term")
	}
	add(m.Split == lm.Equal && m.Column != "", section+"split_column",
		"split equal does not use it, only column and dirichlet do")
	add(m.Split != lm.Dirichlet, section+"dirichlet_alpha", "split "+m.Split+" does not use it, only dirichlet does")
	add(m.Validation.Every == 0, section+"validation.temperature", section+"validation.every 0 asks for no validation")
	natural := o.Method == protocol.FedNPG || o.Method == protocol.FedNPGADMM
	add(!natural, section+"memory_gb", o.Method+" makes no natural gradients, only fednpg and fednpg-admm do")
}

// world is what the agents of this process share: a model, and what they learn from.
type world struct {
	*OfModel
	o         *Options
	source    source
	reference bool // KL is measured to the weights at the start
	anchored  bool // their log-probs are compared with, so that all agents must have these weights
	model     *model.Model
	tokenizer *tokenizer.Tokenizer
	policy    *lm.Policy
	owned     [][]int // of the items to train on, by agent; one list: of this process's only agent
	heldBy    [][]int // of those held out
}

// source is what a workload's agents learn from. A server need not have it.
type source interface {
	// read reads the items to train on and those to hold out, and gives their classes.
	read(w *world) (train, held []string, err error)
	// agent makes the workload of an agent with some of them.
	agent(w *world, number int, own, held []int) protocol.Workload
}

// openWorld makes what the agents share, once.
func (o *Options) openWorld() error {
	if o.world != nil {
		return nil
	}
	w := &world{OfModel: o.ofModel(), o: o, source: &items{}, reference: o.CIRL.GRPO.NeedsReference()}
	if o.Workload == MaPPOName {
		w.source, w.reference, w.anchored = &pairs{}, false, !o.MaPPO.Loss.ReferenceFree()
	}
	err := w.load()
	if err == nil {
		o.world = w
	}
	return err
}

// load loads the model. The engine is opened when an agent needs it.
func (w *world) load() error {
	base, tokens, err := local.Load(w.Model)
	if err != nil {
		return err
	}
	w.tokenizer = tokens
	if w.model, err = w.Adapting.Adapt(base, w.Model, w.o.Seed); err == nil {
		err = w.identify()
	}
	if err != nil {
		base.Release() // w.model has its files, or is nil
	}
	return err
}

// identify makes the policy, with the hash of what is not trained: the architecture, the weights below an adapter, and
// the weights of a reference model, which training starts from.
func (w *world) identify() error {
	config, err := w.model.Config.JSON("float32")
	if err != nil {
		return err
	}
	base := ""
	if l := w.model.Config.LoRA; l != nil {
		base = fmt.Sprint(l.Base, l.Rank, l.Alpha, l.RSLoRA)
	} else if w.reference || w.anchored {
		if base, err = w.model.Hash(); err != nil {
			return err
		}
	}
	sum := sha256.Sum256(fmt.Appendf(config, "\n%s", base))
	w.policy, err = lm.NewPolicy(w.model, w.o.Workload+"/"+w.model.Config.ModelType, hex.EncodeToString(sum[:]), w.open)
	return err
}

// open puts the model into an engine.
func (w *world) open() (*lm.Opened, error) {
	spec, o := w.Backend, train.Defaults()
	recipe.ChooseBackend(&spec, w.Model, o, recipe.Devices{}, w.o.Workload == CIRLName, w.o.heard)
	load := func(string) (*model.Model, *tokenizer.Tokenizer, error) { return w.model, w.tokenizer, nil }
	opened, err := recipe.OpenModel(load, spec, w.Model, o, recipe.Devices{})
	if err != nil {
		return nil, err
	}
	recipe.ReportEngine(opened.Engine, w.o.heard)
	var reference []compute.Buffer
	learner, err := train.NewLearner(opened.Engine, w.model, opened.Graph)
	if err == nil && w.reference {
		if reference, err = learner.Upload(w.model); err != nil {
			learner.Close()
		}
	}
	if err != nil {
		opened.Engine.Close()
		return nil, err
	}
	sampler := rollout.NewCached(opened.Engine, w.model.Config, learner.Weights,
		rollout.Options{Graph: opened.Graph, Decoder: w.tokenizer})
	return &lm.Opened{Learner: learner, Sampler: sampler, Reference: reference, Release: func() {
		sampler.Close()
		backend.FinalizeAll(reference...)
		learner.Close()
		opened.Engine.Close()
	}}, nil
}

func (w *world) close() {
	w.policy.Close()
	w.model.Release()
}

// deal reads the items and gives them to the agents.
func (w *world) deal() error {
	classes, others, err := w.source.read(w)
	if err != nil {
		return err
	}
	how, agents := lm.Split{Kind: w.Split, Alpha: w.Alpha, Least: 1, Seed: w.o.Seed}, w.o.Agents
	if w.o.Workload == CIRLName {
		how.Least = w.o.CIRL.GRPO.Prompts
	}
	if w.o.items != "" {
		how, agents = lm.Split{Kind: lm.Equal}, 1
	}
	if w.owned, err = how.Deal(classes, agents); err == nil {
		w.heldBy = how.DealAlike(w.owned, classes, others)
	}
	return err
}

// agent makes the workload of an agent.
func (w *world) agent(number int) (protocol.Workload, error) {
	if w.owned == nil {
		if err := w.deal(); err != nil {
			return nil, err
		}
	}
	own := min(number, len(w.owned)-1)
	return w.source.agent(w, number, w.owned[own], w.heldBy[own]), nil
}

// write stores parameters as a model folder, or an adapter's.
func (w *world) write(folder *run.Folder, theta []float64) (path string, err error) {
	name, _ := w.result()
	x := train.Exporter{Model: w.model, Tokenizer: w.tokenizer}
	return folder.Path(name), folder.WriteResult(name, func(dir string) error {
		return x.WriteFlat(dir, federated.Narrow(theta), "")
	})
}

// result is the folder of the result, and the library that loads it.
func (w *world) result() (name, library string) {
	if w.Adapting.On() {
		return run.AdapterName, "peft"
	}
	return run.ModelName, "transformers"
}

// describe writes the model card.
func (w *world) describe(folder *run.Folder, text string) error {
	name, library := w.result()
	card := recipe.DeriveCard(w.Model, library, "Trained by posttrain federated", text)
	return folder.WriteFile(filepath.Join(name, recipe.CardName), []byte(card))
}
