package main

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout/local"
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
	m, t, err := local.Load(folder)
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
