package train

import (
	"math"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/model"
)

// graphStore keeps weights, moments and gradients in buffers of the engine's device; the update is a graph to which
// they are donated, so that nothing but the learning rate and the norm crosses over.
type graphStore struct {
	engine  *backend.Engine
	params  []*model.Param
	p, m, v []compute.Buffer
	grads   []compute.Buffer
	adder   *backend.Program
	updater *backend.Program
	rule    AdamW // what updater was compiled for
}

func newGraphStore(e *backend.Engine, m *model.Model) (*graphStore, error) {
	s := &graphStore{engine: e, params: m.Params}
	t := Tensors{}
	for _, p := range m.Params {
		zero := make([]float32, len(p.Data))
		t.Weights, t.First, t.Second = append(t.Weights, p.Data), append(t.First, zero), append(t.Second, zero)
	}
	return s, s.write(t)
}

func (s *graphStore) weights() []compute.Buffer { return s.p }

func (s *graphStore) add(grads []compute.Buffer) (err error) {
	if s.grads == nil {
		s.grads, err = s.fillZeros(grads)
		return err
	}
	if grads, err = s.fillZeros(grads); err != nil {
		return err
	}
	if s.adder == nil {
		if s.adder, err = s.engine.Compile("add gradients", s.addGraph); err != nil {
			return err
		}
	}
	s.grads, err = s.adder.Run(append(s.grads, grads...), slices.Repeat([]bool{true}, 2*len(grads)))
	return err
}

// fillZeros puts zeros where a parameter has no gradient.
func (s *graphStore) fillZeros(grads []compute.Buffer) ([]compute.Buffer, error) {
	out := slices.Clone(grads)
	for i, b := range out {
		if b != nil {
			continue
		}
		var err error
		if out[i], err = s.engine.Float32(make([]float32, len(s.params[i].Data)), s.params[i].Shape...); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *graphStore) addGraph(g *graph.Graph) []*graph.Node {
	a, b := s.declare(g, "a"), s.declare(g, "b")
	for i := range a {
		a[i] = graph.Add(a[i], b[i])
	}
	return a
}

func (s *graphStore) declare(g *graph.Graph, prefix string) []*graph.Node {
	nodes := make([]*graph.Node, len(s.params))
	for i, p := range s.params {
		nodes[i] = graph.Parameter(g, prefix+"/"+p.Name, shapeFloat32(p.Shape...))
	}
	return nodes
}

func (s *graphStore) addRows(int, []int32, []float32) {
	panic("rows are looked up in the graph on this engine")
}

func (s *graphStore) update(rule AdamW, t int, rate float64) (norm float64, err error) {
	if s.updater == nil || s.rule != rule {
		if s.updater != nil {
			s.updater.Close()
		}
		s.rule = rule
		if s.updater, err = s.engine.Compile("adamw", s.updateGraph); err != nil {
			return 0, err
		}
	}
	if s.grads == nil {
		if s.grads, err = s.fillZeros(make([]compute.Buffer, len(s.params))); err != nil {
			return 0, err
		}
	}
	f := rule.at(t, rate)
	numbers, err := s.engine.Float32([]float32{float32(f.decay), float32(f.step), float32(f.root)}, 3)
	if err != nil {
		return 0, err
	}
	in := slices.Concat([]compute.Buffer{numbers}, s.p, s.m, s.v, s.grads)
	s.grads = nil
	out, err := s.updater.Run(in, slices.Repeat([]bool{true}, len(in)))
	if err != nil {
		return 0, err
	}
	n := len(s.params)
	s.p, s.m, s.v = out[1:1+n], out[1+n:1+2*n], out[1+2*n:]
	return scalar(out[0])
}

func (s *graphStore) updateGraph(g *graph.Graph) []*graph.Node {
	numbers := graph.Parameter(g, "numbers", shapeFloat32(3))
	number := func(i int) *graph.Node {
		return graph.Reshape(graph.SliceAxis(numbers, 0, graph.AxisRange(i, i+1)))
	}
	p, m, v, grads := s.declare(g, "p"), s.declare(g, "m"), s.declare(g, "v"), s.declare(g, "g")
	norm := globalNorm(grads)
	clip := graph.ScalarOne(g, norm.DType())
	if s.rule.MaxNorm > 0 {
		clip = graph.Min(clip, graph.Div(graph.Scalar(g, norm.DType(), s.rule.MaxNorm), graph.AddScalar(norm, 1e-6)))
	}
	finite := graph.LessThan(norm, graph.Scalar(g, norm.DType(), math.MaxFloat32)) // false for NaN too
	for i := range p {
		decay := number(0)
		if s.params[i].NoDecay {
			decay = graph.ScalarOne(g, norm.DType())
		}
		gi := graph.Mul(grads[i], clip)
		mi := graph.Add(graph.MulScalar(m[i], s.rule.Beta1), graph.MulScalar(gi, 1-s.rule.Beta1))
		vi := graph.Add(graph.MulScalar(v[i], s.rule.Beta2), graph.MulScalar(graph.Mul(gi, gi), 1-s.rule.Beta2))
		root := graph.AddScalar(graph.Mul(graph.Sqrt(vi), number(2)), s.rule.Epsilon)
		pi := graph.Sub(graph.Mul(p[i], decay), graph.Div(graph.Mul(mi, number(1)), root))
		p[i], m[i], v[i] = choose(finite, pi, p[i]), choose(finite, mi, m[i]), choose(finite, vi, v[i])
	}
	return slices.Concat([]*graph.Node{norm}, p, m, v)
}

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

func choose(when, a, b *graph.Node) *graph.Node {
	return graph.Where(graph.BroadcastToDims(when, a.Shape().Dimensions...), a, b)
}

func (s *graphStore) read() (t Tensors, err error) {
	for _, part := range []struct {
		from []compute.Buffer
		to   *[][]float32
	}{{s.p, &t.Weights}, {s.m, &t.First}, {s.v, &t.Second}} {
		for i, b := range part.from {
			x := make([]float32, len(s.params[i].Data))
			if err := b.ToFlatData(x); err != nil {
				return t, err
			}
			*part.to = append(*part.to, x)
		}
	}
	return t, nil
}

func (s *graphStore) write(t Tensors) error {
	for _, part := range []struct {
		from [][]float32
		to   *[]compute.Buffer
	}{{t.Weights, &s.p}, {t.First, &s.m}, {t.Second, &s.v}} {
		backend.FinalizeAll(*part.to...)
		*part.to = nil
		for i, x := range part.from {
			b, err := s.engine.Float32(x, s.params[i].Shape...)
			if err != nil {
				return err
			}
			*part.to = append(*part.to, b)
		}
	}
	return nil
}

func (s *graphStore) close() {
	backend.FinalizeAll(slices.Concat(s.p, s.m, s.v, s.grads)...)
	for _, p := range []*backend.Program{s.adder, s.updater} {
		if p != nil {
			p.Close()
		}
	}
}

// scalar reads one float32 and gives the buffer back.
func scalar(b compute.Buffer) (float64, error) {
	x, err := take(b)
	if err != nil {
		return 0, err
	}
	return float64(x[0]), nil
}
