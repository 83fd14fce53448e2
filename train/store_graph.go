package train

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/model"
)

// graphStore keeps weights, moments and gradients in buffers of the engine's device. What changes is donated to the
// program that changes it, so that an engine that can write over it needs no second copy.
//
// On a mesh with shard moments, p, m, v and grads are cut over its devices, and there is a copy of the weights
// that is not, which the gradient's program takes.
type graphStore struct {
	engine   *backend.Engine
	params   []*model.Param
	p, m, v  []compute.Buffer // m and v are nil until the first update
	copies   []compute.Buffer // of p; nil: p is not cut
	half     bool             // copies of matrices are in bfloat16
	grads    []compute.Buffer // nil until the first gradient
	summed   bool             // grads hold gradients since the last update
	programs *backend.Cache
}

func newGraphStore(e *backend.Engine, m *model.Model, u *backend.Uploader, half bool) (*graphStore, error) {
	s := newBufferless(e, m, half)
	for _, p := range s.params {
		if err := s.load(u, p); err != nil {
			s.close()
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return s, nil
}

// newBufferless is a store without buffers.
func newBufferless(e *backend.Engine, m *model.Model, half bool) *graphStore {
	return &graphStore{engine: e, params: m.Trained(), programs: e.NewCache(), half: half}
}

// cutState is how the float32 weight, the moments and the gradient of a parameter are cut over the engine's mesh.
func cutState(e *backend.Engine, p *model.Param) *distributed.ShardingSpec {
	if e.Shard == backend.ShardMoments {
		return model.CutState(e.Mesh, p.Shape)
	}
	return nil
}

// copyType is the type of the copy of a parameter.
func copyType(p *model.Param, half bool) dtypes.DType {
	if half && !p.NoDecay {
		return dtypes.BFloat16
	}
	return dtypes.Float32
}

func (s *graphStore) weights() []compute.Buffer {
	if s.copies != nil {
		return s.copies
	}
	return s.p
}

// load copies the model's next weight to the devices.
func (s *graphStore) load(u *backend.Uploader, p *model.Param) error {
	b, err := u.Floats(s.engine.On(cutState(s.engine, p)), dtypes.Float32, p.Read, p.Shape...)
	if err != nil {
		return err
	}
	s.p = append(s.p, b)
	if s.engine.Shard == backend.ShardMoments {
		b, err = u.Floats(s.engine.On(nil), copyType(p, s.half), p.Read, p.Shape...)
		s.copies = append(s.copies, b)
	}
	return err
}

// put copies a float32 weight, moment or gradient to the devices.
func (s *graphStore) put(i int, dtype dtypes.DType, x []float32) (compute.Buffer, error) {
	p := s.params[i]
	return s.engine.On(cutState(s.engine, p)).Floats(dtype, x, p.Shape...)
}

// putCopy copies a weight as the gradient's program takes it.
func (s *graphStore) putCopy(i int, x []float32) (err error) {
	if s.engine.Shard != backend.ShardMoments {
		return nil
	}
	p := s.params[i]
	backend.FinalizeAll(s.copies[i])
	s.copies[i], err = s.engine.On(nil).Floats(copyType(p, s.half), x, p.Shape...)
	return err
}

func (s *graphStore) sums() (sums []compute.Buffer, keep bool, err error) {
	if s.grads == nil {
		s.grads = make([]compute.Buffer, len(s.params))
		err = s.fill(s.grads, dtypes.Float32)
	}
	return s.grads, s.summed, err
}

func (s *graphStore) add(grads []compute.Buffer) error {
	s.grads, s.summed = slices.Clone(grads), true
	return s.fill(s.grads, dtypes.Float32)
}

// fill puts zeros where a parameter has no buffer.
func (s *graphStore) fill(buffers []compute.Buffer, dtype dtypes.DType) (err error) {
	for i, b := range buffers {
		if b != nil {
			continue
		}
		if buffers[i], err = s.put(i, dtype, make([]float32, s.params[i].Size())); err != nil {
			return err
		}
	}
	return nil
}

func (s *graphStore) addRows(int, []int32, []float32) {
	panic("rows are looked up in the graph on this engine")
}

func (s *graphStore) gradient() (flat []float32, err error) {
	defer func() { s.summed = false }()
	for i, p := range s.params {
		if !s.summed {
			flat = append(flat, make([]float32, p.Size())...)
			continue
		}
		g, err := backend.Floats(s.grads[i])
		if err != nil {
			return nil, err
		}
		flat = append(flat, g...)
	}
	return flat, nil
}

func (s *graphStore) update(optimizer AdamW, t int, rate float64) (norm float64, err error) {
	if !s.summed { // a batch that gave none, such as groups of equal rewards
		backend.FinalizeAll(s.grads...)
		s.grads = nil
	}
	if _, _, err := s.sums(); err != nil {
		return 0, err
	}
	s.summed = false
	if err := s.needMoments(optimizer.momentType()); err != nil {
		return 0, err
	}
	if norm, err = s.norm(); err != nil || !float.IsFinite(norm) {
		return norm, err
	}
	f := optimizer.At(t, rate)
	numbers, err := s.engine.Float32([]float32{float32(f.Decay), float32(f.Step), float32(f.Root),
		float32(optimizer.Clip(norm))}, 4)
	if err != nil {
		return 0, err
	}
	defer backend.FinalizeAll(numbers)
	return norm, s.step(optimizer, numbers, roundingSeed(t))
}

// needMoments makes the moments, zero, at their first use: a reference model never has any.
func (s *graphStore) needMoments(dtype dtypes.DType) error {
	if s.m != nil {
		return nil
	}
	s.m, s.v = make([]compute.Buffer, len(s.params)), make([]compute.Buffer, len(s.params))
	return cmp.Or(s.fill(s.m, dtype), s.fill(s.v, dtype))
}

// norm is the gradients' global norm.
func (s *graphStore) norm() (float64, error) {
	program, err := s.programs.Program("norm", func(g *graph.Graph) []*graph.Node {
		grads := make([]*graph.Node, len(s.params))
		for i, p := range s.params {
			grads[i] = graph.ShardedParameter(g, p.Name, shapeFloat32(p.Shape...), cutState(s.engine, p))
		}
		return []*graph.Node{globalNorm(grads)}
	})
	if err != nil {
		return 0, err
	}
	out, err := program.Run(s.grads, nil)
	if err != nil {
		return 0, err
	}
	return scalar(out[0])
}

// step updates all tensors in one program.
func (s *graphStore) step(optimizer AdamW, numbers compute.Buffer, seed int32) error {
	moment, err := dtypeOf(s.m[0])
	if err != nil {
		return err
	}
	program, err := s.updateProgram(updating{graphStore: s, optimizer: optimizer, moment: moment})
	if err != nil {
		return err
	}
	random, err := s.engine.Int32([]int32{seed}, 1)
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(random)
	out, err := program.Run(slices.Concat([]compute.Buffer{numbers, random}, s.grads, s.p, s.m, s.v, s.copies), nil)
	if err != nil {
		return err
	}
	n := len(s.params)
	s.p, s.m, s.v = out[:n], out[n:2*n], out[2*n:3*n]
	if s.copies != nil {
		s.copies = out[3*n:]
	}
	return nil
}

func (s *graphStore) updateProgram(u updating) (*backend.Program, error) {
	var cut []*distributed.ShardingSpec
	changed := 3 * len(s.params)
	for range 3 {
		for _, p := range s.params {
			cut = append(cut, cutState(s.engine, p))
		}
	}
	if s.engine.Shard == backend.ShardMoments {
		cut = append(cut, make([]*distributed.ShardingSpec, len(s.params))...)
		changed += len(s.params)
	}
	name := fmt.Sprint("adamw ", u.optimizer, u.moment)
	return s.programs.Program(name, u.graph, backend.DonateLast(changed), backend.CutLast(cut...))
}

func dtypeOf(b compute.Buffer) (dtypes.DType, error) {
	shape, err := b.Shape()
	return shape.DType, err
}

// updating is the program that updates the tensors.
type updating struct {
	*graphStore
	optimizer AdamW
	moment    dtypes.DType // of the moments that go in; what comes out has the type of the optimiser
}

// graph builds the update: numbers [4], seed [1], then gradients, weights and moments, and with shard moments copies of the
// weights; the new weights, moments and copies.
func (u updating) graph(g *graph.Graph) []*graph.Node {
	numbers, seed := graph.Parameter(g, "numbers", shapeFloat32(4)), graph.Parameter(g, "seed", shapeInt32(1))
	number := func(i int) *graph.Node {
		return graph.Reshape(graph.SliceAxis(numbers, 0, graph.AxisRange(i, i+1)))
	}
	declare := func(name string, dtype dtypes.DType) (nodes []*graph.Node) {
		for i, p := range u.params {
			shape := shapes.Make(dtype, p.Shape...)
			nodes = append(nodes, graph.ShardedParameter(g, fmt.Sprint(name, i), shape, cutState(u.engine, p)))
		}
		return nodes
	}
	grads, p := declare("g", dtypes.Float32), declare("p", dtypes.Float32)
	m, v := declare("m", u.moment), declare("v", u.moment)
	for i := range p {
		decay := number(0)
		if u.params[i].NoDecay {
			decay = graph.ScalarOne(g, dtypes.Float32)
		}
		if i > 0 { // else XLA makes a few kernels of hundreds of tensors, which take long to compile
			grads[i] = graph.OptimizationBarriers(grads[i], p[i-1])[0]
		}
		gi := graph.Mul(grads[i], number(3))
		mi := graph.Add(graph.MulScalar(float32s(m[i]), u.optimizer.Beta1), graph.MulScalar(gi, 1-u.optimizer.Beta1))
		vi := graph.Add(graph.MulScalar(float32s(v[i]), u.optimizer.Beta2),
			graph.MulScalar(graph.Mul(gi, gi), 1-u.optimizer.Beta2))
		root := graph.AddScalar(graph.Mul(graph.Sqrt(vi), number(2)), u.optimizer.Epsilon)
		p[i] = graph.Sub(graph.Mul(p[i], decay), graph.Div(graph.Mul(mi, number(1)), root))
		m[i], v[i] = u.round(mi, seed, 2*i), u.round(vi, seed, 2*i+1)
	}
	var copies []*graph.Node
	for i := 0; u.engine.Shard == backend.ShardMoments && i < len(p); i++ {
		shape := shapes.Make(copyType(u.params[i], u.half), u.params[i].Shape...)
		graph.Parameter(g, fmt.Sprint("copy", i), shape) // in whose memory the new one is
		copies = append(copies, graph.ConvertDType(p[i], shape.DType))
	}
	return slices.Concat(p, m, v, copies)
}

// round gives a moment the type in which it is kept.
func (u updating) round(x, seed *graph.Node, number int) *graph.Node {
	if u.optimizer.momentType() == dtypes.Float32 {
		return x
	}
	return roundAtRandom(x, graph.AddScalar(seed, number))
}

func float32s(x *graph.Node) *graph.Node { return graph.ConvertDType(x, dtypes.Float32) }

func globalNorm(grads []*graph.Node) *graph.Node {
	var sum *graph.Node
	for _, x := range grads {
		q := graph.ReduceAllSum(graph.ReduceSum(graph.Mul(x, x), -1)) // by rows first: go adds up naively in float32
		if sum == nil {
			sum = q
		} else {
			sum = graph.Add(sum, q)
		}
	}
	return graph.Sqrt(sum)
}

func (s *graphStore) read() (t Tensors, err error) {
	for p, to := range []*[][]float32{&t.Weights, &t.First, &t.Second} {
		for i := range s.params {
			x, err := s.tensor(storedPart(p), i)
			if err != nil {
				return t, err
			}
			*to = append(*to, x)
		}
	}
	return t, nil
}

// tensor copies a tensor to the host. Moments that were never used are zero.
func (s *graphStore) tensor(p storedPart, i int) ([]float32, error) {
	from := [][]compute.Buffer{s.p, s.m, s.v}[p]
	if from == nil {
		return make([]float32, s.params[i].Size()), nil
	}
	return backend.Floats(from[i])
}

func (s *graphStore) write(from tensorSource, parts ...storedPart) error {
	for p, to := range []*[]compute.Buffer{&s.p, &s.m, &s.v} {
		backend.FinalizeAll(*to...)
		*to = nil
		if !slices.Contains(parts, storedPart(p)) {
			continue
		}
		for i := range s.params {
			x, err := from.tensor(storedPart(p), i)
			if err != nil {
				return err
			}
			b, err := s.put(i, dtypes.Float32, x)
			if err != nil {
				return err
			}
			*to = append(*to, b)
			if storedPart(p) == theWeights {
				if err := s.putCopy(i, x); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *graphStore) close() {
	backend.FinalizeAll(slices.Concat(s.p, s.m, s.v, s.copies, s.grads)...)
	s.programs.Close()
}

// scalar reads one float32 and gives the buffer back.
func scalar(b compute.Buffer) (float64, error) {
	x, err := take(b)
	if err != nil {
		return 0, err
	}
	return float64(x[0]), nil
}
