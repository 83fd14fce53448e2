package protocol

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/posttrain/posttrain/federated"
)

// Agent does the tasks of one agent with its workload. It keeps what it has learned for itself after each of its last
// two rounds. A task names the last of its rounds that the server counted, and a newer one is undone: a task that is
// done again, after a kill or because an update was lost, gives the same numbers. Where the agent does not know the
// round that a task names, because it has lost its state, its dual starts again. It is not safe for concurrent use.
type Agent struct {
	number   int
	workload Workload
	o        Options

	initial      State // state of the workload, before any round
	batch        Batch // of round batchVersion; nil: none
	batchVersion int
	gradient     []float64 // of the batch, in Solve

	secret []byte // of secure sums
	run    string

	agentState
}

// agentState is what an agent keeps over a kill. It has no secret.
type agentState struct {
	Records []record    // newest last, at most two
	Held    *lastSearch // what the last Search sent
	Made    *Update     // the last update, with its vectors, which wait for a secure sum
	Summed  []maskedSum `json:",omitempty"`
}

// record is what an agent has after a round.
type record struct {
	Version, Step int
	Dual          federated.Dual // of ADMM
	Workload      State          // its state
}

// lastSearch is the direction of a line search, which the next Solve does not send again.
type lastSearch struct {
	Version   int
	Direction []float64 `json:"-"`
}

const start = -1 // no round yet

// NewAgent makes an agent; number is its place among the agents, from 0. The workload must be fresh.
func NewAgent(number int, w Workload, o Options) (*Agent, error) {
	a := &Agent{number: number, workload: w, o: o}
	var err error
	a.initial, err = a.workloadState()
	return a, err
}

// workloadState is the state of the workload, if it has one.
func (a *Agent) workloadState() (State, error) {
	if l, ok := a.workload.(Learner); ok {
		return l.State()
	}
	return State{}, nil
}

// Identity is the identity of the agent's workload.
func (a *Agent) Identity() Identity { return a.workload.Identity() }

// Do does a task of any kind but Stop. The update's slices belong to the caller.
func (a *Agent) Do(ctx context.Context, t Task) (Update, error) {
	u := Update{Agent: a.number, Kind: t.Kind, Version: t.Version, Step: t.Step, Attempt: t.Attempt}
	if t.Present != nil {
		return a.maskVectors(t)
	}
	do := map[Kind]func(context.Context, Task, *Update) error{
		Gradient: a.learn, Train: a.learn, Solve: a.solve, Product: a.product, Search: a.search,
	}[t.Kind]
	if do == nil {
		return u, fmt.Errorf("a task of kind %q: want gradient, solve, product, search or train", t.Kind)
	}
	if err := do(ctx, t, &u); err != nil {
		return u, fmt.Errorf("%s at version %d: %w", t.Kind, t.Version, err)
	}
	for i, v := range u.Vectors {
		u.Vectors[i] = a.o.roundToWire(v)
	}
	for i, x := range u.Numbers { // what overflows on the wire is far outside the trust region all the same
		u.Numbers[i] = max(-math.MaxFloat32, min(x, math.MaxFloat32))
	}
	u.Numbers, u.Stats = a.o.roundToWire(u.Numbers), a.batch.Stats()
	if err := a.validate(ctx, t, &u); err != nil {
		return u, err
	}
	if a.o.Secure && len(u.Vectors) > 0 {
		return a.holdBack(u)
	}
	return u, nil
}

// validate measures the task's parameters, where it asks for that.
func (a *Agent) validate(ctx context.Context, t Task, u *Update) error {
	if v, ok := a.workload.(Validator); ok && t.Validate {
		measured, err := v.Validate(ctx, t.Params)
		if err != nil {
			return fmt.Errorf("validation at version %d: %w", t.Version, err)
		}
		if u.Stats.Validation = measured; measured != nil {
			maps.DeleteFunc(measured.Means, func(_ string, x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
		}
	}
	return nil
}

// learn samples under θ and gives g, or the change of the weights by local training.
func (a *Agent) learn(ctx context.Context, t Task, u *Update) error {
	err := a.collect(ctx, t)
	if err != nil {
		return err
	}
	u.Vectors = make([][]float64, 1)
	if t.Kind == Train {
		u.Vectors[0], err = a.batch.Train(ctx, a.o.localTraining())
	} else {
		u.Vectors[0], err = a.batch.Gradient()
	}
	return a.remember(t, federated.Dual{}, err)
}

// solve is an inner step of FedNPG-ADMM. It gives u, and in the first step of a round, which samples, g too.
func (a *Agent) solve(ctx context.Context, t Task, u *Update) error {
	before, y, err := a.dualBefore(ctx, t)
	if err != nil {
		return err
	}
	rho := *a.o.Rho
	dual, err := a.advanceDual(before, y, rho, *a.o.Damping)
	if err != nil {
		return err
	}
	u.Vectors = [][]float64{dual.Message(rho, federated.Absent(*a.o.Absent))}
	if t.Step == 0 {
		u.Vectors = append(u.Vectors, a.gradient)
	}
	return a.remember(t, dual, nil)
}

// advanceDual is an inner step's dual for H_i + damping·I: solved by the batch at once where it can, else by conjugate
// gradient.
func (a *Agent) advanceDual(before federated.Dual, y []float64, rho, damping float64) (federated.Dual, error) {
	dual, from := before.Advance(y, rho), before.Y
	if s, ok := a.batch.(Solver); ok {
		solved, err := s.Solve(dual.Right(a.gradient, y, rho), rho+damping)
		return federated.Dual{Lambda: dual.Lambda, Y: solved}, err
	}
	n, err := a.naturalBatch()
	if err != nil {
		return dual, err
	}
	if *a.o.CG.Start == "zero" {
		from = make([]float64, len(y))
	}
	cg := federated.CG{Iterations: *a.o.CG.Iters, Tolerance: *a.o.CG.Tol}
	dual, _, err = dual.Solve(cg, federated.Damped(n.Product, damping), a.gradient, y, rho, from)
	return dual, err
}

// dualBefore gives the dual before an inner step, and the server's y.
func (a *Agent) dualBefore(ctx context.Context, t Task) (dual federated.Dual, y []float64, err error) {
	if t.Step > 0 {
		last := a.last()
		if a.batch == nil || last == nil || last.Version != t.Version || last.Step != t.Step-1 {
			return dual, nil, fmt.Errorf("step %d: this agent has not done step %d of the round", t.Step, t.Step-1)
		}
		return last.Dual, t.Direction, nil
	}
	if y, err = a.direction(t); err != nil {
		return dual, nil, err
	}
	if err = a.collect(ctx, t); err != nil {
		return dual, nil, err
	}
	a.gradient, err = a.batch.Gradient()
	last := a.last()
	switch {
	case t.Accepted == start || t.Restart: // the server holds u_i = 0 of this agent
		return federated.NewDual(make([]float64, len(y))), y, err
	case last != nil && last.Version == t.Accepted && last.Dual.Y != nil:
		return last.Dual, y, err
	}
	return federated.NewDual(y), y, err // its state is lost
}

// direction is the server's y at the start of a round. It is not sent where the agent knows it: 0 at the start and
// after a restart, else the direction of the last line search.
func (a *Agent) direction(t Task) ([]float64, error) {
	switch {
	case t.Direction != nil:
		return t.Direction, nil
	case t.Version == 0 || t.Restart:
		return make([]float64, len(t.Params)), nil
	case a.Held != nil && a.Held.Version == t.Version-1:
		return a.Held.Direction, nil
	}
	return nil, fmt.Errorf("the task has no direction, and this agent did not search in round %d: join again",
		t.Version-1)
}

// naturalBatch is the batch, for what needs samples of the policy.
func (a *Agent) naturalBatch() (Natural, error) {
	n, ok := a.batch.(Natural)
	if !ok {
		return nil, fmt.Errorf("%s has no samples of the policy: want a method without natural gradients",
			a.workload.Identity().Task)
	}
	return n, nil
}

// product gives H·v.
func (a *Agent) product(ctx context.Context, t Task, u *Update) error {
	n, err := a.resume(ctx, t)
	if err != nil {
		return err
	}
	v, err := n.Product(t.Direction)
	u.Vectors = [][]float64{v}
	return err
}

// search gives the mean KLs, then the gains of the line search.
func (a *Agent) search(ctx context.Context, t Task, u *Update) error {
	n, err := a.resume(ctx, t)
	if err != nil {
		return err
	}
	a.Held = &lastSearch{t.Version, t.Direction}
	kl, gain, err := n.Search(t.Direction, federated.SearchScales(t.Scale))
	u.Numbers = slices.Concat(kl, gain)
	return err
}

// collect samples for the first task of a round, after it has undone what the server did not count.
func (a *Agent) collect(ctx context.Context, t Task) error {
	a.Records = slices.DeleteFunc(a.Records, func(r record) bool { return r.Version > t.Accepted })
	last := a.last()
	var learned *State // nil: its state is lost
	switch {
	case t.Accepted == start:
		learned = &a.initial
	case last != nil && last.Version == t.Accepted:
		learned = &last.Workload
	}
	return a.sample(ctx, t, learned)
}

// sample collects the batch of a round, with what the workload had learned before; nil: with what it has now.
func (a *Agent) sample(ctx context.Context, t Task, learned *State) error {
	a.batch = nil
	if l, ok := a.workload.(Learner); ok && learned != nil {
		if err := l.Restore(*learned); err != nil {
			return err
		}
	}
	batch, err := a.workload.Collect(ctx, t.Params, t.Version)
	if err == nil {
		a.batch, a.batchVersion = batch, t.Version
	}
	return err
}

// resume makes sure that the batch of a round is there for a later task of it. An agent that comes back within a round
// samples the same again, from what it had learned before the round.
func (a *Agent) resume(ctx context.Context, t Task) (Natural, error) {
	switch {
	case a.batch != nil && a.batchVersion == t.Version:
		return a.naturalBatch()
	case t.Params == nil:
		return nil, fmt.Errorf("this agent has not sampled in the round: join again")
	}
	from := a.initial
	for _, r := range a.Records {
		if r.Version < t.Version {
			from = r.Workload
		}
	}
	if err := a.sample(ctx, t, &from); err != nil {
		return nil, err
	}
	return a.naturalBatch()
}

// last is the newest record, nil without one.
func (a *Agent) last() *record {
	if len(a.Records) == 0 {
		return nil
	}
	return &a.Records[len(a.Records)-1]
}

// remember keeps what the agent has after a task, unless this failed with err.
func (a *Agent) remember(t Task, dual federated.Dual, err error) error {
	if err != nil {
		return err
	}
	learned, err := a.workloadState()
	if err != nil {
		return err
	}
	a.Records = slices.DeleteFunc(a.Records, func(r record) bool { return r.Version == t.Version })
	a.Records = append(a.Records, record{t.Version, t.Step, dual, learned})
	a.Records = a.Records[max(0, len(a.Records)-2):]
	return nil
}

// State is what the agent needs to continue after a kill. A round that was under way is done again. It has no secret.
func (a *Agent) State() (State, error) { return Pack(&a.agentState) }

// Restore takes a snapshot back.
func (a *Agent) Restore(s State) error {
	var m agentState
	if err := Unpack(s, &m); err != nil {
		return fmt.Errorf("state of agent %d: %w", a.number, err)
	}
	a.agentState, a.batch = m, nil
	return nil
}
