package protocol_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// options of a method on the quadratic workload, with other defaults.
func options(method string, changes ...string) protocol.Options {
	o := protocol.Defaults(method, changes...)
	if method == protocol.FedNPGADMM { // with all that its options add
		o.Damping, o.LineSearch, o.Clip = new(0.1), new("on"), 3
	}
	o.Agents = 4
	if protocol.Asynchronous(method) {
		o.Updates = new(24)
	} else {
		o.Rounds = new(6)
	}
	return o
}

// world is a server with its agents, and the tasks that these have.
type world struct {
	t      *testing.T
	o      protocol.Options
	start  []float64
	server protocol.Server
	agents []*protocol.Agent
	tasks  [][]protocol.Task // by agent, oldest first
	order  *rand.Rand        // of the arrivals
	log    []protocol.Receipt
}

func newWorld(t *testing.T, o protocol.Options) *world {
	t.Helper()
	return newWorldOf(t, o, 5)
}

// newWorldOf has d parameters.
func newWorldOf(t *testing.T, o protocol.Options, d int) *world {
	t.Helper()
	q := protocol.RandomQuadratic(d, 7)
	q.Noise = 0.3
	w := &world{t: t, o: o, start: q.Begin, tasks: make([][]protocol.Task, o.Agents),
		order: rand.New(rand.NewPCG(3, 4))}
	w.server = w.fresh()
	for i := range o.Agents {
		load := q.Of(i, 7)
		a := expect.Must(protocol.NewAgent(i, load, o))(t)
		a.Secure(bytes.Repeat([]byte{byte(i + 1)}, 32), "run")
		w.agents = append(w.agents, a)
	}
	for i := range o.Agents {
		w.take(second(w.server.Join(i)))
	}
	return w
}

func (w *world) fresh() protocol.Server {
	s := expect.Must(protocol.NewServer(w.o, w.start, 11))(w.t)
	return s
}

func (w *world) take(sends []protocol.Send) {
	for _, s := range sends {
		if s.Task.Kind != protocol.Stop {
			w.tasks[s.Agent] = append(w.tasks[s.Agent], s.Task)
		}
	}
}

// step has a random agent that has a task do it, and reports whether there was one.
func (w *world) step() bool {
	var busy []int
	for i, tasks := range w.tasks {
		if len(tasks) > 0 {
			busy = append(busy, i)
		}
	}
	if len(busy) == 0 || w.server.Done() {
		return false
	}
	w.do(busy[w.order.IntN(len(busy))])
	return true
}

func (w *world) do(agent int) protocol.Receipt {
	w.t.Helper()
	task := w.tasks[agent][0]
	w.tasks[agent] = w.tasks[agent][1:]
	u := expect.Must(w.agents[agent].Do(w.t.Context(), task))(w.t)
	return w.give(u)
}

func (w *world) give(u protocol.Update) protocol.Receipt {
	r, sends := w.server.Receive(u)
	w.log = append(w.log, r)
	w.take(sends)
	return r
}

// swap replaces the server by another that has its snapshot.
func (w *world) swap() {
	w.t.Helper()
	state := expect.Must(w.server.State())(w.t)
	for name, v := range state.Vectors { // a snapshot on a disk shares no memory
		state.Vectors[name] = slices.Clone(v)
	}
	other := w.fresh()
	expect.OK(w.t, other.Restore(state))
	w.server = other
}

// Every method gets closer to the best point, and a server restored after every event continues with the same bits,
// metrics and tasks.
func TestRestoredServerGoesOn(t *testing.T) {
	for _, method := range protocol.Methods() {
		for _, change := range []func(*protocol.Options){
			func(*protocol.Options) {},
			func(o *protocol.Options) { o.Wire = "float64" },
			func(o *protocol.Options) {
				if o.Rule != nil {
					*o = options(o.Method, "rule=adamw", "lr=0.05", "adamw.warmup_steps=2")
					o.Tensors = []protocol.Tensor{{Shape: []int{2}, NoDecay: true}, {Shape: []int{3, 1}}}
				}
			},
			func(o *protocol.Options) {
				if o.Select != nil {
					o.Select, o.Weights = new(0.5), new("samples")
				}
				if o.Inner != nil {
					o.Inner = new(3)
				}
				if o.LineSearch != nil {
					o.LineSearch = new("off")
				}
			},
		} {
			o := options(method)
			change(&o)
			restoreAlways(t, fmt.Sprintf("%s %s", method, o.Wire), o)
		}
	}
}

// restoreAlways wants the bits of a server that is not restored from one that is restored after every event, and a
// better point than the first.
func restoreAlways(t *testing.T, name string, o protocol.Options) {
	t.Helper()
	plain, swapped := newWorld(t, o), newWorld(t, o)
	for plain.step() {
	}
	swapped.swap()
	for swapped.step() {
		swapped.swap()
	}
	if !plain.server.Done() || len(plain.log) == 0 {
		t.Fatalf("%s: ended at version %d", name, plain.server.Version())
	}
	if !slices.Equal(plain.server.Params(), swapped.server.Params()) {
		t.Errorf("%s: restored after every event: %v, want %v", name, swapped.server.Params(),
			plain.server.Params())
	}
	if !reflect.DeepEqual(plain.log, swapped.log) {
		t.Errorf("%s: other receipts after restoring", name)
	}
	q := protocol.RandomQuadratic(5, 7)
	before, after := q.Return(plain.start), q.Return(plain.server.Params())
	if !(after > before) || !federated.Finite(plain.server.Params()) {
		t.Errorf("%s: return %v after %v", name, after, before)
	}
}

// A turn that everybody is refused in ends the round, also where its method would ask for more.
func TestTurnWithoutAnswers(t *testing.T) {
	for _, method := range []string{protocol.FedNPG, protocol.FedNPGADMM} {
		o := options(method)
		if o.Inner != nil {
			o.Inner = new(3)
		}
		w := newWorld(t, o)
		for i := range w.agents {
			w.do(i)
		}
		for i, a := range w.agents {
			u := expect.Must(a.Do(t.Context(), w.tasks[i][0]))(t)
			w.tasks[i], u.Vectors[0][0] = nil, math.NaN()
			w.give(u)
		}
		if w.server.Version() != 1 || len(w.tasks[0]) != 1 || !w.tasks[0][0].Samples() {
			t.Errorf("%s: version %d, next %+v; want another round", method, w.server.Version(), w.tasks[0])
		}
	}
}

// An agent that leaves when it has answered a turn is not waited for in the next.
func TestLeftAfterAnAnswer(t *testing.T) {
	for _, secure := range []bool{false, true} {
		o := secureOptions(protocol.FedNPGADMM)
		o.Secure = secure
		w := newWorld(t, o)
		if secure {
			w.startSum()
		}
		w.do(2)
		w.take(second(w.server.Leave(2)))
		for w.step() {
		}
		if !w.server.Done() {
			t.Errorf("secure %v: the run waits at version %d", secure, w.server.Version())
		}
	}
}

// Parameters that the wire cannot carry would end every agent: a round that leads there has no step.
func TestParametersThatOverflow(t *testing.T) {
	for _, method := range []string{protocol.FedAvg, protocol.FedPPO} {
		o := options(method)
		w := newWorld(t, o)
		for n := 0; w.server.Version() < 2; n++ {
			u := protocol.Update{Agent: n % o.Agents, Kind: protocol.Train, Version: w.server.Version(),
				Vectors: [][]float64{slices.Repeat([]float64{math.MaxFloat32}, 5)}}
			w.give(u)
		}
		theta := w.server.Params()
		federated.RoundFloat32(theta)
		if last := w.log[len(w.log)-1]; !federated.Finite(theta) || last.Metrics["refused/step"] != 1 {
			t.Errorf("%s: θ %v, %+v", method, theta, last)
		}
	}
}

// Rule adamw is the textbook's: two updates by hand in float64, after a warm-up of one, with decay on one tensor alone.
func TestAdamWByHand(t *testing.T) {
	o := protocol.Defaults(protocol.AFedPG, "rule=adamw")
	o.Agents, o.Clip, o.LR = 1, 0, new(0.1)
	o.AdamW.Warmup, o.AdamW.WeightDecay, o.AdamW.MaxNorm = new(1), new(0.5), new(2.5)
	o.Tensors = []protocol.Tensor{{Shape: []int{1}, NoDecay: true}, {Shape: []int{1}}}
	s := expect.Must(protocol.NewServer(o, []float64{1, -2}, 1))(t)
	_, sends := s.Join(0)
	for range 2 {
		u := protocol.Update{Kind: protocol.Gradient, Version: sends[0].Task.Version, Vectors: [][]float64{{3, -4}}}
		var r protocol.Receipt
		if r, sends = s.Receive(u); !r.Stepped {
			t.Fatalf("%+v", r)
		}
	}
	// The norm 5 is clipped to 2.5. With equal gradients m/(1-β1^t) is the gradient and v/(1-β2^t) its square, so that
	// the second update is the rate times the sign: +0.1 and -0.1, as g is an ascent direction; the first has rate 0.
	want := []float64{1.1, -2*(1-0.1*0.5) - 0.1}
	for i, x := range s.Params() {
		if math.Abs(x-want[i]) > 1e-6 {
			t.Errorf("parameter %d is %v, want %v", i, x, want[i])
		}
	}
	o.Tensors = o.Tensors[:1]
	if _, err := protocol.NewServer(o, []float64{1, -2}, 1); err == nil {
		t.Error("tensors of one number are accepted for two parameters")
	}
}
