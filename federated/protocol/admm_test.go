package protocol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// fixed is a workload whose Fisher matrix and gradient are given, the same in every round. It learns for itself how
// many batches it has collected, as a critic would.
type fixed struct {
	h       [][]float64
	g       []float64
	start   []float64
	learned int
}

func (f *fixed) Identity() Identity { return Identity{Protocol: Version, Task: "fixed"} }
func (f *fixed) Start() []float64   { return slices.Clone(f.start) }

func (f *fixed) Collect(context.Context, []float64, int) (Batch, error) {
	f.learned++
	return f, nil
}

func (f *fixed) State() (State, error) {
	return State{Head: json.RawMessage(fmt.Sprint(f.learned))}, nil
}
func (f *fixed) Restore(s State) error { return json.Unmarshal(s.Head, &f.learned) }

func (f *fixed) Stats() Stats                 { return Stats{Steps: 1, Episodes: 1, Return: float64(f.learned)} }
func (f *fixed) Gradient() ([]float64, error) { return slices.Clone(f.g), nil }

func (f *fixed) Product(v []float64) ([]float64, error) {
	out := make([]float64, len(v))
	for i, row := range f.h {
		out[i] = federated.Dot(row, v)
	}
	return out, nil
}

func (f *fixed) Search(direction []float64, scales []float64) (kl, gain []float64, err error) {
	product, _ := f.Product(direction)
	for _, s := range scales {
		kl = append(kl, s*s/2*federated.Dot(direction, product))
		gain = append(gain, s*federated.Dot(direction, f.g))
	}
	return kl, gain, nil
}

func (f *fixed) Train(context.Context, Local) ([]float64, error) { return slices.Clone(f.g), nil }

// problem is a case of the oracle: agents with H_i, g_i and weights, of whom the masks say who is in a round.
type problem struct {
	Kind, Absent string
	H            [][][]float64
	G            [][]float64
	Weights      []float64
	Rho          float64
	Masks        [][]bool
	Rounds       []struct {
		Lam [][]float64 `json:"lam"`
		YI  [][]float64 `json:"y_i"`
		Y   []float64   `json:"y"`
	}
	Exact     []float64
	Errors    map[string]float64 `json:"relative_error_after"`
	Delta     float64
	StepScale float64 `json:"step_scale"`
}

// options makes the options of the problem, with exact solves and without refusals.
func (p *problem) options() Options {
	o := Defaults(FedNPGADMM)
	o.Agents, o.Wire, o.Clip, o.Rounds = len(p.G), "float64", 0, new(1000)
	o.Rho, o.Damping, o.Absent, o.Forget = &p.Rho, new(0.0), &p.Absent, new(1_000_000)
	if p.Absent == "drop" {
		o.Forget = new(10)
	}
	o.LineSearch, o.Step, o.Eta, o.Quorum = new("off"), new("fixed"), new(1e-3), new(1e-9)
	o.CG.Iters, o.CG.Tol = new(100), new(1e-15)
	return o
}

// run is a server and its agents on a problem.
type trial struct {
	t      *testing.T
	server *synchronous
	agents []*Agent
	tasks  []*Task // the last one of each agent
}

func newTrial(t *testing.T, p *problem, o Options) *trial {
	t.Helper()
	s := expect.Must(NewServer(o, make([]float64, len(p.G[0])), 0))(t)
	r := &trial{t: t, server: s.(*synchronous), tasks: make([]*Task, len(p.G))}
	if p.Weights != nil {
		r.server.Turn.Weights = p.Weights
	}
	for i := range p.G {
		r.agents = append(r.agents, newAgent(t, p, i, o))
		r.take(second(s.Join(i)))
	}
	return r
}

func newAgent(t *testing.T, p *problem, i int, o Options) *Agent {
	t.Helper()
	return expect.Must(NewAgent(i, &fixed{h: p.H[i], g: p.G[i], start: make([]float64, len(p.G[i]))}, o))(t)
}

func second[A, B any](_ A, b B) B { return b }

func (r *trial) take(sends []Send) {
	for _, s := range sends {
		r.tasks[s.Agent] = &s.Task
	}
}

// do has an agent do its last task, and gives the update to the server.
func (r *trial) do(i int) Receipt {
	r.t.Helper()
	u := expect.Must(r.agents[i].Do(r.t.Context(), *r.tasks[i]))(r.t)
	receipt, sends := r.server.Receive(u)
	r.take(sends)
	return receipt
}

// round has the agents of a mask do a turn; the others are late.
func (r *trial) round(mask []bool) {
	r.t.Helper()
	before := r.server.Version()
	for i, present := range mask {
		if present {
			r.do(i)
		}
	}
	if r.server.Version() == before {
		_, sends := r.server.Deadline()
		r.take(sends)
	}
	if r.server.Version() != before+1 {
		r.t.Fatalf("mask %v does not close round %d", mask, before)
	}
}

func (r *trial) y() []float64 { return r.server.Method.(*admm).Duals.Y }

// everybody is a mask, which a case without masks for all its rounds has.
func everybody(n int) []bool { return slices.Repeat([]bool{true}, n) }

// TestOracleADMM: duals, directions and y after each round, with agents that are absent.
func TestOracleADMM(t *testing.T) {
	var all []json.RawMessage
	need.Oracle(t, "federated.json", "admm", &all)
	seen := 0
	for _, text := range all {
		var p problem
		if err := json.Unmarshal(text, &p); err != nil || p.Rounds == nil {
			continue // cases of a single step are package federated's
		}
		seen++
		name := fmt.Sprintf("%s, %s, %d agents", p.Kind, p.Absent, len(p.G))
		r := newTrial(t, &p, p.options())
		for k, want := range p.Rounds {
			mask := everybody(len(p.G))
			if len(p.Masks) > k {
				mask = p.Masks[k]
			}
			r.round(mask)
			near(t, name+" y", r.y(), want.Y)
			for i, present := range mask {
				if last := r.agents[i].last(); present {
					near(t, name+" y_i", last.Dual.Y, want.YI[i])
					near(t, name+" λ_i", last.Dual.Lambda, want.Lam[i])
				}
			}
		}
	}
	if seen < 5 {
		t.Errorf("%d cases", seen)
	}
}

// smallProblem has three agents with different matrices.
func smallProblem() *problem {
	return &problem{Absent: "hold", Rho: 0.5,
		H: [][][]float64{{{2, 0.5}, {0.5, 1}}, {{1, 0}, {0, 3}}, {{1.5, -0.5}, {-0.5, 2}}},
		G: [][]float64{{1, 0.5}, {-0.2, 1}, {0.4, 0.3}}}
}

// solving is a workload whose batches solve for themselves.
type solving struct{ *fixed }

func (s solving) Collect(context.Context, []float64, int) (Batch, error) { return s, nil }

func (s solving) Solve(right []float64, rho float64) ([]float64, error) {
	solution, err := federated.CG{Iterations: 100, Tolerance: 1e-15}.Solve(federated.Damped(s.Product, rho), right,
		make([]float64, len(right)))
	return solution.X, err
}

// With damping the rounds end at (H + damping·I)⁻¹g, the direction of fednpg, whoever solves.
func TestDampingOfADMM(t *testing.T) {
	p, damping := smallProblem(), 0.4
	o := p.options()
	o.Damping = &damping
	shares := []float64{1, 1, 1}
	product := func(v []float64) ([]float64, error) {
		var all [][]float64
		for _, h := range p.H {
			one, _ := (&fixed{h: h}).Product(v)
			all = append(all, one)
		}
		return federated.Mean(shares, all), nil
	}
	want := expect.Must(federated.CG{Iterations: 100, Tolerance: 1e-15}.Solve(federated.Damped(product, damping),
		federated.Mean(shares, p.G), make([]float64, 2)))(t)
	for name, solves := range map[string]bool{"products": false, "solver": true} {
		r := newTrial(t, p, o)
		for _, a := range r.agents {
			if solves {
				a.workload = solving{a.workload.(*fixed)}
			}
		}
		for range 300 {
			r.round(everybody(3))
		}
		near(t, name, r.y(), want.X)
	}
}

// An agent whose update did not count, one that did its task twice, and one that was killed at any time and has its
// state again: all have the duals of an undisturbed one.
func TestAgentRollsBack(t *testing.T) {
	p := smallProblem()
	plain, o := newTrial(t, p, p.options()), p.options()
	disturbed := newTrial(t, p, o)
	for k := range 8 {
		plain.round(everybody(3))
		for i := range 3 {
			a := disturbed.agents[i]
			switch {
			case i == 0 && k%3 == 1: // its update is lost, and it does the task again
				expect.Must(a.Do(t.Context(), *disturbed.tasks[i]))(t)
			case i == 1: // it is killed after its work, and before
				for range 2 {
					state := expect.Must(a.State())(t)
					a = newAgent(t, p, i, o)
					expect.OK(t, a.Restore(state))
					expect.Must(a.Do(t.Context(), *disturbed.tasks[i]))(t)
				}
				disturbed.agents[i] = a
				disturbed.tasks[i] = nil
				disturbed.take(second(disturbed.server.Join(i)))
			}
			disturbed.do(i)
		}
		if !slices.Equal(plain.y(), disturbed.y()) {
			t.Fatalf("round %d: y = %v, want %v", k, disturbed.y(), plain.y())
		}
		for i := range 3 {
			x, y := plain.agents[i].workload.(*fixed), disturbed.agents[i].workload.(*fixed)
			if x.learned != y.learned {
				t.Errorf("round %d: agent %d learned from %d batches, want %d", k, i, y.learned, x.learned)
			}
		}
	}
}

// An agent that comes back without its state starts its dual again, and the direction still converges to H⁻¹g.
func TestAgentWithoutState(t *testing.T) {
	p := smallProblem()
	o := p.options()
	r := newTrial(t, p, o)
	for k := range 200 {
		if k == 5 {
			r.agents[2] = newAgent(t, p, 2, o)
			r.take(second(r.server.Join(2)))
		}
		r.round(everybody(3))
	}
	h, g := make([][]float64, 2), make([]float64, 2)
	for i := range h {
		h[i] = make([]float64, 2)
		for j := range h[i] {
			h[i][j] = (p.H[0][i][j] + p.H[1][i][j] + p.H[2][i][j]) / 3
		}
		g[i] = (p.G[0][i] + p.G[1][i] + p.G[2][i]) / 3
	}
	det := h[0][0]*h[1][1] - h[0][1]*h[1][0]
	near(t, "y", r.y(), []float64{(h[1][1]*g[0] - h[0][1]*g[1]) / det, (h[0][0]*g[1] - h[1][0]*g[0]) / det})
}

// hold forgets an agent that is away for long; drop counts only those present.
func TestForget(t *testing.T) {
	p := smallProblem()
	o := p.options()
	o.Forget = new(3)
	r := newTrial(t, p, o)
	for range 60 {
		r.round([]bool{true, true, false})
	}
	two := &problem{Absent: "hold", Rho: p.Rho, H: p.H[:2], G: p.G[:2]}
	alone := newTrial(t, two, two.options())
	for range 200 {
		alone.round(everybody(2))
	}
	for i, x := range r.y() {
		if d := x - alone.y()[i]; d*d > 1e-10 {
			t.Errorf("y %v, want that of the two agents, %v", r.y(), alone.y())
		}
	}
}

// Rounds whose direction gains nothing have no step; three in a row begin ADMM again, and every agent hears it, also
// one that was away then.
func TestRefusedRoundsRestart(t *testing.T) {
	p := smallProblem()
	o := p.options()
	o.Step, o.Eta = new("trust"), new(1.0)
	r := newTrial(t, p, o)
	r.round(everybody(3))
	for _, a := range r.agents { // the gradient turns round, and y is still the old one
		f := a.workload.(*fixed)
		f.g = federated.Scaled(-0.01, f.g)
	}
	before := r.server.Params()
	for k := range 3 {
		r.round([]bool{true, true, false})
		if r.server.Refused[ReasonStep] != k+1 {
			t.Fatalf("%d rounds refused after %d, y %v", r.server.Refused[ReasonStep], k+1, r.y())
		}
	}
	if !slices.Equal(before, r.server.Params()) || maxAbs(r.y()) != 0 {
		t.Errorf("θ %v, want %v; y %v, want 0", r.server.Params(), before, r.y())
	}
	for i, task := range r.tasks {
		if !task.Restart {
			t.Errorf("agent %d does not hear of the restart", i)
		}
	}
	r.round([]bool{true, true, false})
	if r.tasks[0].Restart || !r.tasks[2].Restart {
		t.Error("an agent that has begun again must do so once more, or one that has not need not")
	}
}

// An agent that comes back within a round gets all vectors again, for a line search and for products too, and the round
// has the same end.
func TestJoinWithinRound(t *testing.T) {
	for _, method := range []string{FedNPGADMM, FedNPG} {
		p := smallProblem()
		o := p.options()
		o.LineSearch, o.Step = new("on"), new("trust")
		if method == FedNPG {
			o = Defaults(FedNPG)
			o.Agents, o.Wire, o.Rounds = 3, "float64", new(4)
		}
		plain, killed := newTrial(t, p, o), newTrial(t, p, o)
		for range 3 {
			turns(plain, nil)
			turns(killed, func(i int) {
				if i != 1 {
					return
				}
				state := expect.Must(killed.agents[1].State())(t)
				killed.agents[1] = newAgent(t, p, 1, o)
				expect.OK(t, killed.agents[1].Restore(state))
				killed.take(second(killed.server.Join(1)))
			})
		}
		if !slices.Equal(plain.server.Params(), killed.server.Params()) {
			t.Errorf("%s: θ %v, want %v", method, killed.server.Params(), plain.server.Params())
		}
		for i := range 3 {
			x, y := plain.agents[i].workload.(*fixed), killed.agents[i].workload.(*fixed)
			if x.learned != y.learned {
				t.Errorf("%s: agent %d learned from %d batches, want %d", method, i, y.learned, x.learned)
			}
		}
	}
}

// turns does all turns of a round; before is called ahead of each task.
func turns(r *trial, before func(i int)) {
	r.t.Helper()
	for k := r.server.Version(); r.server.Version() == k; {
		for i := range r.agents {
			if before != nil {
				before(i)
			}
			r.do(i)
		}
	}
}

// Who is late, foreign or sends the wrong thing is refused with a reason, and the round continues.
func TestSynchronousRefusals(t *testing.T) {
	o := Defaults(FedPG)
	o.Agents, o.Wire = 5, "float64"
	s := expect.Must(NewServer(o, []float64{1, 2}, 0))(t)
	for i := range 5 {
		s.Join(i)
	}
	g := [][]float64{{1, 1}}
	for _, c := range []struct {
		u    Update
		want string
	}{
		{Update{Agent: 9, Kind: Gradient, Vectors: g}, ReasonAgent},
		{Update{Agent: -1, Kind: Gradient, Vectors: g}, ReasonAgent},
		{Update{Agent: 0, Kind: Gradient, Version: 1, Vectors: g}, federated.ReasonVersion},
		{Update{Agent: 0, Kind: Search, Vectors: g}, federated.ReasonVersion},
		{Update{Agent: 4, Kind: Gradient}, ReasonKind},
		{Update{Agent: 0, Kind: Gradient, Vectors: g}, ""},
		{Update{Agent: 0, Kind: Gradient, Vectors: g}, federated.ReasonDuplicate},
		{Update{Agent: 1, Kind: Gradient, Vectors: [][]float64{{1}}}, federated.ReasonLength},
		{Update{Agent: 2, Kind: Gradient, Vectors: [][]float64{{0, 0}}}, federated.ReasonNorm},
	} {
		r, sends := s.Receive(c.u)
		if r.Reason != c.want || r.Accepted != (c.want == "") || len(sends) > 0 || r.Reason != "" && r.Detail == "" {
			t.Errorf("%+v: %+v, %d tasks", c.u, r, len(sends))
		}
	}
	s.Leave(3) // the last one that the round waits for
	if s.Version() != 1 {
		t.Errorf("version %d after everybody has answered, was refused or left", s.Version())
	}
	if r, _ := s.Receive(Update{Agent: 3, Kind: Gradient, Version: 1, Vectors: g}); r.Reason != ReasonAgent {
		t.Errorf("an agent that has left: %+v", r)
	}
}

// One agent that sends −1000 times its gradient is bounded once enough is known, and the mean with it.
func TestGuardInRounds(t *testing.T) {
	o := Defaults(FedPG)
	o.Agents, o.Wire, o.Rounds = 4, "float64", new(10)
	s := expect.Must(NewServer(o, []float64{0, 0}, 0))(t)
	for i := range 4 {
		s.Join(i)
	}
	for k := range 5 {
		for i := range 4 {
			g := []float64{1, 0.1}
			if i == 3 && k > 1 {
				g = []float64{-1000, -100}
			}
			r, _ := s.Receive(Update{Agent: i, Kind: Gradient, Version: k, Vectors: [][]float64{g}})
			if !r.Accepted || (r.Bound > 0) != (i == 3 && k > 1) {
				t.Fatalf("round %d, agent %d: %+v", k, i, r)
			}
		}
	}
}

// TestDirectionAfterRestart: an agent that has missed the round after a restart gets y, which is no longer 0.
func TestDirectionAfterRestart(t *testing.T) {
	p := smallProblem()
	o := p.options()
	o.LineSearch, o.Step, o.Eta = new("on"), new("trust"), new(1.0)
	s := newTrial(t, p, o).server
	s.Now, s.Members[2].Restart = 5, true
	y := make([]float64, len(p.G[0]))
	s.Turn.Task = Task{Kind: Solve, Version: 5, Direction: y}
	if s.taskFor(2).Direction != nil {
		t.Error("0 is sent to an agent that knows it")
	}
	y[0] = 1
	if s.taskFor(2).Direction == nil {
		t.Error("y is not sent to an agent that takes it to be 0")
	}
}

// TestWeightOfNothing: agents that say they have sampled nothing leave the parameters finite.
func TestWeightOfNothing(t *testing.T) {
	o := Defaults(FedAvg)
	o.Agents, o.Wire = 1, "float64"
	s := expect.Must(NewServer(o, []float64{1, 2}, 0))(t)
	s.Join(0)
	r, _ := s.Receive(Update{Kind: Train, Vectors: [][]float64{{1, 1}}})
	if !r.Stepped || !slices.Equal(s.Params(), []float64{2, 3}) {
		t.Errorf("%+v, parameters %v", r, s.Params())
	}
}

// TestHugeGradient: a gradient whose square overflows leaves a state that can be saved.
func TestHugeGradient(t *testing.T) {
	o := Defaults(FedNPG)
	o.Agents, o.Wire = 1, "float64"
	s := expect.Must(NewServer(o, []float64{1, 2}, 0))(t)
	s.Join(0)
	s.Receive(Update{Kind: Gradient, Vectors: [][]float64{{1e200, 0}}, Stats: Stats{Steps: 1}})
	if _, err := s.State(); err != nil || !federated.Finite(s.Params()) {
		t.Errorf("%v, parameters %v", err, s.Params())
	}
}

// failing has a batch beside an error, once.
type failing struct {
	*fixed
	calls int
}

func (f *failing) Collect(ctx context.Context, params []float64, version int) (Batch, error) {
	b, err := f.fixed.Collect(ctx, params, version)
	if f.calls++; f.calls == 1 {
		err = errors.New("no samples")
	}
	return b, err
}

// TestFailedSamplesAreDrawnAgain: a batch that came with an error is not used.
func TestFailedSamplesAreDrawnAgain(t *testing.T) {
	p := smallProblem()
	f := &failing{fixed: &fixed{h: p.H[0], g: p.G[0], start: make([]float64, len(p.G[0]))}}
	a := expect.Must(NewAgent(0, f, p.options()))(t)
	zero := make([]float64, len(p.G[0]))
	task := Task{Kind: Product, Params: zero, Direction: zero}
	if _, err := a.Do(t.Context(), task); err == nil {
		t.Error("no error")
	}
	if _, err := a.Do(t.Context(), task); err != nil || f.calls != 2 {
		t.Errorf("%v after %d draws, want 2", err, f.calls)
	}
}

// TestLeftIsNotHeld: what an agent has sent counts in the round in which it leaves, and is not held for later ones.
func TestLeftIsNotHeld(t *testing.T) {
	p := smallProblem()
	r := newTrial(t, p, p.options())
	r.do(2)
	r.take(second(r.server.Leave(2)))
	r.do(0)
	if receipt := r.do(1); receipt.Metrics["present"] != 3 {
		t.Errorf("%+v, want the round of three", receipt)
	}
	if u := r.server.Method.(*admm).Duals.U; u[0] == nil || u[1] == nil || u[2] != nil {
		t.Errorf("held: %v, want nothing of agent 2", u)
	}
}

// TestLeaveClosesARound: a round whose last agent leaves has metrics, like others.
func TestLeaveClosesARound(t *testing.T) {
	o := Defaults(FedPG)
	o.Agents, o.Wire = 3, "float64"
	s := expect.Must(NewServer(o, []float64{1, 2}, 0))(t)
	for i := range 3 {
		s.Join(i)
	}
	for i := range 2 {
		s.Receive(Update{Agent: i, Kind: Gradient, Vectors: [][]float64{{1, 1}},
			Stats: Stats{Steps: 10, Return: 3, Episodes: 1}})
	}
	if r, _ := s.Leave(2); !r.Stepped || r.Metrics["present"] != 2 || r.Metrics["return"] != 3 || s.Version() != 1 {
		t.Errorf("%+v at version %d", r, s.Version())
	}
}
