package train

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/run"
)

// Files of a checkpoint, beside run.State's. model/ is a model folder that anything can load.
const (
	checkpointModel = "model"
	firstMoments    = "first_moments.safetensors"
	secondMoments   = "second_moments.safetensors"
)

// Exporter writes model folders.
type Exporter struct {
	Model     *model.Model
	Tokenizer interface{ CopyTo(dir string) error } // nil: none is written
}

// Write stores weights, in the order of the model's parameters, as a model folder.
func (x Exporter) Write(dir string, weights [][]float32, dtype string) error {
	m := &model.Model{Config: x.Model.Config}
	for i, p := range x.Model.Params {
		q := *p
		q.Data = weights[i]
		m.Params = append(m.Params, &q)
	}
	if err := m.Save(dir, dtype); err != nil {
		return err
	}
	if x.Tokenizer == nil {
		return nil
	}
	return x.Tokenizer.CopyTo(dir)
}

// WriteCheckpoint stores weights and moments in a checkpoint under way.
func (x Exporter) WriteCheckpoint(dir string, t Tensors) error {
	if err := x.Write(filepath.Join(dir, checkpointModel), t.Weights, "float32"); err != nil {
		return err
	}
	for name, data := range map[string][][]float32{firstMoments: t.First, secondMoments: t.Second} {
		if err := model.WriteTensors(filepath.Join(dir, name), x.named(data), nil); err != nil {
			return err
		}
	}
	return nil
}

func (x Exporter) named(data [][]float32) []model.Tensor {
	tensors := make([]model.Tensor, len(data))
	for i, p := range x.Model.Params {
		tensors[i] = model.Tensor{Name: p.Name, Shape: p.Shape, Floats: data[i]}
	}
	return tensors
}

// ReadCheckpoint reads the weights and moments of a checkpoint.
func (x Exporter) ReadCheckpoint(dir string) (t Tensors, err error) {
	m, err := model.Load(filepath.Join(dir, checkpointModel))
	if err != nil {
		return t, err
	}
	for _, p := range m.Params {
		t.Weights = append(t.Weights, p.Data)
	}
	if t.First, err = x.moments(filepath.Join(dir, firstMoments)); err != nil {
		return t, err
	}
	t.Second, err = x.moments(filepath.Join(dir, secondMoments))
	return t, err
}

// moments reads tensors in the order of the model's parameters.
func (x Exporter) moments(path string) ([][]float32, error) {
	tensors, _, err := model.ReadTensors(path)
	if err != nil {
		return nil, err
	}
	byName := map[string][]float32{}
	for _, t := range tensors {
		byName[t.Name] = t.Floats
	}
	out := make([][]float32, len(x.Model.Params))
	for i, p := range x.Model.Params {
		if out[i] = byName[p.Name]; len(out[i]) != len(p.Data) {
			return nil, fmt.Errorf("%s: tensor %s has %d numbers: want %d", path, p.Name, len(out[i]), len(p.Data))
		}
	}
	return out, nil
}

// save writes a checkpoint of the present step and drops those that are not kept.
func (l *Loop) save(best bool) error {
	t, updates, err := l.Learner.Read()
	if err != nil {
		return err
	}
	state := l.state
	state.ConfigHash, state.Engine, state.Data = l.ConfigHash, l.Learner.Engine(), l.dataHash()
	state.Metrics = l.window.Pack()
	state.Metrics["tokens"], state.Metrics["updates"] = l.tokens, float64(updates)
	_, err = l.Folder.WriteCheckpoint(state.Step, func(dir string) error { return l.writeTensors(dir, t, state) })
	if err != nil {
		return err
	}
	if best {
		if err := l.Folder.MarkBest(state.Step, state.Best.Metric, state.Best.Value); err != nil {
			return err
		}
	}
	return l.Folder.Prune(l.Options.CheckpointKeep)
}

func (l *Loop) writeTensors(dir string, t Tensors, state run.State) error {
	if err := l.Export.WriteCheckpoint(dir, t); err != nil {
		return err
	}
	return state.Write(dir)
}

// Resume continues from the newest good checkpoint of the folder and returns its warnings. Metrics after it are cut:
// they are about to be measured again. A run that ended before its first checkpoint starts over.
func (l *Loop) Resume() ([]run.Warning, error) {
	return Resume(l.Folder, func(dir string) (run.State, error) {
		err := l.load(dir)
		return l.state, err
	})
}

// Resume has load read the newest good checkpoint of a run, and cuts from the folder what was logged after it. Its
// warnings are of the checkpoints passed over. A run that ended before its first checkpoint starts over.
func Resume(f *run.Folder, load func(dir string) (run.State, error)) ([]run.Warning, error) {
	c, warnings, err := f.Latest()
	if errors.Is(err, run.ErrNoCheckpoint) && len(warnings) == 0 {
		return nil, cut(f, -1)
	}
	if err != nil {
		return warnings, err
	}
	var state run.State
	err = f.ReadCheckpoint(c, func(dir string) (err error) {
		state, err = load(dir)
		return err
	})
	if err != nil {
		return warnings, err
	}
	if err := cut(f, state.Step); err != nil {
		return warnings, err
	}
	return warnings, f.RestoreBest(state.Best)
}

// cut removes what was logged after a step.
func cut(f *run.Folder, step int) error {
	if _, err := f.CutMetrics(step); err != nil {
		return err
	}
	return f.CutSamples(step)
}

func (l *Loop) load(dir string) (err error) {
	if l.state, err = run.ReadState(dir); err != nil {
		return err
	}
	if err := SameRun(l.state, run.State{Seed: l.Seed, ConfigHash: l.ConfigHash, Engine: l.Learner.Engine(), Data: l.dataHash()}); err != nil {
		return err
	}
	t, err := l.Export.ReadCheckpoint(dir)
	if err != nil {
		return err
	}
	l.tokens, l.window = l.state.Metrics["tokens"], UnpackMetrics(l.state.Metrics)
	return l.Learner.Write(t, int(l.state.Metrics["updates"]))
}

// SameRun refuses to go on with something else than a run was started with: it would be neither run. It compares seed,
// config, engine and data of the saved state with what they are now.
func SameRun(saved, now run.State) error {
	switch {
	case saved.Seed != now.Seed:
		return fmt.Errorf("the run was started with seed %d, now it is %d", saved.Seed, now.Seed)
	case saved.ConfigHash != now.ConfigHash:
		return errors.New("the config is not the one that the run was started with")
	case saved.Engine != now.Engine:
		return fmt.Errorf("the run was started on engine %s, now it is %s: engines round differently; name it with --backend %s", saved.Engine, now.Engine, saved.Engine)
	case saved.Data != now.Data:
		return errors.New("the training or evaluation data (or the tokenizer) has changed since the run was started: start a new run with --out DIR")
	}
	return nil
}

// Engine is the name of the engine that the learner computes with.
func (l *Learner) Engine() string { return l.engine.Name }

// BFloat16 tells whether the learner's graphs compute in bfloat16.
func (l *Learner) BFloat16() bool { return l.graph.DType == dtypes.BFloat16 }

// WithCheckpoint adds to a run's error which checkpoint of fewer steps than before it can go on from.
func WithCheckpoint(f *run.Folder, before int, err error) error {
	c, _, e := f.LatestBefore(before)
	if e != nil {
		return fmt.Errorf("%w (there is no good checkpoint yet)", err)
	}
	return fmt.Errorf("%w (the last good checkpoint is %s)", err, c.Dir)
}

// dataHash identifies the token ids of all examples, and the reward gaps of pairs.
func (l *Loop) dataHash() string {
	h := sha256.New()
	sets := []Examples{l.Train}
	if l.Eval != nil {
		sets = append(sets, *l.Eval)
	}
	for _, x := range sets {
		hashGroups(h, x.Groups)
		if m, ok := x.Method.(*Preference); ok {
			fmt.Fprintln(h, m.Gaps)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Prefixes of the sums and weights of an unfinished metrics window in a checkpoint.
const sumOf, weightOf = "sum of ", "weight of "

// Pack gives the sums and weights as a checkpoint keeps them.
func (m *Metrics) Pack() run.Values {
	v := run.Values{}
	for name := range m.Sums {
		v[sumOf+name], v[weightOf+name] = m.Sums[name], m.Weights[name]
	}
	return v
}

// UnpackMetrics reads what Pack gave; other values are passed over.
func UnpackMetrics(v run.Values) *Metrics {
	m := NewMetrics()
	for name, x := range v {
		if base, ok := strings.CutPrefix(name, sumOf); ok {
			m.Sums[base] = x
		} else if base, ok := strings.CutPrefix(name, weightOf); ok {
			m.Weights[base] = x
		}
	}
	return m
}
