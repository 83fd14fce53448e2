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

// checkAlpha refuses the concentration of shares that a split does not draw. The prefix is that of the workload's keys.
func checkAlpha(g *config.Given, prefix, split string, alpha float64) {
	if key := prefix + "dirichlet_alpha"; g.Has(key) && split != lm.Dirichlet {
		g.Fault(key, "%s %v: split %s does not use it; remove it, or want split dirichlet", key, alpha, split)
	}
}

// world is what the agents of this process share in a workload of language models.
type world interface {
	modelTask() *lm.Policy
	agent(number int) (protocol.Workload, error) // the first one reads the data, which a server need not have
	write(folder *run.Folder, theta []float64) (path string, err error)
	describe(folder *run.Folder, text string) error // writes the model card
	close()
}

// trained is the model of a world.
type trained struct {
	o         *Options
	name      string // of the workload
	folder    string // of the model
	adapting  recipe.Adapting
	backend   string
	samples   bool // agents sample from it
	reference bool // KL is measured to it
	anchored  bool // log-probs of the weights at the start are compared with, so that all agents must have these
	model     *model.Model
	tokenizer *tokenizer.Tokenizer
	policy    *lm.Policy
}

// modelTask is what the server and the agents have in common.
func (w *trained) modelTask() *lm.Policy { return w.policy }

// load loads the model.
func (w *trained) load() error {
	base, tokens, err := local.Load(w.folder)
	if err != nil {
		return err
	}
	w.tokenizer = tokens
	if w.model, err = w.adapting.Adapt(base, w.folder, w.o.Seed); err == nil {
		w.policy, err = w.newPolicy()
	}
	if err != nil {
		base.Release() // w.model has its files, or is nil
	}
	return err
}

// newPolicy has the hash of what is not trained: the architecture, the weights below an adapter, and those of a
// reference model, which are the weights that training starts from.
func (w *trained) newPolicy() (*lm.Policy, error) {
	config, err := w.model.Config.JSON("float32")
	if err != nil {
		return nil, err
	}
	base := ""
	if l := w.model.Config.LoRA; l != nil {
		base = fmt.Sprint(l.Base, l.Rank, l.Alpha, l.RSLoRA)
	} else if w.reference || w.anchored {
		if base, err = w.model.Hash(); err != nil {
			return nil, err
		}
	}
	sum := sha256.Sum256(fmt.Appendf(config, "\n%s", base))
	return lm.NewPolicy(w.model, w.name+"/"+w.model.Config.ModelType, hex.EncodeToString(sum[:]), w.open)
}

// open puts the model into an engine.
func (w *trained) open() (*lm.Opened, error) {
	spec, o := w.backend, train.Defaults()
	recipe.ChooseBackend(&spec, w.folder, o, recipe.Devices{}, w.samples, w.o.heard)
	load := func(string) (*model.Model, *tokenizer.Tokenizer, error) { return w.model, w.tokenizer, nil }
	opened, err := recipe.OpenModel(load, spec, w.folder, o, recipe.Devices{})
	if err != nil {
		return nil, err
	}
	recipe.ReportEngine(opened.Engine, w.o.heard)
	learner, err := train.NewLearner(opened.Engine, w.model, opened.Graph)
	if err != nil {
		opened.Engine.Close()
		return nil, err
	}
	var reference []compute.Buffer
	if w.reference {
		if reference, err = learner.Upload(w.model); err != nil {
			learner.Close()
			opened.Engine.Close()
			return nil, err
		}
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

func (w *trained) close() {
	w.policy.Close()
	w.model.Release()
}

// write stores parameters as a model folder, or an adapter's.
func (w *trained) write(folder *run.Folder, theta []float64) (path string, err error) {
	name, _ := w.result()
	x := train.Exporter{Model: w.model, Tokenizer: w.tokenizer}
	return folder.Path(name), folder.WriteResult(name, func(dir string) error {
		return x.WriteFlat(dir, federated.Narrow(theta), "")
	})
}

// result is the folder of the result, and the library that loads it.
func (w *trained) result() (name, library string) {
	if w.adapting.On() {
		return run.AdapterName, "peft"
	}
	return run.ModelName, "transformers"
}

func (w *trained) describe(folder *run.Folder, text string) error {
	name, library := w.result()
	card := recipe.DeriveCard(w.folder, library, "Trained by posttrain federated", text)
	return folder.WriteFile(filepath.Join(name, recipe.CardName), []byte(card))
}
