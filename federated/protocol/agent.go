package protocol

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

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

	first   State    // of the workload, before any round
	records []record // newest last, at most two
	present int      // the round after which the workload has its state; unknown after an error
	held    *held    // what the last Search sent

	batch Batch // of round at; nil: none
	at    int
	g     []float64 // of the batch, in Solve

	secrets
}

// record is what an agent has after a round.
type record struct {
	Version, Step int
	dual          federated.Dual // of ADMM
	workload      State
}

// held is the direction of a line search, which the next Solve does not send again.
type held struct {
	version   int
	direction []float64
}

const (
	start   = -1 // no round yet
	unknown = -2
)

// NewAgent makes an agent; number is its place among the agents, from 0. The workload must be fresh.
func NewAgent(number int, w Workload, o Options) (*Agent, error) {
	first, err := w.State()
	return &Agent{number: number, workload: w, o: o, first: first, present: start}, err
}

// Do does a task of any kind but Stop. The update's slices belong to the caller.
func (a *Agent) Do(ctx context.Context, t Task) (Update, error) {
	u := Update{Agent: a.number, Kind: t.Kind, Version: t.Version, Step: t.Step, Attempt: t.Attempt}
	if t.Present != nil {
		return a.sum(t)
	}
	do := map[Kind]func(context.Context, Task, *Update) error{
		Gradient: a.gradient, Train: a.train, Solve: a.solve, Product: a.product, Search: a.search,
	}[t.Kind]
	if do == nil {
		return u, fmt.Errorf("a task of kind %q: want gradient, solve, product, search or train", t.Kind)
	}
	if err := do(ctx, t, &u); err != nil {
		return u, fmt.Errorf("%s at version %d: %w", t.Kind, t.Version, err)
	}
	for i, v := range u.Vectors {
		u.Vectors[i] = a.o.round(v)
	}
	for i, x := range u.Numbers { // a large one stays finite in float32: the server refuses infinite ones
		u.Numbers[i] = max(-math.MaxFloat32, min(x, math.MaxFloat32))
	}
	u.Numbers = a.o.round(u.Numbers)
	u.Stats = a.batch.Stats()
	if err := a.validate(ctx, t, &u); err != nil {
		return u, err
	}
	if a.o.Secure && len(u.Vectors) > 0 {
		return a.keep(u)
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

// gradient samples under θ and gives g.
func (a *Agent) gradient(ctx context.Context, t Task, u *Update) error {
	if err := a.collect(ctx, t); err != nil {
		return err
	}
	g, err := a.batch.Gradient()
	u.Vectors = [][]float64{g}
	return a.remember(t, federated.Dual{}, err)
}

// train samples under θ and gives the change of the weights by local training.
func (a *Agent) train(ctx context.Context, t Task, u *Update) error {
	if err := a.collect(ctx, t); err != nil {
		return err
	}
	change, err := a.batch.Train(ctx, a.o.how())
	u.Vectors = [][]float64{change}
	return a.remember(t, federated.Dual{}, err)
}

// solve is an inner step of FedNPG-ADMM. It gives u, and in the first step of a round, which samples, g too.
func (a *Agent) solve(ctx context.Context, t Task, u *Update) error {
	before, y, err := a.before(ctx, t)
	if err != nil {
		return err
	}
	rho := *a.o.Rho
	dual, err := a.advance(before, y, rho, *a.o.Damping)
	if err != nil {
		return err
	}
	u.Vectors = [][]float64{dual.Message(rho, federated.Absent(*a.o.Absent))}
	if t.Step == 0 {
		u.Vectors = append(u.Vectors, a.g)
	}
	return a.remember(t, dual, nil)
}

// advance is an inner step's dual for H_i + damping·I: solved by the batch at once where it can, else by conjugate
// gradient.
func (a *Agent) advance(before federated.Dual, y []float64, rho, damping float64) (federated.Dual, error) {
	dual, from := before.Advance(y, rho), before.Y
	if s, ok := a.batch.(Solver); ok {
		if solved, err := s.Solve(dual.Right(a.g, y, rho), rho+damping); solved != nil || err != nil {
			return federated.Dual{Lambda: dual.Lambda, Y: solved}, err
		}
	}
	if *a.o.CG.Start == "zero" {
		from = make([]float64, len(y))
	}
	cg := federated.CG{Iterations: *a.o.CG.Iters, Tolerance: *a.o.CG.Tol}
	dual, _, err := dual.SolveFrom(cg, federated.Damped(a.batch.Product, damping), a.g, y, rho, from)
	return dual, err
}

// before gives the dual before an inner step, and the server's y.
func (a *Agent) before(ctx context.Context, t Task) (dual federated.Dual, y []float64, err error) {
	if t.Step > 0 {
		last := a.last()
		if a.batch == nil || last == nil || last.Version != t.Version || last.Step != t.Step-1 {
			return dual, nil, fmt.Errorf("step %d: this agent has not done step %d of the round", t.Step, t.Step-1)
		}
		return last.dual, t.Direction, nil
	}
	if y, err = a.direction(t); err != nil {
		return dual, nil, err
	}
	if err = a.collect(ctx, t); err != nil {
		return dual, nil, err
	}
	a.g, err = a.batch.Gradient()
	last := a.last()
	switch {
	case t.Accepted == start || t.Restart: // the server holds u_i = 0 of this agent
		return federated.NewDual(make([]float64, len(y))), y, err
	case last != nil && last.Version == t.Accepted && last.dual.Y != nil:
		return last.dual, y, err
	}
	return federated.NewDual(y), y, err // its state is lost
}

// direction is the server's y at the start of a round. It is not sent where the agent knows it: 0 at the start and
// after a restart, else that of the last line search.
func (a *Agent) direction(t Task) ([]float64, error) {
	switch {
	case t.Direction != nil:
		return t.Direction, nil
	case t.Version == 0 || t.Restart:
		return make([]float64, len(t.Params)), nil
	case a.held != nil && a.held.version == t.Version-1:
		return a.held.direction, nil
	}
	return nil, fmt.Errorf("the task has no direction, and this agent did not search in round %d: join again",
		t.Version-1)
}

// product gives H·v.
func (a *Agent) product(ctx context.Context, t Task, u *Update) error {
	if err := a.resume(ctx, t); err != nil {
		return err
	}
	v, err := a.batch.Product(t.Direction)
	u.Vectors = [][]float64{v}
	return err
}

// search gives the mean KLs, then the gains of the line search.
func (a *Agent) search(ctx context.Context, t Task, u *Update) error {
	if err := a.resume(ctx, t); err != nil {
		return err
	}
	a.held = &held{t.Version, t.Direction}
	kl, gain, err := a.batch.Search(t.Direction, federated.SearchScales(t.Scale))
	u.Numbers = slices.Concat(kl, gain)
	for i, x := range u.Numbers { // what overflows on the wire is far outside the trust region all the same
		u.Numbers[i] = max(-math.MaxFloat32, min(math.MaxFloat32, x))
	}
	u.Numbers = a.o.round(u.Numbers)
	return err
}

// collect samples for the first task of a round, after it has undone what the server did not count.
func (a *Agent) collect(ctx context.Context, t Task) error {
	a.records = slices.DeleteFunc(a.records, func(r record) bool { return r.Version > t.Accepted })
	last := a.last()
	switch {
	case a.present == t.Accepted:
	case t.Accepted == start:
		if err := a.workload.Restore(a.first); err != nil {
			return err
		}
	case last != nil && last.Version == t.Accepted:
		if err := a.workload.Restore(last.workload); err != nil {
			return err
		}
	}
	return a.sample(ctx, t)
}

func (a *Agent) sample(ctx context.Context, t Task) (err error) {
	a.batch, a.present = nil, unknown
	a.batch, err = a.workload.Collect(ctx, t.Params, t.Version)
	if err != nil {
		a.batch = nil // what came with the error is no batch
		return err
	}
	a.at, a.present = t.Version, t.Version
	return nil
}

// resume makes sure that the batch of a round is there for a later task of it. An agent that comes back within a round
// samples the same again, from what it had learned before the round.
func (a *Agent) resume(ctx context.Context, t Task) error {
	switch {
	case a.batch != nil && a.at == t.Version:
		return nil
	case t.Params == nil:
		return fmt.Errorf("this agent has not sampled in the round: join again")
	}
	from := a.first
	for _, r := range a.records {
		if r.Version < t.Version {
			from = r.workload
		}
	}
	if err := a.workload.Restore(from); err != nil {
		return err
	}
	return a.sample(ctx, t)
}

// last is the newest record, nil without one.
func (a *Agent) last() *record {
	if len(a.records) == 0 {
		return nil
	}
	return &a.records[len(a.records)-1]
}

// remember keeps what the agent has after a task, unless this failed with err.
func (a *Agent) remember(t Task, dual federated.Dual, err error) error {
	if err != nil {
		return err
	}
	learned, err := a.workload.State()
	if err != nil {
		return err
	}
	a.records = slices.DeleteFunc(a.records, func(r record) bool { return r.Version == t.Version })
	a.records = append(a.records, record{t.Version, t.Step, dual, learned})
	a.records = a.records[max(0, len(a.records)-2):]
	return nil
}

// agentHead is the head of an agent's snapshot.
type agentHead struct {
	Records []record
	Heads   []json.RawMessage // of the workload's states in the records
	Held    *int              // version
	Made    *Update           // that waits for a secure sum
	Summed  []summed          `json:",omitempty"`
}

// State is what the agent needs to continue after a kill. A round that was under way is done again. It has no secret.
func (a *Agent) State() (State, error) {
	head, vectors := agentHead{Records: a.records, Summed: a.summed}, map[string][]float64{}
	for i, r := range a.records {
		prefix := strconv.Itoa(i) + "/"
		if r.dual.Y != nil {
			vectors[prefix+"lambda"], vectors[prefix+"y"] = r.dual.Lambda, r.dual.Y
		}
		head.Heads = append(head.Heads, r.workload.Head)
		for name, v := range r.workload.Vectors {
			vectors[prefix+"workload/"+name] = v
		}
	}
	if a.held != nil {
		head.Held, vectors["held"] = &a.held.version, a.held.direction
	}
	if head.Made = a.made; a.made != nil {
		for i, v := range a.made.Vectors {
			vectors["made/"+strconv.Itoa(i)] = v
		}
	}
	b, err := json.Marshal(head)
	return State{b, vectors}, err
}

// Restore takes a snapshot back.
func (a *Agent) Restore(s State) error {
	var head agentHead
	if err := json.Unmarshal(s.Head, &head); err != nil {
		return fmt.Errorf("state of agent %d: %w", a.number, err)
	}
	if len(head.Heads) != len(head.Records) {
		return fmt.Errorf("state of agent %d: %d rounds and %d states", a.number, len(head.Records), len(head.Heads))
	}
	a.records, a.batch, a.held, a.present = head.Records, nil, nil, unknown
	for i := range a.records {
		r, prefix := &a.records[i], strconv.Itoa(i)+"/"
		r.dual = federated.Dual{Lambda: s.Vectors[prefix+"lambda"], Y: s.Vectors[prefix+"y"]}
		r.workload = State{head.Heads[i], map[string][]float64{}}
		for name, v := range s.Vectors {
			if rest, ok := strings.CutPrefix(name, prefix+"workload/"); ok {
				r.workload.Vectors[rest] = v
			}
		}
	}
	if head.Held != nil {
		a.held = &held{*head.Held, s.Vectors["held"]}
	}
	a.summed = head.Summed
	if a.made = head.Made; a.made != nil {
		for v := s.Vectors["made/0"]; v != nil; v = s.Vectors["made/"+strconv.Itoa(len(a.made.Vectors))] {
			a.made.Vectors = append(a.made.Vectors, v)
		}
	}
	return nil
}
