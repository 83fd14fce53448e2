package train

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/model"
)

// NewWeightless is a learner of a weightless model: it can lay out and count batches and compile programs, and holds no
// memory of the model's size.
func NewWeightless(e *backend.Engine, m *model.Model, o model.GraphOptions) (*Learner, error) {
	if err := m.Config.CheckMesh(e.Mesh, e.Shard == backend.ShardMoments); err != nil {
		return nil, err
	}
	frozen := make([]compute.Buffer, len(m.Config.Held())-len(m.Trained()))
	l := &Learner{engine: e, model: m, graph: o, frozen: frozen, programs: e.NewCache()}
	l.store = newWeightlessStore(e, m, l.BFloat16())
	return l, nil
}

// weightlessStore is a graphStore of a weightless model.
type weightlessStore struct{ *graphStore }

func newWeightlessStore(e *backend.Engine, m *model.Model, half bool) weightlessStore {
	return weightlessStore{newBufferless(e, m, half)}
}

func (s weightlessStore) weights() []compute.Buffer {
	dtype := dtypes.Float32
	if s.engine.Shard == backend.ShardMoments {
		dtype = copyType(s.params[0], s.half)
	}
	return []compute.Buffer{shaped{shape: shapes.Make(dtype, s.params[0].Shape...)}}
}

// shaped is a buffer that can only say its shape.
type shaped struct {
	compute.Buffer
	shape shapes.Shape
}

func (s shaped) Shape() (shapes.Shape, error) { return s.shape, nil }
