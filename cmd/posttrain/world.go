package main

import (
	"github.com/posttrain/posttrain/embedded"

	"fmt"
	"io/fs"
	"os"

	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/tokenizer"
	"github.com/posttrain/posttrain/train"
)

// world is what every training command works with.
type world struct {
	engine    *backend.Engine
	model     *model.Model
	tokenizer *tokenizer.Tokenizer
	graph     model.GraphOptions
}

// openWorld opens the engine, the model and its tokenizer, and checks that they fit.
func openWorld(engine, folder string, o train.Options) (*world, error) {
	m, t, err := loadModel(folder)
	if err != nil {
		return nil, err
	}
	e, err := backend.Open(engine)
	if err != nil {
		return nil, err
	}
	w := &world{engine: e, model: m, tokenizer: t}
	if w.graph, err = graphOptions(e, m, o); err != nil {
		e.Close()
		return nil, err
	}
	return w, nil
}

func (w *world) close() { w.engine.Close() }

// pinEngine replaces auto by the engine that it stands for here.
func pinEngine(spec *string) {
	if *spec == "auto" {
		*spec = backend.Auto()
	}
}

// loadModel loads a model folder, or the embedded one, with its tokenizer.
func loadModel(folder string) (*model.Model, *tokenizer.Tokenizer, error) {
	fsys, name, err := modelFS(folder)
	if err != nil {
		return nil, nil, err
	}
	m, err := model.LoadFS(fsys, name)
	if err != nil {
		return nil, nil, err
	}
	t, err := tokenizer.LoadFS(fsys, name)
	if err != nil {
		return nil, nil, err
	}
	return m, t, checkVocabulary(name, t, m.Config)
}

// checkVocabulary refuses a tokenizer with ids that the model does not know; the converse is common: tables are padded.
func checkVocabulary(name string, t *tokenizer.Tokenizer, c *model.Config) error {
	if t.Size() <= c.VocabSize {
		return nil
	}
	return fmt.Errorf("%s/tokenizer.json: ids go up to %d, but vocab_size in config.json is %d: tokenizer and model do not belong together", name, t.Size()-1, c.VocabSize)
}

// modelFS is the folder of a model, on disk or embedded, and its name for messages.
func modelFS(folder string) (fs.FS, string, error) {
	if folder != embedded.Name {
		return os.DirFS(folder), folder, nil
	}
	fsys, err := fs.Sub(embedded.Files, embedded.Model)
	return fsys, "embedded model", err
}

// graphOptions settles what the graph computes in.
func graphOptions(e *backend.Engine, m *model.Model, o train.Options) (model.GraphOptions, error) {
	g := model.GraphOptions{Checkpoint: o.GradientCheckpointing, DType: dtypes.Float32}
	switch {
	case o.DType == "bfloat16" && !e.Wants.BFloat16:
		return g, fmt.Errorf("train.dtype bfloat16: backend %s computes in float32: want auto or float32, or --backend xla", e.Name)
	case o.DType == "bfloat16", o.DType == "auto" && e.Wants.BFloat16 && m.Config.DType == "bfloat16":
		g.DType = dtypes.BFloat16
	}
	return g, nil
}

// tolerance is how far policy and reference may be apart at step 0.
func (w *world) tolerance() float64 {
	if w.graph.DType == dtypes.BFloat16 {
		return losses.ToleranceBFloat16
	}
	return losses.ToleranceFloat32
}

// saveDType is what the trained model is stored in.
func (w *world) saveDType(o train.Options) string {
	if o.SaveDType != "auto" {
		return o.SaveDType
	}
	return w.model.Config.DType
}
