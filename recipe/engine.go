package recipe

import (
	"fmt"
	"runtime"

	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/tokenizer"
	"github.com/posttrain/posttrain/train"
)

// Opened is a model with its tokenizer in an open engine.
type Opened struct {
	Engine    *backend.Engine
	Model     *model.Model
	Tokenizer *tokenizer.Tokenizer
	Graph     model.GraphOptions
}

// Loader opens a model folder with its tokenizer.
type Loader func(folder string) (*model.Model, *tokenizer.Tokenizer, error)

// OpenModel opens the engine, the model and its tokenizer, and checks that they fit. A loader of nil is the loader of
// language models.
func OpenModel(load Loader, engine, folder string, o train.Options, d Devices) (*Opened, error) {
	if load == nil {
		load = local.Load
	}
	m, t, err := load(folder)
	if err != nil {
		return nil, err
	}
	e, err := backend.OpenMesh(engine, d.mesh())
	if err != nil {
		m.Release()
		return nil, err
	}
	w := &Opened{Engine: e, Model: m, Tokenizer: t}
	if d := e.Absent(); d != nil && m.HasWeights() {
		w.Close()
		return nil, fmt.Errorf("backend %s: %s is not there, so that nothing can be computed: want posttrain plan --device",
			engine, d.Name)
	}
	if err = m.Config.CheckMesh(e.Mesh, e.Shard == backend.ShardMoments); err == nil {
		w.Graph, err = graphOptions(e, m, o)
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Close closes the engine and the model's files.
func (w *Opened) Close() {
	w.Model.Release()
	w.Engine.Close()
}

// ChooseBackend replaces auto by the engine that it means on this machine for training a model, and says which and why.
func ChooseBackend(spec *string, folder string, o train.Options, d Devices, samples bool, r run.Reporter) {
	if *spec != "auto" {
		return
	}
	j := local.Job(folder)
	j.Sampling = samples
	j.BFloat16 = j.BFloat16 && o.DType == "auto"
	j.Must = o.DType == "bfloat16" || o.Moments == "bfloat16" || d.several()
	var why string
	var warning error
	*spec, why, warning = backend.Auto(j)
	ReportEngine(&backend.Engine{Name: *spec, Why: why, Warning: warning}, r)
}

// ReportEngine says why auto chose an engine, if it did, and what the engine has to warn of, now and later.
func ReportEngine(e *backend.Engine, r run.Reporter) {
	out := run.Listen(r)
	e.Report(out.Say, out.Warn)
	onnx := backend.List()[1]
	if e.Name == "go" && e.Why != "" && !onnx.Present && runtime.GOOS == "linux" { // measured: docs/speed.md
		out.Say("engine onnx would take a third to an eighth of the time: %s", onnx.HowToGet)
	}
}

// graphOptions chooses what the graph computes in.
func graphOptions(e *backend.Engine, m *model.Model, o train.Options) (model.GraphOptions, error) {
	g := model.GraphOptions{Checkpoint: o.GradientCheckpointing, DType: dtypes.Float32, Room: e.Wants.Room}
	switch {
	case o.Moments == "bfloat16" && !e.Wants.BFloat16:
		return g, fmt.Errorf("train.moments bfloat16: backend %s keeps them in float32: want float32, or --backend xla",
			e.Name)
	case o.DType == "bfloat16" && !e.Wants.BFloat16:
		return g, fmt.Errorf("train.dtype bfloat16: backend %s computes in float32: want auto or float32, or "+
			"--backend xla", e.Name)
	case o.DType == "bfloat16", o.DType == "auto" && e.Wants.BFloat16 && m.Config.DType == "bfloat16":
		g.DType = dtypes.BFloat16
	}
	return g, nil
}

// Tolerance is how far policy and reference may be apart at step 0.
func (w *Opened) Tolerance() float64 {
	if w.Graph.DType == dtypes.BFloat16 || w.Engine.Wants.TF32 {
		return losses.ToleranceBFloat16
	}
	return losses.ToleranceFloat32
}

// SaveDType is what the trained model is stored in. An adapter, which is small, keeps float32.
func (r *Run) SaveDType() string {
	switch {
	case r.Train.SaveDType != "auto":
		return r.Train.SaveDType
	case r.Model.Config.LoRA != nil:
		return "float32"
	}
	return r.Model.Config.DType
}
