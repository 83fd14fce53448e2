package train

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/model"
)

// hostStore keeps weights in buffers that the engine reads where they lie, and updates them in fused loops over host
// memory: no copy of a weight is ever made.
type hostStore struct {
	engine        *backend.Engine
	buffers       []compute.Buffer
	views         [][]float32 // the buffers' memory
	first, second [][]float32
	moments       []compute.Buffer // behind first and second
	grads         [][]float32
	owned         []compute.Buffer // buffers behind grads, nil where the gradient is our own memory
	noDecay       []bool
	widths        []int
	spans         []adamw.Span
}

func newHostStore(e *backend.Engine, m *model.Model) (*hostStore, error) {
	s := &hostStore{engine: e}
	for _, p := range m.Trained() {
		b, view, err := e.SharedFrom(p.Read, p.Shape...)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		s.buffers, s.views = append(s.buffers, b), append(s.views, view)
		s.noDecay = append(s.noDecay, p.NoDecay)
		s.widths = append(s.widths, p.Shape[len(p.Shape)-1])
	}
	s.grads, s.owned = make([][]float32, len(s.views)), make([]compute.Buffer, len(s.views))
	s.spans = adamw.Spans(s.views)
	return s, nil
}

func (s *hostStore) weights() []compute.Buffer { return s.buffers }

func (s *hostStore) sums() ([]compute.Buffer, bool, error) { return nil, false, nil }

func (s *hostStore) add(grads []compute.Buffer) error {
	more := make([][]float32, len(grads)) // what comes on top of gradients that are there
	defer func() {
		for i := range more {
			if more[i] != nil {
				grads[i].Finalize()
			}
		}
	}()
	for i, b := range grads {
		if b == nil {
			continue
		}
		g, err := backend.Floats(b)
		if err != nil {
			return err
		}
		if s.grads[i] == nil {
			s.grads[i], s.owned[i] = g, b
		} else {
			more[i] = g
		}
	}
	float.Parallel(len(s.spans), func(k int) {
		x := s.spans[k]
		if g := more[x.Tensor]; g != nil {
			plus(s.grads[x.Tensor][x.From:x.To], g[x.From:x.To])
		}
	})
	return nil
}

func (s *hostStore) addRows(table int, ids []int32, rows []float32) {
	if s.grads[table] == nil {
		s.grads[table] = make([]float32, len(s.views[table]))
	}
	w := s.widths[table]
	for k, id := range ids {
		plus(s.grads[table][int(id)*w:][:w], rows[k*w:][:w])
	}
}

func plus(dst, src []float32) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] += src[i]
	}
}

func (s *hostStore) gradient() (flat []float32, err error) {
	defer s.clear()
	for i, g := range s.grads {
		if g == nil {
			g = make([]float32, len(s.views[i]))
		}
		flat = append(flat, g...)
	}
	return flat, nil
}

func (s *hostStore) update(optimizer AdamW, t int, rate float64) (float64, error) {
	if optimizer.momentType() != dtypes.Float32 {
		return 0, errors.New("moments in bfloat16: this engine keeps them on the host, in float32: use xla")
	}
	defer s.clear()
	for i, g := range s.grads {
		if g == nil {
			s.grads[i] = make([]float32, len(s.views[i]))
		}
	}
	s.needMoments()
	state := adamw.State{Weights: s.views, First: s.first, Second: s.second, NoDecay: s.noDecay}
	return state.Update(optimizer.Options, s.grads, t, rate, float.Parallel), nil
}

// needMoments makes the moments, zero, at their first use: a reference model never has any.
func (s *hostStore) needMoments() {
	if s.first != nil {
		return
	}
	for _, v := range s.views {
		s.first, s.second = append(s.first, s.moment(len(v))), append(s.second, s.moment(len(v)))
	}
}

// moment is in the engine's memory. In Go's, the collector would leave as much garbage as there are moments.
func (s *hostStore) moment(n int) []float32 {
	b, view, err := s.engine.SharedFloat32(n)
	if err != nil {
		return make([]float32, n)
	}
	clear(view)
	s.moments = append(s.moments, b)
	return view
}

func (s *hostStore) clear() {
	for i, b := range s.owned {
		if b != nil {
			b.Finalize()
		}
		s.owned[i], s.grads[i] = nil, nil
	}
}

func (s *hostStore) read() (Tensors, error) {
	s.needMoments()
	return Tensors{clone(s.views), clone(s.first), clone(s.second)}, nil
}

func (s *hostStore) tensor(p storedPart, i int) ([]float32, error) {
	return s.parts(p)[i], nil
}

// parts are the tensors of a part, in memory of the store.
func (s *hostStore) parts(p storedPart) [][]float32 {
	if p != theWeights {
		s.needMoments()
	}
	return [][][]float32{s.views, s.first, s.second}[p]
}

func (s *hostStore) write(from tensorSource, parts ...storedPart) error {
	for _, p := range parts {
		for i, to := range s.parts(p) {
			x, err := from.tensor(p, i)
			if err != nil {
				return err
			}
			copy(to, x)
		}
	}
	return nil
}

func (s *hostStore) close() {
	s.clear()
	for _, b := range slices.Concat(s.buffers, s.moments) {
		b.Finalize()
	}
}

func clone(xs [][]float32) [][]float32 {
	out := slices.Clone(xs)
	float.Parallel(len(xs), func(i int) { out[i] = slices.Clone(xs[i]) })
	return out
}
