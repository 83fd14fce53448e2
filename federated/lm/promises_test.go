package lm

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/posttrain/posttrain/federated/control"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/mujoco"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// TestWorkloads: what every [protocol.Workload] promises.
func TestWorkloads(t *testing.T) {
	quadratics := map[string]protocol.Quadratic{"diagonal": protocol.RandomQuadratic(7, 1),
		"full": {Curvature: []float64{2, 1, 1, 3}, Best: []float64{1, -1}, Begin: []float64{0, 0.5}}}
	for name, q := range quadratics {
		q.Noise = 0.1
		t.Run("quadratic, "+name, func(t *testing.T) {
			suite{make: func(_ *testing.T, agent int, seed uint64) protocol.Workload { return q.Of(agent, seed) }}.run(t)
		})
	}
	for name, change := range map[string]func(*control.Options){
		"cartpole":            func(*control.Options) {},
		"cartpole, tanh":      func(o *control.Options) { o.Activation = "tanh" },
		"cartpole, no hidden": func(o *control.Options) { o.Hidden = nil },
		"cartpole, letter":    func(o *control.Options) { o.Returns, o.Normalize = control.Letter, false },
		"swimmer":             func(o *control.Options) { o.Environment, o.OutputTanh, o.LogStd = "swimmer", true, -0.5 },
		"hopper":              func(o *control.Options) { o.Environment, o.Gamma = "hopper", 0.9 },
	} {
		t.Run(name, func(t *testing.T) { testControl(t, change) })
	}
	t.Run("language model", func(t *testing.T) { // float32 bounds what can be asked of differences
		p := policy(t, backendtest.Go(t))
		suite{step: 0.02, tolerance: 0.02, sampled: true,
			make: func(_ *testing.T, agent int, seed uint64) protocol.Workload { return New(p, tiny(), agent, seed) }}.run(t)
	})
}

// testControl runs the suite on batches that end within an episode.
func testControl(t *testing.T, change func(*control.Options)) {
	o := control.DefaultOptions()
	o.Steps, o.Hidden, o.Critic.Epochs = 250, []int{6, 5}, 2
	change(&o)
	if _, err := mujoco.Find(); err != nil && control.Simulator(o.Environment) != "" {
		need.Lack(t, "mujoco", err.Error())
	}
	suite{make: func(t *testing.T, agent int, seed uint64) protocol.Workload {
		return expect.Must(control.New(o, agent, seed))(t)
	}}.run(t)
}

// suite is a workload under test.
type suite struct {
	// make returns a new workload. The suite wants draws that differ between agents and versions, an exact gradient of
	// the gain, without a term for the entropy, and the gradient divided by time steps.
	make func(t *testing.T, agent int, seed uint64) protocol.Workload
	// step is the distance of the finite differences, and tolerance how far they may be from what they check, relative
	// to the norms; 0: 1e-4 and 1e-4, which suit float64.
	step, tolerance float64
	sampled         bool // H has the expectation of the Fisher matrix, whose samples it is of
}

func (s suite) run(t *testing.T) {
	if s.step == 0 {
		s.step, s.tolerance = 1e-4, 1e-4
	}
	for name, test := range map[string]func(*testing.T){
		"identity": s.identity, "draws": s.draws, "restored": s.restore, "refused states": s.refusedStates,
		"gradient": s.gradient, "product": s.product, "search": s.search, "train": s.train, "cancelled": s.cancelled,
		"dimensions": s.dimensions,
	} {
		t.Run(name, test)
	}
}

// numbers are what a batch sends.
type numbers struct {
	Stats    protocol.Stats
	Gradient []float64
	KL, Gain []float64
	Product  []float64
}

// collect returns a batch with what it sends, and fails if the parameters change.
func collect(t *testing.T, w protocol.Workload, params []float64, version int) (protocol.Batch, numbers) {
	t.Helper()
	before := append([]float64{}, params...)
	b := expect.Must(w.Collect(t.Context(), params, version))(t)
	natural := b.(protocol.Natural)
	kl, gain, err := natural.Search(direction(len(params), 9), []float64{0.1, 0.01})
	expect.OK(t, err)
	n := numbers{b.Stats(), expect.Must(b.Gradient())(t), kl, gain, expect.Must(natural.Product(params))(t)}
	if !reflect.DeepEqual(params, before) {
		t.Fatal("the parameters have changed")
	}
	return b, n
}

// same fails unless two batches send the same bits.
func same(t *testing.T, what string, got, want numbers) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, want the same numbers as before, %+v", what, got.Stats, want.Stats)
	}
}

// direction is a random unit vector.
func direction(d int, seed uint64) []float64 {
	r, v := rand.New(rand.NewPCG(seed, 0)), make([]float64, d)
	for i := range v {
		v[i] = r.NormFloat64()
	}
	length := math.Sqrt(dot(v, v))
	for i := range v {
		v[i] /= length
	}
	return v
}

func dot(a, b []float64) (s float64) {
	for i := range a {
		s += a[i] * b[i]
	}
	return s
}

func (s suite) identity(t *testing.T) {
	a, b := s.make(t, 0, 1), s.make(t, 3, 1)
	if !reflect.DeepEqual(a.Identity(), b.Identity()) || !reflect.DeepEqual(a.Start(), b.Start()) {
		t.Error("two agents of a run differ in what they train, or where they start")
	}
	id, want := a.Identity(), 0
	for _, tensor := range id.Tensors {
		n := 1
		for _, k := range tensor.Shape {
			n *= k
		}
		want += n
	}
	if got := len(a.Start()); got != want || got == 0 || id.Protocol != protocol.Version || id.Task == "" {
		t.Errorf("%d parameters, tensors of %d, protocol %d, task %q", got, want, id.Protocol, id.Task)
	}
}

func (s suite) draws(t *testing.T) {
	w := s.make(t, 1, 7)
	theta := w.Start()
	_, first := collect(t, w, theta, 0)
	if first.Stats.Steps < 1 || first.Stats.Episodes < 0 || math.IsNaN(first.Stats.Return) {
		t.Errorf("stats %+v", first.Stats)
	}
	_, again := collect(t, w, theta, 0)
	same(t, "the same version again", again, first)
	_, other := collect(t, s.make(t, 1, 7), theta, 0)
	same(t, "another workload of this agent", other, first)
	for name, w := range map[string]protocol.Workload{"agent": s.make(t, 2, 7), "seed": s.make(t, 1, 8)} {
		if _, n := collect(t, w, theta, 0); reflect.DeepEqual(n.Gradient, first.Gradient) {
			t.Errorf("another %s draws the same", name)
		}
	}
	if _, n := collect(t, w, theta, 1); reflect.DeepEqual(n.Gradient, first.Gradient) {
		t.Error("another version draws the same")
	}
}

func (s suite) restore(t *testing.T) {
	w := s.make(t, 1, 7)
	if _, ok := w.(protocol.Learner); !ok {
		return // it learns nothing for itself
	}
	theta := w.Start()
	start := state(t, w)
	_, first := collect(t, w, theta, 0)
	_, second := collect(t, w, theta, 3)
	snapshot := state(t, w)
	_, third := collect(t, w, theta, 4)

	other := s.make(t, 1, 7)
	restore(t, other, snapshot)
	if !reflect.DeepEqual(state(t, other), snapshot) {
		t.Error("the state after Restore differs from the one restored")
	}
	_, n := collect(t, other, theta, 3)
	same(t, "the last version again after Restore", n, second)
	_, n = collect(t, other, theta, 4)
	same(t, "the next version after Restore", n, third)
	restore(t, w, start)
	_, n = collect(t, w, theta, 0)
	same(t, "back at the start", n, first)
	restore(t, w, snapshot)
	_, n = collect(t, w, theta, 4)
	same(t, "a state restored after other work", n, third)
}

// state passes a snapshot through its JSON, as a file does.
func state(t *testing.T, w protocol.Workload) protocol.State {
	t.Helper()
	s := expect.Must(w.(protocol.Learner).State())(t)
	if !json.Valid(s.Head) {
		t.Fatalf("the head %q is no JSON", s.Head)
	}
	return s
}

func restore(t *testing.T, w protocol.Workload, s protocol.State) {
	t.Helper()
	expect.OK(t, w.(protocol.Learner).Restore(s))
}

// refusedStates: a damaged state is an error and leaves the workload as it was.
func (s suite) refusedStates(t *testing.T) {
	w := s.make(t, 1, 7)
	if _, ok := w.(protocol.Learner); !ok {
		return // it learns nothing for itself
	}
	theta := w.Start()
	collect(t, w, theta, 0)
	good := state(t, w)
	damaged := []protocol.State{{Head: json.RawMessage("{"), Vectors: good.Vectors}}
	for name, v := range good.Vectors {
		short := map[string][]float64{}
		for k, v := range good.Vectors {
			short[k] = v
		}
		short[name] = v[:len(v)/2]
		damaged = append(damaged, protocol.State{Head: good.Head, Vectors: short})
	}
	for _, d := range damaged {
		if err := w.(protocol.Learner).Restore(d); err == nil {
			t.Errorf("a state with head %s and %d vectors, one of them damaged, is accepted", d.Head, len(d.Vectors))
		}
	}
	if !reflect.DeepEqual(state(t, w), good) {
		t.Error("a refused state has changed the workload")
	}
}

// gradient compares the gradient with differences of the gain, along random directions.
func (s suite) gradient(t *testing.T) {
	b, n := s.batch(t)
	for k := range uint64(5) {
		d := direction(len(n.Gradient), k)
		_, gain, err := b.(protocol.Natural).Search(d, []float64{s.step, -s.step})
		expect.OK(t, err)
		got, want := dot(n.Gradient, d), (gain[0]-gain[1])/(2*s.step)
		if !(math.Abs(got-want) <= s.tolerance*math.Sqrt(dot(n.Gradient, n.Gradient))) {
			t.Errorf("the gradient along direction %d is %v, differences of the gain give %v", k, got, want)
		}
	}
}

// batch is one at parameters that are not the start's, where a policy may be uniform.
func (s suite) batch(t *testing.T) (protocol.Batch, numbers) {
	t.Helper()
	w := s.make(t, 1, 7)
	theta := append([]float64{}, w.Start()...)
	for i, x := range direction(len(theta), 77) {
		theta[i] += x
	}
	return collect(t, w, theta, 2)
}

// product: H is symmetric and positive semi-definite, and vᵀHv is the second difference of KL along v.
func (s suite) product(t *testing.T) {
	b, n := s.batch(t)
	for k := range uint64(4) {
		v, u := direction(len(n.Gradient), k), direction(len(n.Gradient), k+100)
		hv, hu := expect.Must(b.(protocol.Natural).Product(v))(t), expect.Must(b.(protocol.Natural).Product(u))(t)
		size := math.Sqrt(dot(hv, hv)) + math.Sqrt(dot(hu, hu))
		if a, c := dot(u, hv), dot(v, hu); math.Abs(a-c) > s.tolerance*size {
			t.Errorf("uᵀHv = %v, vᵀHu = %v: want equal numbers", a, c)
		}
		if q := dot(v, hv); !(q >= -s.tolerance*size) {
			t.Errorf("vᵀHv = %v, want 0 or more", q)
		}
		for _, pair := range [][2][]float64{{v, hv}, {add(v, u), add(hv, hu)}} {
			got, want := dot(pair[0], pair[1]), s.curvature(t, b, pair[0])
			if !s.sampled && !(math.Abs(got-want) <= s.tolerance*size) {
				t.Errorf("vᵀHv = %v, differences of KL give %v", got, want)
			}
		}
	}
}

func (s suite) curvature(t *testing.T, b protocol.Batch, v []float64) float64 {
	kl, _, err := b.(protocol.Natural).Search(v, []float64{s.step, -s.step})
	expect.OK(t, err)
	return (kl[0] + kl[1]) / (s.step * s.step)
}

func add(a, b []float64) []float64 {
	sum := append([]float64{}, a...)
	for i := range sum {
		sum[i] += b[i]
	}
	return sum
}

func (s suite) search(t *testing.T) {
	b, n := s.batch(t)
	d := direction(len(n.Gradient), 5)
	kl, gain, err := b.(protocol.Natural).Search(d, []float64{0, 0.5, 0.05, 1e200})
	if err != nil || len(kl) != 4 || len(gain) != 4 {
		t.Fatal(len(kl), len(gain), err)
	}
	if kl[0] != 0 || gain[0] != 0 {
		t.Errorf("at scale 0: KL %v, gain %v, want 0 and 0", kl[0], gain[0])
	}
	for i := range kl {
		if !(kl[i] >= 0) || math.IsInf(kl[i], 0) || math.IsInf(gain[i], 0) || math.IsNaN(gain[i]) {
			t.Errorf("scale %d: KL %v, gain %v: want finite numbers, and a KL of 0 or more", i, kl[i], gain[i])
		}
	}
	again, _, err := b.(protocol.Natural).Search(d, []float64{0.05, 0.5})
	if err != nil || again[0] != kl[2] || again[1] != kl[1] {
		t.Errorf("in another order: KL %v, want %v and %v; %v", again, kl[2], kl[1], err)
	}
}

func (s suite) train(t *testing.T) {
	b, n := s.batch(t)
	how := protocol.Local{Epochs: 2, Minibatch: 16, LR: 1e-3, Clip: 0.2}
	change := expect.Must(b.Train(t.Context(), how))(t)
	if len(change) != len(n.Gradient) || !(dot(change, change) > 0) || math.IsInf(dot(change, change), 0) {
		t.Fatalf("a change of %d numbers, squared norm %v", len(change), dot(change, change))
	}
	if again := expect.Must(b.Train(t.Context(), how))(t); !reflect.DeepEqual(again, change) {
		t.Error("training twice from the same samples gives two results")
	}
	if g := expect.Must(b.Gradient())(t); !reflect.DeepEqual(g, n.Gradient) {
		t.Error("training has changed the batch")
	}
	if still := expect.Must(b.Train(t.Context(), protocol.Local{Minibatch: 16, LR: 1}))(t); dot(still, still) != 0 {
		t.Error("no epochs change the weights")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Train(ctx, how); !errors.Is(err, context.Canceled) {
		t.Errorf("training with a context cancelled: %v", err)
	}
}

// cancelled: work that is cancelled leaves no trace.
func (s suite) cancelled(t *testing.T) {
	w, other := s.make(t, 1, 7), s.make(t, 1, 7)
	theta := w.Start()
	collect(t, w, theta, 0)
	collect(t, other, theta, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, version := range []int{0, 1} {
		if _, err := w.Collect(ctx, theta, version); !errors.Is(err, context.Canceled) {
			t.Errorf("a context cancelled: %v", err)
		}
	}
	_, want := collect(t, other, theta, 2)
	_, got := collect(t, w, theta, 2)
	same(t, "after a cancelled batch", got, want)
}

func (s suite) dimensions(t *testing.T) {
	w := s.make(t, 1, 7)
	theta := w.Start()
	b, n := collect(t, w, theta, 0)
	if len(n.Gradient) != len(theta) || len(n.Product) != len(theta) {
		t.Errorf("a gradient of %d and a product of %d numbers, want %d", len(n.Gradient), len(n.Product), len(theta))
	}
	short := theta[:len(theta)-1]
	if _, err := w.Collect(t.Context(), short, 1); err == nil {
		t.Error("too few parameters are accepted")
	}
	if _, err := b.(protocol.Natural).Product(short); err == nil {
		t.Error("a product with too short a vector is accepted")
	}
	if _, _, err := b.(protocol.Natural).Search(short, []float64{1}); err == nil {
		t.Error("a search along too short a direction is accepted")
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		broken := append([]float64{}, theta...)
		broken[len(broken)-1] = bad
		if _, err := w.Collect(t.Context(), broken, 1); err == nil {
			t.Errorf("a parameter %v is accepted", bad)
		}
	}
}
