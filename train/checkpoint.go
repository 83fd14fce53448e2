package train

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/model"
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
}

// folder is the name of what is exported.
func (x Exporter) folder() string {
	if x.Model.Config.LoRA != nil {
		return "adapter"
	}
	return "model"
}

// Write stores the learner's weights as a model folder or an adapter's, one tensor at a time.
func (x Exporter) Write(dir string, l *Learner, dtype string) error {
	return x.writeFrom(model.Writer{}, dir, l.store, dtype)
}

// WriteFlat is Write of weights in the order of [Learner.Flat]; dtype "": as in the model's folder.
func (x Exporter) WriteFlat(dir string, flat []float32, dtype string) error {
	var t Tensors
	for _, p := range x.Model.Trained() {
		t.Weights, flat = append(t.Weights, flat[:p.Size()]), flat[p.Size():]
	}
	return x.writeFrom(model.Writer{}, dir, t, dtype)
}

func (x Exporter) writeFrom(w model.Writer, dir string, from tensorSource, dtype string) error {
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
func (x Exporter) writeCheckpoint(dir string, from tensorSource, wrote run.Wrote) error {
	if err := x.writeBest(dir, from, wrote); err != nil {
		return err
	}
	for name, p := range map[string]storedPart{firstMoments: firstMoment, secondMoments: secondMoment} {
		w := model.Writer{Wrote: wrote}
		if err := w.WriteTensors(filepath.Join(dir, name), x.nameTensors(from, p), nil); err != nil {
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
func (x Exporter) writeBest(dir string, from tensorSource, wrote run.Wrote) error {
	dir = filepath.Join(dir, x.folder())
	if err := os.Mkdir(dir, 0o777); err != nil { // without its parents, which may have been taken away
		return err
	}
	return x.writeFrom(model.Writer{Wrote: wrote}, dir, from, "float32")
}

func (x Exporter) nameTensors(from tensorSource, p storedPart) []model.Tensor {
	tensors := make([]model.Tensor, len(x.Model.Trained()))
	for i, param := range x.Model.Trained() {
		read := func() ([]float32, error) { return from.tensor(p, i) }
		tensors[i] = model.Tensor{Name: param.Name, Shape: param.Shape, Read: read}
	}
	return tensors
}

// saved is an open checkpoint, whose tensors are read when they are asked for, each into the memory of the one before.
type saved struct {
	params  []*model.Param // the model's trained ones
	weights *model.Model
	moments []*model.Stored // first and second; none of the best weights
	memory  []float32
}

// openBest opens the weights of a checkpoint.
func (x Exporter) openBest(dir string) (*saved, error) {
	open := model.Open
	if x.Model.Config.LoRA != nil {
		open = x.Model.LoadAdapter
	}
	m, err := open(filepath.Join(dir, x.folder()))
	if err != nil {
		return nil, err
	}
	s := &saved{params: x.Model.Trained(), weights: m, memory: make([]float32, m.Largest())}
	sameSize := func(p, q *model.Param) bool { return p.Size() == q.Size() }
	if !slices.EqualFunc(s.params, m.Trained(), sameSize) {
		s.close()
		return nil, fmt.Errorf("%s: its tensors have other sizes than the model's", filepath.Join(dir, x.folder()))
	}
	return s, nil
}

// openCheckpoint opens the weights and moments of a checkpoint.
func (x Exporter) openCheckpoint(dir string) (*saved, error) {
	s, err := x.openBest(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{firstMoments, secondMoments} {
		moments, err := model.OpenTensors(filepath.Join(dir, name))
		if err == nil {
			s.moments = append(s.moments, moments)
			err = s.check(moments)
		}
		if err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// check refuses moments that are not the parameters'.
func (s *saved) check(moments *model.Stored) error {
	for _, p := range s.params {
		if err := moments.Check(p.Name, p.Size()); err != nil {
			return err
		}
	}
	return nil
}

func (s *saved) tensor(p storedPart, i int) ([]float32, error) {
	to := s.memory[:s.params[i].Size()]
	if p == theWeights {
		return to, s.weights.Trained()[i].Read(to)
	}
	return to, s.moments[p-firstMoment].Read(s.params[i].Name, to)
}

func (s *saved) close() {
	if s.weights.Config.LoRA == nil { // an adapter's are in memory, and the rest is the model's
		s.weights.Release()
	}
	for _, m := range s.moments {
		m.Close()
	}
}

// Prefixes of the sums and weights of an unfinished metrics window in a checkpoint.
const sumOf, weightOf = "sum of ", "weight of "

// pack gives the sums and weights as a checkpoint keeps them.
func (m *Metrics) pack() run.Values {
	v := run.Values{}
	for name := range m.Sums {
		v[sumOf+name], v[weightOf+name] = m.Sums[name], m.Weights[name]
	}
	return v
}

// unpackMetrics reads what pack gave; other values are passed over.
func unpackMetrics(v run.Values) *Metrics {
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
