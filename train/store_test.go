package train

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

// kinds are the implementations of store, whatever the engine wants for itself.
var kinds = map[string]func(*backend.Engine, *model.Model) (store, error){
	"host": func(e *backend.Engine, m *model.Model) (store, error) { return newHostStore(e, m) },
	"graph": func(e *backend.Engine, m *model.Model) (store, error) {
		return newGraphStore(e, m, backend.NewUploader(m.Largest()), false)
	},
}

var everything = []storedPart{theWeights, firstMoment, secondMoment}

// everyStore runs a test on every implementation on every engine that can have it.
func everyStore(t *testing.T, m *model.Model, f func(t *testing.T, e *backend.Engine, s store)) {
	for _, e := range backendtest.Engines(t) {
		for kind, make := range kinds {
			if kind == "host" && !e.Wants.SharedMemory {
				continue
			}
			t.Run(e.Name+"/"+kind, func(t *testing.T) {
				s := expect.Must(make(e, m))(t)
				defer s.close()
				f(t, e, s)
			})
		}
	}
}

func twoParams(r *rand.Rand) *model.Model {
	m := &model.Model{}
	for _, p := range []model.Param{{Name: "w", Shape: []int{300, 400}}, {Name: "norm", Shape: []int{7},
		NoDecay: true}} {
		p.Data = random(r, shapeFloat32(p.Shape...).Size())
		m.Params = append(m.Params, &p)
	}
	return m
}

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// reference is AdamW after clipping in float64, by the textbook.
type reference struct{ p, m, v [][]float64 }

func newReference(m *model.Model) *reference {
	r := &reference{}
	for _, p := range m.Params {
		w := make([]float64, len(p.Data))
		for i, x := range p.Data {
			w[i] = float64(x)
		}
		r.p, r.m, r.v = append(r.p, w), append(r.m, make([]float64, len(w))), append(r.v, make([]float64, len(w)))
	}
	return r
}

func (r *reference) update(m *model.Model, grads [][]float64, optimizer AdamW, t int, rate float64) float64 {
	norm := 0.0
	for _, g := range grads {
		for _, x := range g {
			norm += x * x
		}
	}
	norm = math.Sqrt(norm)
	clip := 1.0
	if optimizer.MaxNorm > 0 && norm+1e-6 > optimizer.MaxNorm {
		clip = optimizer.MaxNorm / (norm + 1e-6)
	}
	for k, g := range grads {
		for i, x := range g {
			x *= clip
			r.m[k][i] = optimizer.Beta1*r.m[k][i] + (1-optimizer.Beta1)*x
			r.v[k][i] = optimizer.Beta2*r.v[k][i] + (1-optimizer.Beta2)*x*x
			mhat := r.m[k][i] / (1 - math.Pow(optimizer.Beta1, float64(t)))
			vhat := r.v[k][i] / (1 - math.Pow(optimizer.Beta2, float64(t)))
			if !m.Params[k].NoDecay {
				r.p[k][i] -= rate * optimizer.WeightDecay * r.p[k][i]
			}
			r.p[k][i] -= rate * mhat / (math.Sqrt(vhat) + optimizer.Epsilon)
		}
	}
	return norm
}

func TestUpdateEqualsFloat64(t *testing.T) {
	for _, maxNorm := range []float64{0, 1, 1e9} {
		optimizer := AdamW{Options: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.1,
			MaxNorm: maxNorm}}
		t.Run(fmt.Sprint("max norm ", maxNorm), func(t *testing.T) {
			m := twoParams(rand.New(rand.NewPCG(1, 1)))
			everyStore(t, m, func(t *testing.T, e *backend.Engine, s store) { followReference(t, e, s, m, optimizer) })
		})
	}
}

func followReference(t *testing.T, e *backend.Engine, s store, m *model.Model, optimizer AdamW) {
	r := rand.New(rand.NewPCG(2, 2))
	ref := newReference(m)
	for step := 1; step <= 6; step++ {
		sum := addRandom(t, e, s, m, r, step%4) // none at step 4: momentum moves the weights on
		rate := 0.01 * float64(step)
		want := ref.update(m, sum, optimizer, step, rate)
		norm := expect.Must(s.update(optimizer, step, rate))(t)
		if math.Abs(norm-want) > 1e-5*want {
			t.Fatalf("step %d: norm %v: want %v", step, norm, want)
		}
	}
	got := expect.Must(s.read())(t)
	for name, pair := range map[string]struct {
		got  [][]float32
		want [][]float64
	}{"weights": {got.Weights, ref.p}, "first": {got.First, ref.m}, "second": {got.Second, ref.v}} {
		near(t, name, pair.got, pair.want, 1e-5)
	}
}

// addRandom adds n random gradients and returns their sum.
func addRandom(t *testing.T, e *backend.Engine, s store, m *model.Model, r *rand.Rand, n int) [][]float64 {
	t.Helper()
	sum := make([][]float64, len(m.Params))
	for i, p := range m.Params {
		sum[i] = make([]float64, len(p.Data))
	}
	for range n {
		grads := make([]compute.Buffer, len(m.Params))
		for i, p := range m.Params {
			x := random(r, len(p.Data))
			for k := range x {
				sum[i][k] += float64(x[k])
			}
			if sums, keep, err := s.sums(); keep { // as a gradient program does
				before := expect.Must(backend.Floats(sums[i]))(t)
				plus(x, before)
			} else if err != nil {
				t.Fatal(err)
			}
			grads[i] = expect.Must(e.Float32(x, p.Shape...))(t)
		}
		expect.OK(t, s.add(grads))
	}
	return sum
}

func near(t *testing.T, name string, got [][]float32, want [][]float64, tolerance float64) {
	t.Helper()
	for k := range want {
		for i := range want[k] {
			if d := math.Abs(float64(got[k][i]) - want[k][i]); d > tolerance*(1+math.Abs(want[k][i])) {
				t.Fatalf("%s[%d][%d] is %v: want %v", name, k, i, got[k][i], want[k][i])
			}
		}
	}
}

func TestUpdateWithABrokenNormChangesNothing(t *testing.T) {
	m := twoParams(rand.New(rand.NewPCG(1, 1)))
	optimizer := AdamW{Options: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.1, MaxNorm: 1}}
	everyStore(t, m, func(t *testing.T, e *backend.Engine, s store) {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
			x := make([]float32, 7)
			x[3] = bad
			b := expect.Must(e.Float32(x, 7))(t)
			expect.OK(t, s.add([]compute.Buffer{nil, b}))
			norm, err := s.update(optimizer, 1, 0.1)
			if err != nil || float.IsFinite(norm) {
				t.Fatalf("norm %v, error %v: want a norm that is not finite", norm, err)
			}
		}
		got := expect.Must(s.read())(t)
		ref := newReference(m)
		near(t, "weights", got.Weights, ref.p, 0)
		near(t, "moments", got.First, ref.m, 0)
	})
}

// TestGradientIsTakenOnce: it is the sum since it was taken before, one tensor after the other; at first it is zero.
func TestGradientIsTakenOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 1))
	m := twoParams(r)
	everyStore(t, m, func(t *testing.T, e *backend.Engine, s store) {
		for _, n := range []int{0, 2, 1, 0} {
			want := addRandom(t, e, s, m, r, n)
			got, err := s.gradient()
			if size := len(want[0]) + len(want[1]); err != nil || len(got) != size {
				t.Fatalf("%d numbers, %v: want %d", len(got), err, size)
			}
			near(t, "gradient", [][]float32{got[:len(want[0])], got[len(want[0]):]}, want, 1e-6)
		}
	})
}

func TestStoreReadsWhatWasWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	m := twoParams(r)
	want := Tensors{}
	for _, part := range []*[][]float32{&want.Weights, &want.First, &want.Second} {
		for _, p := range m.Params {
			*part = append(*part, random(r, len(p.Data)))
		}
	}
	everyStore(t, m, func(t *testing.T, e *backend.Engine, s store) {
		expect.OK(t, s.write(want, everything...))
		got := expect.Must(s.read())(t)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Error("weights or moments differ from what was written")
		}
		if err := s.write(Tensors{Weights: want.First}, theWeights); err != nil { // weights alone, after which nothing is updated
			t.Fatal(err)
		}
		for i, b := range s.weights() {
			if x, err := backend.Floats(b); err != nil || !slices.Equal(x, want.First[i]) {
				t.Errorf("weights %d differ from those that were written alone (%v)", i, err)
			}
		}
	})
}

func TestRowsAddUpWhereIdsRepeat(t *testing.T) {
	m := twoParams(rand.New(rand.NewPCG(1, 1)))
	for _, e := range backendtest.Engines(t) {
		if !e.Wants.SharedMemory {
			continue // rows are looked up in the graph
		}
		s := expect.Must(newHostStore(e, m))(t)
		rows := make([]float32, 500*400)
		for i := range rows {
			rows[i] = 1
		}
		s.addRows(0, append(make([]int32, 499), 2), rows)
		if s.grads[0][0] != 499 || s.grads[0][2*400] != 1 || s.grads[0][400] != 0 {
			t.Errorf("%s: counts %v, %v, %v: want 499, 1 and 0", e.Name, s.grads[0][0], s.grads[0][2*400],
				s.grads[0][400])
		}
		s.close()
	}
}

// TestHalfMomentsKeepTheirMean: moments in bfloat16 change by less than half of their step in every update, and follow
// float32 none the less; training continues from a checkpoint with the same bits.
func TestHalfMomentsKeepTheirMean(t *testing.T) {
	optimizer := AdamW{Options: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}, HalfMoments: true}
	m := twoParams(rand.New(rand.NewPCG(1, 1)))
	for _, e := range backendtest.Engines(t) {
		if e.Name == "onnx" { // has no bfloat16
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			s, other := graphStores(t, e, m)
			r, ref := rand.New(rand.NewPCG(2, 2)), newReference(m)
			start := expect.Must(s.read())(t)
			for i := range start.Second { // rounded to the nearest, they would stay
				for k := range start.Second[i] {
					start.Second[i][k], ref.v[i][k] = 4, 4
				}
			}
			expect.OK(t, s.write(start, everything...))
			for step := 1; step <= 60; step++ {
				ref.update(m, addRandom(t, e, s, m, r, 1), optimizer, step, 1e-3)
				expect.Must(s.update(optimizer, step, 1e-3))(t)
			}
			got := expect.Must(s.read())(t)
			for name, pair := range map[string][2]float64{
				"second moments": {mean32(got.Second[0]), mean64(ref.v[0])},
				"weights":        {distance(got.Weights[0], m.Params[0].Data), distance64(ref.p[0], m.Params[0].Data)},
			} {
				if d := math.Abs(pair[0]/pair[1] - 1); d > 0.01 {
					t.Errorf("%s: %v, in float64 %v: off by %.1f %%", name, pair[0], pair[1], 100*d)
				}
			}
			expect.OK(t, other.write(got, everything...))
			for _, x := range []*graphStore{s, other} {
				addRandom(t, e, x, m, rand.New(rand.NewPCG(3, 3)), 1)
				expect.Must(x.update(optimizer, 61, 1e-3))(t)
			}
			a := expect.Must(s.read())(t)
			b := expect.Must(other.read())(t)
			if fmt.Sprint(a) != fmt.Sprint(b) {
				t.Error("the update after a checkpoint has other bits")
			}
		})
	}
}

func graphStores(t *testing.T, e *backend.Engine, m *model.Model) (a, b *graphStore) {
	t.Helper()
	for _, to := range []**graphStore{&a, &b} {
		s := expect.Must(newGraphStore(e, m, backend.NewUploader(m.Largest()), false))(t)
		t.Cleanup(s.close)
		*to = s
	}
	return a, b
}

func mean32(x []float32) float64 { return distance(x, make([]float32, len(x))) }

func mean64(x []float64) float64 { return distance64(x, make([]float32, len(x))) }

// distance is the mean absolute difference.
func distance(x, y []float32) float64 {
	wide := make([]float64, len(x))
	for i := range x {
		wide[i] = float64(x[i])
	}
	return distance64(wide, y)
}

func distance64(x []float64, y []float32) float64 {
	sum := 0.0
	for i := range x {
		sum += math.Abs(x[i] - float64(y[i]))
	}
	return sum / float64(len(x))
}
