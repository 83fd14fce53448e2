package train

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/run"
)

// Files of a checkpoint, beside run.State's. model/ is a model folder that anything can load; of a model with an
// adapter there is adapter/, which peft can load.
const (
	firstMoments  = "first_moments.safetensors"
	secondMoments = "second_moments.safetensors"
)

// Exporter writes model folders, or adapters where the model has one.
type Exporter struct {
	Model     *model.Model
	Tokenizer interface{ CopyTo(dir string) error } // nil: none is written
	MaxBytes  int64                                 // of the tensors in a file; 0: 5 GB
}

// folder is the name of what is exported.
func (x Exporter) folder() string {
	if x.Model.Config.LoRA != nil {
		return "adapter"
	}
	return "model"
}

// Write stores weights, in the order of the model's trained parameters, as a model folder or an adapter's.
func (x Exporter) Write(dir string, weights [][]float32, dtype string) error {
	return x.write(x.writer(nil), dir, Tensors{Weights: weights}, dtype)
}

func (x Exporter) writer(wrote run.Wrote) model.Writer {
	return model.Writer{MaxBytes: x.MaxBytes, Wrote: wrote}
}

func (x Exporter) write(w model.Writer, dir string, from source, dtype string) error {
	weights := func(i int) ([]float32, error) { return from.tensor(theWeights, i) }
	save := w.SaveFrom
	if x.Model.Config.LoRA != nil {
		save = saveAdapter(w)
	}
	if err := save(x.Model, dir, dtype, weights); err != nil {
		return err
	}
	if x.Tokenizer == nil {
		return nil
	}
	return x.Tokenizer.CopyTo(dir)
}

// writeCheckpoint stores weights and moments in a checkpoint under way. wrote may be nil.
func (x Exporter) writeCheckpoint(dir string, from source, wrote run.Wrote) error {
	if err := x.writeBest(dir, from, wrote); err != nil {
		return err
	}
	for name, p := range map[string]part{firstMoments: firstMoment, secondMoments: secondMoment} {
		if err := x.writer(wrote).WriteTensors(filepath.Join(dir, name), x.nameTensors(from, p), nil); err != nil {
			return err
		}
	}
	return nil
}

// saveAdapter writes a model's adapter, which is small.
func saveAdapter(w model.Writer) func(*model.Model, string, string, func(int) ([]float32, error)) error {
	return func(of *model.Model, dir, dtype string, weights func(int) ([]float32, error)) error {
		m := &model.Model{Config: of.Config, Params: slices.Clone(of.Params)}
		for i, p := range m.Trained() {
			data, err := weights(i)
			if err != nil {
				return err
			}
			q := *p
			q.Data, m.Trained()[i] = data, &q
		}
		return w.SaveAdapter(m, dir, dtype)
	}
}

// writeBest stores weights alone in a checkpoint under way. wrote may be nil.
func (x Exporter) writeBest(dir string, from source, wrote run.Wrote) error {
	dir = filepath.Join(dir, x.folder())
	if err := os.Mkdir(dir, 0o777); err != nil { // without its parents, which may have been taken away
		return err
	}
	return x.write(x.writer(wrote), dir, from, "float32")
}

func (x Exporter) nameTensors(from source, p part) []model.Tensor {
	tensors := make([]model.Tensor, len(x.Model.Trained()))
	for i, param := range x.Model.Trained() {
		read := func() ([]float32, error) { return from.tensor(p, i) }
		tensors[i] = model.Tensor{Name: param.Name, Shape: param.Shape, Read: read}
	}
	return tensors
}

// ReadBest reads the weights of a checkpoint.
func (x Exporter) ReadBest(dir string) (weights [][]float32, err error) {
	load := model.Load
	if x.Model.Config.LoRA != nil {
		load = x.Model.LoadAdapter
	}
	m, err := load(filepath.Join(dir, x.folder()))
	if err != nil {
		return nil, err
	}
	for _, p := range m.Trained() {
		weights = append(weights, p.Data)
	}
	return weights, nil
}

// ReadCheckpoint reads the weights and moments of a checkpoint.
func (x Exporter) ReadCheckpoint(dir string) (t Tensors, err error) {
	if t.Weights, err = x.ReadBest(dir); err != nil {
		return t, err
	}
	if t.First, err = x.moments(filepath.Join(dir, firstMoments)); err != nil {
		return t, err
	}
	t.Second, err = x.moments(filepath.Join(dir, secondMoments))
	return t, err
}

// moments reads tensors in the order of the model's trained parameters.
func (x Exporter) moments(path string) ([][]float32, error) {
	tensors, _, err := model.ReadTensors(path)
	if err != nil {
		return nil, err
	}
	byName := map[string][]float32{}
	for _, t := range tensors {
		byName[t.Name] = t.Floats
	}
	out := make([][]float32, len(x.Model.Trained()))
	for i, p := range x.Model.Trained() {
		if out[i] = byName[p.Name]; len(out[i]) != p.Size() {
			return nil, fmt.Errorf("%s: tensor %s has %d numbers: want %d", path, p.Name, len(out[i]), p.Size())
		}
	}
	return out, nil
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
