package protocol_test

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// newSimulation has agents on a noisy quadratic function.
func newSimulation(t *testing.T, o protocol.Options, q protocol.Quadratic, times []float64) *protocol.Simulation {
	t.Helper()
	o.Agents = len(times)
	server := expect.Must(protocol.NewServer(o, q.Begin, 1))(t)
	var agents []*protocol.Agent
	for i := range times {
		a := expect.Must(protocol.NewAgent(i, q.Of(i, 1), o))(t)
		a.Secure(bytes.Repeat([]byte{byte(i + 1)}, 32), "run")
		agents = append(agents, a)
	}
	return expect.Must(protocol.NewSimulation(server, agents, times))(t)
}

func noisy() protocol.Quadratic {
	q := protocol.RandomQuadratic(6, 3)
	q.Noise = 0.2
	return q
}

// follow steps until the run has ended.
func follow(t *testing.T, s *protocol.Simulation) (events []protocol.Event) {
	t.Helper()
	for !s.Server.Done() {
		e := expect.Must(s.Step(t.Context()))(t)
		e.Task.Params, e.Task.Direction = nil, nil
		events = append(events, e)
	}
	s.Wait()
	return events
}

// limited are the defaults of a method, for a number of updates or rounds.
func limited(method string, limit int) protocol.Options {
	o := protocol.Defaults(method)
	if protocol.Asynchronous(method) {
		o.Updates = &limit
	} else {
		o.Rounds = &limit
	}
	return o
}

// secure are options with secure sums.
func secure(method string, limit int) protocol.Options {
	o := limited(method, limit)
	o.Secure, o.Clip = true, 0
	if o.Absent != nil {
		o.Absent = new("drop")
	}
	return o
}

// TestOracleTime is acceptance 10: the time of 400·N gradients by the formula.
func TestOracleTime(t *testing.T) {
	var cases []struct {
		Agents      int
		Pattern     string
		Times       []float64
		Tbar        float64
		Synchronous float64 `json:"sync_per_gradient"`
	}
	need.Oracle(t, "federated.json", "time", &cases)
	if len(cases) != 36 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		for method, want := range map[string]float64{protocol.AFedPG: c.Tbar, protocol.FedPG: c.Synchronous} {
			limit, gradients := 400*c.Agents, float64(400*c.Agents)
			if method == protocol.FedPG {
				limit = 400
			}
			o := limited(method, limit)
			if o.MaxDelay != nil {
				o.MaxDelay = new(1000) // an agent ten times slower than another counts too
			}
			s := newSimulation(t, o, noisy(), c.Times)
			s.JoinAll(t.Context())
			follow(t, s)
			if got := s.Now(); math.Abs(got/(want*gradients)-1) > 0.02 {
				t.Errorf("%s, %s, times %v: %v seconds, want %v", method, c.Pattern, c.Times, got, want*gradients)
			}
		}
	}
}

// TestOracleClosedLoop: who arrives when, with which bits.
func TestOracleClosedLoop(t *testing.T) {
	type arrival struct {
		Time              float64
		Agent, K, Version int
		Theta             []float64
	}
	var cases []struct {
		Name, Kind       string
		Const            struct{ Alpha, Eta float64 }
		Lookahead        bool
		Q                [][]float64
		Best, Theta0     []float64
		Times            []float64
		Arrivals, Rounds []arrival
	}
	need.Oracle(t, "federated.json", "closed_loop", &cases)
	for _, c := range cases {
		method, expected := protocol.AFedPG, c.Arrivals
		if !c.Lookahead {
			method = protocol.Vanilla
		}
		if c.Rounds != nil {
			method, expected = protocol.FedPG, c.Rounds
		}
		o := limited(method, len(expected))
		o.Wire, o.Clip, o.Rate, o.LR, o.Schedule = "float64", 0, new("published"), &c.Const.Eta, &c.Kind
		if o.Alpha = nil; c.Kind == "constant" {
			o.Alpha = &c.Const.Alpha
		}
		q := protocol.Quadratic{Curvature: slices.Concat(c.Q...), Best: c.Best, Begin: c.Theta0}
		s := newSimulation(t, o, q, c.Times)
		s.JoinAll(t.Context())
		for _, a := range expected {
			e, err := s.Step(t.Context())
			for err == nil && !e.Receipt.Stepped {
				e, err = s.Step(t.Context())
			}
			expect.OK(t, err)
			if e.Time != a.Time || s.Server.Version() != a.K ||
				c.Rounds == nil && (e.Agent != a.Agent || e.Task.Version != a.Version) {
				t.Fatalf("%s: %+v, want %+v", c.Name, e, a)
			}
			for i, x := range s.Server.Params() {
				if math.Abs(x-a.Theta[i]) > 1e-9*max(1, math.Abs(x)) {
					t.Fatalf("%s, version %d: θ %v, want %v", c.Name, a.K, s.Server.Params(), a.Theta)
				}
			}
		}
		s.Wait()
	}
}

// Any number of processors gives the same events and bits.
func TestProcessors(t *testing.T) {
	times := []float64{1, 1, 2.5, 3}
	for _, method := range protocol.Methods() {
		var first []protocol.Event
		var theta []float64
		for _, n := range []int{1, 2, 7} {
			before := runtime.GOMAXPROCS(n)
			s := newSimulation(t, limited(method, 9), noisy(), times)
			s.JoinAll(t.Context())
			events := follow(t, s)
			runtime.GOMAXPROCS(before)
			if first == nil {
				first, theta = events, s.Server.Params()
			}
			if !reflect.DeepEqual(events, first) || !slices.Equal(s.Server.Params(), theta) {
				t.Errorf("%s with %d processors: another run", method, n)
			}
		}
	}
}

// A run that is stopped after any step, stored and continued by other objects has the same events and bits.
func TestContinued(t *testing.T) {
	times := []float64{1, 1, 2.5, 3}
	all := []protocol.Options{secure(protocol.FedNPG, 7), secure(protocol.FedNPGADMM, 7)}
	for _, method := range protocol.Methods() {
		all = append(all, limited(method, 7))
	}
	for _, o := range all {
		method := o.Method
		whole := newSimulation(t, o, noisy(), times)
		whole.JoinAll(t.Context())
		want := follow(t, whole)
		for at := range want {
			s := newSimulation(t, o, noisy(), times)
			s.JoinAll(t.Context())
			var events []protocol.Event
			for range at + 1 {
				e := expect.Must(s.Step(t.Context()))(t)
				e.Task.Params, e.Task.Direction = nil, nil
				events = append(events, e)
			}
			if !protocol.Asynchronous(method) && !events[at].Receipt.Stepped {
				s.Wait()
				continue
			}
			state := expect.Must(s.State())(t)
			other := newSimulation(t, o, noisy(), times)
			expect.OK(t, other.Restore(t.Context(), state))
			events = append(events, follow(t, other)...)
			if !reflect.DeepEqual(events, want) || !slices.Equal(other.Server.Params(), whole.Server.Params()) {
				t.Errorf("%s, stopped after event %d: another run", method, at)
			}
		}
	}
}

// A deadline closes rounds without the slow agent, whose work never counts; without a quorum it closes none.
func TestDeadline(t *testing.T) {
	all := []protocol.Options{secure(protocol.FedPG, 5)}
	for _, method := range []string{protocol.FedPG, protocol.FedNPGADMM, protocol.FedAvg} {
		all = append(all, limited(method, 5))
	}
	for _, o := range all {
		method := o.Method
		s := newSimulation(t, o, noisy(), []float64{1, 1, 1, 50})
		s.Deadline = 2
		s.JoinAll(t.Context())
		follow(t, s)
		if s.Now() != 10 {
			t.Errorf("%s: five rounds with a deadline of 2 took %v", method, s.Now())
		}
		o.Rounds, o.Quorum = new(2), new(1.0)
		s = newSimulation(t, o, noisy(), []float64{1, 1, 1, 7})
		s.Deadline = 2
		s.JoinAll(t.Context())
		if follow(t, s); s.Now() != 14 {
			t.Errorf("%s: two rounds that need all agents took %v", method, s.Now())
		}
	}
}

// Where every update is refused, the run ends with an error instead of going round for ever.
func TestStuck(t *testing.T) {
	q := protocol.RandomQuadratic(3, 1)
	q.Begin = slices.Clone(q.Best) // the gradient is 0
	o := limited(protocol.AFedPG, 20)
	o.Wire = "float64"
	s := newSimulation(t, o, q, []float64{1, 2})
	s.JoinAll(t.Context())
	var err error
	steps := 0
	for err == nil && steps < 100 {
		_, err = s.Step(t.Context())
		steps++
	}
	if !errors.Is(err, protocol.ErrStuck) || steps != 3 {
		t.Errorf("after %d steps: %v", steps, err)
	}
}

func TestBadTimes(t *testing.T) {
	for _, times := range [][]float64{nil, {1}, {1, 0}, {1, math.Inf(1)}, {1, math.NaN()}} {
		if _, err := protocol.NewSimulation(nil, make([]*protocol.Agent, 2), times); err == nil {
			t.Errorf("%v: no error", times)
		}
	}
}
