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

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/model"
)

// graphStore keeps weights, moments and gradients in buffers of the engine's device. What changes is donated to the
// program that changes it, so that an engine that can write over it needs no second copy. Other engines have old and
// new state side by side, but of one group of tensors alone, since an update goes group by group.
//
// On a mesh with shard moments, p, m, v and grads are cut over its devices, and there is a copy of the weights
// that is not, which the gradient's program takes.
type graphStore struct {
	engine   *backend.Engine
	params   []*model.Param
	groups   [][]int          // of params
	p, m, v  []compute.Buffer // m and v are nil until the first update
	copies   []compute.Buffer // of p; nil: p is not cut
	half     bool             // copies of matrices are in bfloat16
	grads    []compute.Buffer // nil until the first gradient
	summed   bool             // grads hold gradients since the last update
	programs *backend.Cache
}

func newGraphStore(e *backend.Engine, m *model.Model, u *backend.Uploader, half bool) (*graphStore, error) {
	s := newGroups(e, m, half)
	for _, p := range s.params {
		if err := s.load(u, p); err != nil {
			s.close()
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return s, nil
}

// newGroups is a store without buffers.
func newGroups(e *backend.Engine, m *model.Model, half bool) *graphStore {
	s := &graphStore{engine: e, params: m.Trained(), programs: e.NewCache(), half: half}
	s.groups = groupTensors(s.params, func(p *model.Param) string { return cutState(e, p).String() })
	return s
}

// cutState is how the float32 weight, the moments and the gradient of a parameter are cut over the engine's mesh.
func cutState(e *backend.Engine, p *model.Param) *distributed.ShardingSpec {
	if e.Shard == backend.ShardMoments {
		return model.CutState(e.Mesh, p.Shape)
	}
	return nil
}

// groupTensors cuts tensors into groups that are updated together: tensors of one shape, cut alike, so that many groups
// share a program.
func groupTensors(params []*model.Param, cut func(*model.Param) string) (groups [][]int) {
	byShape, total := map[string][]int{}, 0
	for i, p := range params {
		key := fmt.Sprint(p.Shape, p.NoDecay, cut(p))
		byShape[key] = append(byShape[key], i)
		total += p.Size()
	}
	most := max(total/32, 1<<22) // elements of a group
	for _, same := range byShape {
		n := max(1, most/params[same[0]].Size())
		pieces := (len(same) + n - 1) / n
		groups = slices.AppendSeq(groups, slices.Chunk(same, (len(same)+pieces-1)/pieces))
	}
	slices.SortFunc(groups, func(a, b []int) int {
		return cmp.Or(cmp.Compare(params[a[0]].Size(), params[b[0]].Size()), cmp.Compare(a[0], b[0]))
	})
	return groups
}

func (s *graphStore) weights() []compute.Buffer {
	if s.copies != nil {
		return s.copies
	}
	return s.p
}

// copyType is the type of the copy of a parameter.
func copyType(p *model.Param, half bool) dtypes.DType {
	if half && !p.NoDecay {
		return dtypes.BFloat16
	}
	return dtypes.Float32
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
	for k, group := range s.groups {
		if err := s.updateGroup(group, optimizer, numbers, roundingSeed(t, k)); err != nil {
			return 0, err
		}
	}
	return norm, nil
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

// updateGroup updates the tensors of a group.
func (s *graphStore) updateGroup(group []int, optimizer AdamW, numbers compute.Buffer, seed int32) error {
	moment, err := dtypeOf(s.m[group[0]])
	if err != nil {
		return err
	}
	if s.copies != nil {
		backend.FinalizeAll(data.Pick(s.copies, group)...)
	}
	program, err := s.updateProgram(group, optimizer, moment)
	if err != nil {
		return err
	}
	random, err := s.engine.Int32([]int32{seed}, 1)
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(random)
	in := []compute.Buffer{numbers, random}
	for _, part := range [][]compute.Buffer{s.grads, s.p, s.m, s.v} {
		in = append(in, data.Pick(part, group)...)
	}
	out, err := program.Run(in, nil)
	if err != nil {
		return err
	}
	for k, i := range group {
		s.p[i], s.m[i], s.v[i] = out[k], out[len(group)+k], out[2*len(group)+k]
		if s.copies != nil {
			s.copies[i] = out[3*len(group)+k]
		}
	}
	return nil
}

// updateProgram is the program of a group whose moments have a type.
func (s *graphStore) updateProgram(group []int, optimizer AdamW, moment dtypes.DType) (*backend.Program, error) {
	first := s.params[group[0]]
	u := groupUpdate{optimizer: optimizer, param: first, n: len(group), cut: cutState(s.engine, first), moment: moment}
	cut := slices.Repeat([]*distributed.ShardingSpec{u.cut}, 3*u.n)
	if s.engine.Shard == backend.ShardMoments {
		u.copies = copyType(first, s.half)
		cut = append(cut, make([]*distributed.ShardingSpec, u.n)...)
	}
	return s.programs.Program("adamw "+u.String(), u.graph, backend.DonateLast(3*u.n), backend.CutLast(cut...))
}

func dtypeOf(b compute.Buffer) (dtypes.DType, error) {
	shape, err := b.Shape()
	return shape.DType, err
}

// groupUpdate is the program that updates n tensors of one shape.
type groupUpdate struct {
	optimizer AdamW
	param     *model.Param
	n         int
	moment    dtypes.DType // of the moments that go in; what comes out has the type of the optimiser
	cut       *distributed.ShardingSpec
	copies    dtypes.DType // of copies of the weights, which come last; InvalidDType: no copies
}

// String is the key of the compiled program.
func (u groupUpdate) String() string {
	return fmt.Sprint(u.optimizer, u.param.Shape, u.param.NoDecay, u.n, u.moment, u.cut, u.copies)
}

// graph builds the update: numbers [4], seed [1], then gradients, weights and moments; the new weights and moments, and
// copies of the weights.
func (u groupUpdate) graph(g *graph.Graph) []*graph.Node {
	numbers, seed := graph.Parameter(g, "numbers", shapeFloat32(4)), graph.Parameter(g, "seed", shapeInt32(1))
	number := func(i int) *graph.Node {
		return graph.Reshape(graph.SliceAxis(numbers, 0, graph.AxisRange(i, i+1)))
	}
	declare := func(name string, dtype dtypes.DType) []*graph.Node {
		nodes := make([]*graph.Node, u.n)
		for i := range nodes {
			nodes[i] = graph.ShardedParameter(g, fmt.Sprint(name, i), shapes.Make(dtype, u.param.Shape...), u.cut)
		}
		return nodes
	}
	decay := number(0)
	if u.param.NoDecay {
		decay = graph.ScalarOne(g, dtypes.Float32)
	}
	grads, p := declare("g", dtypes.Float32), declare("p", dtypes.Float32)
	m, v := declare("m", u.moment), declare("v", u.moment)
	for i := range p {
		gi := graph.Mul(grads[i], number(3))
		mi := graph.Add(graph.MulScalar(float32s(m[i]), u.optimizer.Beta1), graph.MulScalar(gi, 1-u.optimizer.Beta1))
		vi := graph.Add(graph.MulScalar(float32s(v[i]), u.optimizer.Beta2),
			graph.MulScalar(graph.Mul(gi, gi), 1-u.optimizer.Beta2))
		root := graph.AddScalar(graph.Mul(graph.Sqrt(vi), number(2)), u.optimizer.Epsilon)
		p[i] = graph.Sub(graph.Mul(p[i], decay), graph.Div(graph.Mul(mi, number(1)), root))
		m[i], v[i] = u.round(mi, seed, 2*i), u.round(vi, seed, 2*i+1)
	}
	var copies []*graph.Node
	for i := 0; u.copies != dtypes.InvalidDType && i < u.n; i++ {
		copies = append(copies, graph.ConvertDType(p[i], u.copies))
	}
	return slices.Concat(p, m, v, copies)
}

// round gives a moment the type in which it is kept.
func (u groupUpdate) round(x, seed *graph.Node, number int) *graph.Node {
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
