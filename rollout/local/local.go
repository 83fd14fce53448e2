// Package local opens models that answer in this process: a Hugging Face folder or the embedded model, with its
// tokenizer, on one of the engines.
package local

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/hub"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/tokenizer"
)

// FS is the folder of a model, on disk, in the cache of the hub or embedded, and its name for messages.
func FS(name string) (fs.FS, string, error) {
	if name == embedded.Name {
		fsys, err := fs.Sub(embedded.Files, embedded.Model)
		return fsys, "embedded model", err
	}
	folder, err := hub.Folder(name)
	if err == nil {
		err = checkFolder(folder)
	}
	return os.DirFS(folder), name, err
}

// checkFolder refuses what is no folder, and says what it may be.
func checkFolder(path string) error {
	info, err := os.Stat(path)
	switch ext := strings.ToLower(filepath.Ext(path)); {
	case err == nil && info.IsDir():
		return nil
	case err == nil && ext == ".gguf":
		return fmt.Errorf("%s: it is a GGUF file: want a folder, as posttrain model import %s --out DIR makes one", path, path)
	case err == nil:
		return fmt.Errorf("%s: it is a file: want the folder that holds it, with config.json and tokenizer.json", path)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: there is no such folder: want a folder with config.json, a model of the hub as org/name (such as "+
			"openai-community/gpt2), or embedded", path)
	}
	return fmt.Errorf("%s: %w", path, files.Cause(err))
}

// Load opens a language model's folder, or the embedded model, and loads its tokenizer. The weights stay in their files
// until they are asked for, or released.
func Load(folder string) (*model.Model, *tokenizer.Tokenizer, error) {
	m, t, err := LoadAny(folder)
	if err == nil && m.Config.Reward {
		m.Release()
		return nil, nil, fmt.Errorf("%s: it is a reward model (%s), which scores texts and writes none: want a "+
			"language model", folder, m.Config.Class())
	}
	return m, t, err
}

// LoadWeightless is Load of a weightless model (model.Weightless): it reads config.json and the tokenizer.
func LoadWeightless(folder string) (*model.Model, *tokenizer.Tokenizer, error) {
	return load(folder, func(fsys fs.FS, name string) (*model.Model, error) {
		c, err := model.ReadConfig(fsys, name)
		if err != nil {
			return nil, err
		}
		return model.Weightless(c), nil
	})
}

// LoadReward is Load of a reward model.
func LoadReward(folder string) (*model.Model, *tokenizer.Tokenizer, error) {
	m, t, err := LoadAny(folder)
	if err == nil && !m.Config.Reward {
		m.Release()
		return nil, nil, fmt.Errorf("%s: it is a language model (%s), which has no head that scores: want a reward "+
			"model, a folder of a class …ForSequenceClassification, as posttrain reward-model makes it", folder,
			m.Config.Class())
	}
	return m, t, err
}

// ToReward gives a language model a new head that scores, drawn from the seed. As in TRL, the tokenizer's pad token, or its
// end-of-text token, then is what a score passes over at the end of a text.
func ToReward(m *model.Model, t *tokenizer.Tokenizer, seed uint64) *model.Model {
	m = m.ToReward(seed)
	id, ok := t.Pad()
	if !ok {
		id, ok = t.EOS()
	}
	if m.Config.Pad = nil; ok {
		pad := int(id)
		m.Config.Pad = &pad
	}
	return m
}

// LoadAny is Load of a language model or of a reward model.
func LoadAny(folder string) (*model.Model, *tokenizer.Tokenizer, error) {
	return load(folder, model.OpenFS)
}

func load(folder string, open func(fs.FS, string) (*model.Model, error)) (*model.Model, *tokenizer.Tokenizer, error) {
	fsys, name, err := FS(folder)
	if err != nil {
		return nil, nil, err
	}
	m, err := open(fsys, name)
	if err != nil {
		return nil, nil, err
	}
	t, err := tokenizer.LoadFS(fsys, name)
	if err == nil {
		t.StopAt(m.Config.EOS)
		err = CheckVocabulary(name, t, m.Config)
	}
	if err != nil {
		m.Release()
		return nil, nil, err
	}
	return m, t, nil
}

// CheckVocabulary refuses a tokenizer with ids that the model does not know. The converse is common: embedding tables
// are padded.
func CheckVocabulary(name string, t *tokenizer.Tokenizer, c *model.Config) error {
	if t.Size() <= c.VocabSize {
		return nil
	}
	return fmt.Errorf("%s/tokenizer.json: ids go up to %d, but vocab_size in config.json is %d: "+
		"tokenizer and model do not belong together", name, t.Size()-1, c.VocabSize)
}

// Model is a loaded model with its sampler.
type Model struct {
	Engine    *backend.Engine
	Model     *model.Model
	Tokenizer *tokenizer.Tokenizer
	Sampler   *rollout.Cached
	weights   []compute.Buffer
	own       int // of the weights at the end: those that Close frees
	sampling  rollout.Options
	opened    Options
	folder    string   // of the weights
	stamp     []string // of the folder's weights when they were loaded
	adapted   bool     // the engine is another Model's
}

// Options say which model is opened, and where.
type Options struct {
	Backend string  // "auto", "onnx:LIBRARY" and so on
	Model   string  // its folder, or embedded
	Adapter string  // the folder of an adapter; "": none
	CacheGB float64 // see [rollout.Options]
	Chat    Chat    // what the chat template gets
}

// Open loads a model folder onto an engine.
func Open(engine, folder string) (*Model, error) {
	return OpenWith(Options{Backend: engine, Model: folder})
}

// OpenWith loads a model onto an engine. It computes in bfloat16 where the weights are stored in it and the engine
// prefers it, in float32 otherwise.
func OpenWith(o Options) (*Model, error) {
	m, t, err := Load(o.Model)
	if err != nil {
		return nil, err
	}
	defer release(m)
	if err := o.Chat.Apply(t, o.Adapter); err != nil {
		return nil, err
	}
	if o.Adapter != "" {
		if m, err = m.LoadAdapter(o.Adapter); err != nil {
			return nil, err
		}
	}
	e, err := open(o.Backend, jobOf(m.Config))
	if err != nil {
		return nil, err
	}
	graph := model.GraphOptions{DType: dtypes.Float32}
	if e.Wants.BFloat16 && m.Config.DType == "bfloat16" {
		graph.DType = dtypes.BFloat16
	}
	weights, err := rollout.Upload(e, m, graph)
	if err != nil {
		e.Close()
		return nil, err
	}
	opened := &Model{Engine: e, Model: m, Tokenizer: t, weights: weights, own: len(weights),
		sampling: rollout.Options{Graph: graph, Decoder: t, CacheGB: o.CacheGB}, opened: o, folder: o.Model,
		stamp: stampOf(o.Model)}
	live := func() []compute.Buffer { return opened.weights }
	opened.Sampler = rollout.NewCached(e, m.Config, live, opened.sampling)
	return opened, nil
}

// Reload replaces the weights by another folder's, of a model of the same shape. The sampler must not be at
// work, and models that Adapted made must be closed: they share the weights. After an error the weights are as they
// were.
func (m *Model) Reload(folder string) error {
	next, err := model.Open(folder)
	if err != nil {
		return err
	}
	defer release(next)
	same := func(a, b model.ParamSpec) bool { return a.Name == b.Name && slices.Equal(a.Shape, b.Shape) }
	if !slices.EqualFunc(next.Config.ParamSpecs(), m.Model.Config.ParamSpecs(), same) {
		return fmt.Errorf("%s: its weights have other shapes than those of the model that is served", folder)
	}
	if differs := next.Config.DiffersFrom(m.Model.Config); differs != "" {
		return fmt.Errorf("%s/config.json: it is another model than the one that is served: %s", folder, differs)
	}
	weights, err := rollout.Upload(m.Engine, next, m.sampling.Graph)
	if err != nil {
		return err
	}
	old := m.weights
	m.weights, m.folder, m.Model.Known, m.stamp = weights, folder, "", stampOf(folder)
	backend.FinalizeAll(old...)
	return nil
}

// identify finds out the hash of the weights. They were released, so they are read once more, if the folder still
// has them.
func (m *Model) identify() error {
	if m.Model.Known != "" {
		return nil
	}
	if !slices.Equal(m.stamp, stampOf(m.folder)) {
		return fmt.Errorf("%s has changed since the model was loaded", m.folder)
	}
	fsys, name, err := FS(m.folder)
	if err != nil {
		return err
	}
	base, err := model.OpenFS(fsys, name)
	if err != nil {
		return err
	}
	defer base.Release()
	m.Model.Known, err = base.Hash()
	return err
}

// stampOf has names, sizes and times of a folder's weights.
func stampOf(folder string) (stamp []string) {
	fsys, _, err := FS(folder)
	if err != nil {
		return nil
	}
	names, _ := fs.Glob(fsys, "*.safetensors") // the pattern is valid
	for _, name := range names {
		if info, err := fs.Stat(fsys, name); err == nil {
			stamp = append(stamp, fmt.Sprint(name, info.Size(), info.ModTime().UnixNano()))
		}
	}
	return stamp
}

// Adapted is the model with the adapter of a folder, and with the chat template there, see [Chat.Apply]. It shares engine
// and weights, and is closed before the model.
func (m *Model) Adapted(adapter string) (*Model, error) {
	unknown := m.identify()
	next, err := m.Model.LoadAdapter(adapter)
	if err != nil {
		return nil, err
	}
	if next.Config.LoRA.Base != "" && unknown != nil {
		return nil, fmt.Errorf("%s: whether it was trained on the model's weights cannot be seen: %w", adapter, unknown)
	}
	t, err := m.tokenizerOf(adapter)
	if err != nil {
		return nil, err
	}
	trained := next.Trained()
	own, err := rollout.Upload(m.Engine, &model.Model{Config: next.Config, Params: trained},
		m.sampling.Graph)
	if err != nil {
		return nil, err
	}
	a := &Model{Engine: m.Engine, Model: next, Tokenizer: t,
		weights: slices.Concat(m.weights[:next.Config.Frozen()], own),
		own:     len(own), sampling: m.sampling, adapted: true}
	live := func() []compute.Buffer { return a.weights }
	a.Sampler = rollout.NewCached(m.Engine, next.Config, live, m.sampling)
	return a, nil
}

// tokenizerOf is the tokenizer with the chat templates that an adapter is prompted with: the model's own one where they
// are the same.
func (m *Model) tokenizerOf(adapter string) (*tokenizer.Tokenizer, error) {
	fsys, name, err := FS(m.opened.Model)
	if err != nil {
		return nil, err
	}
	t, err := tokenizer.LoadFS(fsys, name)
	if err == nil {
		t.StopAt(m.Model.Config.EOS)
		err = m.opened.Chat.Apply(t, adapter)
	}
	if err == nil && maps.Equal(t.Templates(), m.Tokenizer.Templates()) {
		return m.Tokenizer, nil
	}
	return t, err
}

// open opens an engine to sample with.
func open(engine string, j backend.Job) (*backend.Engine, error) {
	if j.Sampling = true; engine == "auto" || engine == "" {
		return backend.OpenAuto(j)
	}
	return backend.Open(engine)
}

// Job is what the choice of an engine asks about a model folder. It is empty if its config cannot be read: loading the
// model says why.
func Job(folder string) (j backend.Job) {
	fsys, name, err := FS(folder)
	if err != nil {
		return j
	}
	c, err := model.ReadConfig(fsys, name)
	if err != nil {
		return j
	}
	return jobOf(c)
}

func jobOf(c *model.Config) backend.Job {
	return backend.Job{BFloat16: c.DType == "bfloat16", Parameters: c.ParamCount()}
}

// release closes the files of weights that an engine has, and gives back what reading them took, before prompts and
// caches need the memory.
func release(m *model.Model) {
	m.Release()
	debug.FreeOSMemory()
}

// Chat lets the model answer conversations; tick gets the number of those answered and may be nil.
func (m *Model) Chat(tick func(done int)) *ask.Local {
	return &ask.Local{Sampler: m.Sampler, Encoder: &batch.Encoder{Tokenizer: m.Tokenizer}, Tick: tick}
}

// Close frees the weights and the engine, or what an adapter added to them.
func (m *Model) Close() {
	m.Sampler.Close()
	backend.FinalizeAll(m.weights[len(m.weights)-m.own:]...)
	if !m.adapted {
		m.Engine.Close()
	}
}
