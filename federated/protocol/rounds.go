package protocol

import (
	"strconv"

	"github.com/posttrain/posttrain/federated"
)

// parts are one vector of each answer, nil for the absent, or nil if all are absent.
func parts(answers []*Update, j int) [][]float64 {
	vectors, some := make([][]float64, len(answers)), false
	for i, u := range answers {
		if u != nil {
			vectors[i], some = u.Vectors[j], true
		}
	}
	if !some {
		return nil
	}
	return vectors
}

// meanGradient is FedPG: AFedPG's step on the mean of all agents' gradients at one θ̃.
type meanGradient struct {
	rule
	o     Options
	steps int // a round without a gradient has none
}

func (m *meanGradient) open() Task { return Task{Kind: Gradient, Params: m.sent()} }

func (m *meanGradient) next(_ Task, weights []float64, answers []*Update) outcome {
	gradients := parts(answers, 0)
	if gradients == nil {
		return outcome{refused: true}
	}
	g := join(m.o, weights, gradients)
	values := m.step([][]float64{g}, []int{m.steps})
	m.steps++
	values["norm"] = federated.Norm(g)
	return outcome{values: values}
}

func (m *meanGradient) leave(int) {}
func (m *meanGradient) head() any { return &m.steps }

func (m *meanGradient) load(_ int, vectors map[string][]float64) error {
	return m.rule.load(m.steps, vectors)
}

// join is the aggregate of the vectors that are not nil.
func join(o Options, weights []float64, vectors [][]float64) []float64 {
	v, err := federated.Aggregate(*o.Aggregate).Of(weights, vectors)
	if err != nil {
		panic(err) // Check has accepted the aggregate
	}
	return v
}

// average is the server of FedPPO, FedAvg, FedProx and DiLoCo: agents train for themselves, and the mean change of
// their weights is added to θ, in DiLoCo by an outer Nesterov momentum.
type average struct {
	o     Options
	outer *federated.DiLoCo
}

func newAverage(o Options, start []float64) *average {
	a := &average{o: o, outer: federated.NewDiLoCo(start, 0, 1)}
	if o.Method == DiLoCo {
		a.outer.Momentum, a.outer.Rate = *o.Outer.Momentum, *o.Outer.LR
	}
	return a
}

func (a *average) theta() []float64 { return a.outer.Theta }
func (a *average) open() Task       { return Task{Kind: Train, Params: a.outer.Theta} }

func (a *average) next(_ Task, weights []float64, answers []*Update) outcome {
	changes := parts(answers, 0)
	if changes == nil {
		return outcome{refused: true}
	}
	change := join(a.o, weights, changes)
	if a.o.Method == DiLoCo {
		a.outer.Step(change)
	} else {
		a.outer.Theta = federated.FedAvg(a.outer.Theta, change)
	}
	return outcome{values: map[string]float64{"norm": federated.Norm(change)}}
}

func (a *average) leave(int) {}
func (a *average) head() any { return &a.outer.K }

func (a *average) save() map[string][]float64 {
	return map[string][]float64{"theta": a.outer.Theta, "momentum": a.outer.Buffer}
}

func (a *average) load(_ int, vectors map[string][]float64) (err error) {
	if a.outer.Theta, err = vector(vectors, "theta"); err != nil {
		return err
	}
	a.outer.Buffer, err = vector(vectors, "momentum")
	return err
}

// trust is what FedNPG-ADMM and FedNPG share: the step along a direction y, with a line search or without.
type trust struct {
	o     Options
	Scale float64 // of the step before the line search
	point []float64
	g     []float64 // the mean gradient of the round
}

func (t *trust) theta() []float64 { return t.point }

// along begins the step along y: the line search, or the end of the round.
func (t *trust) along(y []float64) outcome {
	if t.g == nil {
		return t.outcome(y, outcome{refused: true})
	}
	scale, ok := federated.StepKind(*t.o.Step).Scale(t.g, y, *t.o.Delta, *t.o.Eta)
	if !ok {
		return t.outcome(y, outcome{refused: true})
	}
	if t.Scale = scale; *t.o.LineSearch == "on" {
		return outcome{task: &Task{Kind: Search, Direction: y, Scale: t.Scale}}
	}
	t.point = federated.Ahead(t.point, t.Scale, y)
	return t.outcome(y, outcome{})
}

// searched ends the round with the answers of the line search.
func (t *trust) searched(y, weights []float64, answers []*Update) outcome {
	var tables []federated.SearchTable
	var shares []float64
	for i, u := range answers {
		if u != nil {
			n := u.Numbers
			tables = append(tables, federated.SearchTable{KL: n[:federated.Tries], Gain: n[federated.Tries:]})
			shares = append(shares, weights[i])
		}
	}
	j, kl, gain := -1, 0.0, 0.0
	if len(tables) > 0 {
		j, kl, gain = federated.ChooseScale(shares, tables, *t.o.Delta)
	}
	values := map[string]float64{"search": float64(j)}
	if j < 0 {
		return t.outcome(y, outcome{refused: true, values: values})
	}
	values["kl"], values["gain"] = kl, gain
	t.point = federated.Ahead(t.point, federated.SearchScales(t.Scale)[j], y)
	return t.outcome(y, outcome{values: values})
}

func (t *trust) outcome(y []float64, out outcome) outcome {
	if out.values == nil {
		out.values = map[string]float64{}
	}
	out.values["direction_norm"] = federated.Norm(y)
	if t.g != nil {
		out.values["norm"] = federated.Norm(t.g)
	}
	if t.g = nil; !out.refused {
		out.values["scale"] = t.Scale
	}
	return out
}

// admm is the server of FedNPG-ADMM.
type admm struct {
	trust
	state *federated.ADMM
}

func newADMM(o Options, start []float64) *admm {
	forget := *o.Forget * *o.Inner // the state counts inner rounds
	return &admm{trust{o: o, point: start},
		federated.NewADMM(len(start), o.Agents, federated.Absent(*o.Absent), forget)}
}

func (m *admm) open() Task { return Task{Kind: Solve, Params: m.point, Direction: m.state.Y} }

func (m *admm) next(t Task, weights []float64, answers []*Update) outcome {
	if t.Kind == Search {
		return m.close(m.searched(m.state.Y, weights, answers))
	}
	sent := parts(answers, 0)
	if t.Step == 0 && sent != nil {
		m.g = federated.Mean(weights, parts(answers, 1))
	}
	if sent == nil {
		sent = make([][]float64, len(answers))
	}
	m.state.Y = m.o.round(m.state.Round(weights, sent))
	if t.Step+1 < *m.o.Inner && m.g != nil {
		return outcome{task: &Task{Kind: Solve, Step: t.Step + 1, Direction: m.state.Y}}
	}
	return m.close(m.along(m.state.Y))
}

// close counts refused rounds, of which three in a row restart the duals.
func (m *admm) close(out outcome) outcome {
	switch {
	case out.task != nil:
	case out.refused:
		out.restart = m.state.Refuse()
	default:
		m.state.Accept()
	}
	return out
}

func (m *admm) leave(agent int) { m.state.U[agent] = nil }

// admmHead is what a snapshot has beside vectors.
type admmHead struct {
	Scale   *float64
	Away    *[]int
	Refused *int
}

func (m *admm) head() any { return &admmHead{&m.Scale, &m.state.Away, &m.state.Refused} }

func (m *admm) save() map[string][]float64 {
	vectors := map[string][]float64{"theta": m.point, "y": m.state.Y}
	for i, u := range m.state.U {
		if u != nil {
			vectors["u/"+strconv.Itoa(i)] = u
		}
	}
	if m.g != nil {
		vectors["g"] = m.g
	}
	return vectors
}

func (m *admm) load(_ int, vectors map[string][]float64) (err error) {
	if m.point, err = vector(vectors, "theta"); err != nil {
		return err
	}
	for i := range m.state.U {
		m.state.U[i] = vectors["u/"+strconv.Itoa(i)]
	}
	m.g = vectors["g"]
	m.state.Y, err = vector(vectors, "y")
	return err
}

// natural is the server of FedNPG: it solves (H + damping)·x = g by conjugate gradient from 0, and all agents together
// compute each product with H.
type natural struct {
	trust
	cg       federated.CG
	solution federated.Solution
}

func newNatural(o Options, start []float64) *natural {
	return &natural{trust: trust{o: o, point: start}, cg: federated.CG{Iterations: *o.CG.Iters, Tolerance: *o.CG.Tol}}
}

func (n *natural) open() Task { return Task{Kind: Gradient, Params: n.point} }

func (n *natural) next(t Task, weights []float64, answers []*Update) outcome {
	if t.Kind == Search {
		return n.finish(n.searched(n.solution.X, weights, answers))
	}
	vectors := parts(answers, 0)
	switch {
	case vectors == nil && t.Kind == Gradient:
		return outcome{refused: true}
	case vectors == nil: // all are late or refused: what is found so far must do
		return n.solved()
	case t.Kind == Gradient:
		n.g = federated.Mean(weights, vectors)
		zero := make([]float64, len(n.g))
		n.solution = n.cg.Start(n.g, zero, zero)
	default:
		product := federated.Ahead(federated.Mean(weights, vectors), *n.o.Damping, n.solution.P)
		n.solution = n.cg.Step(n.solution, product)
	}
	if n.solution.Why != "" {
		return n.solved()
	}
	n.solution.P = n.o.round(n.solution.P)
	return outcome{task: &Task{Kind: Product, Step: n.solution.Iterations, Direction: n.solution.P}}
}

// solved steps along what conjugate gradient has found.
func (n *natural) solved() outcome {
	n.solution.X = n.o.round(n.solution.X)
	return n.finish(n.along(n.solution.X))
}

func (n *natural) finish(out outcome) outcome {
	if out.task == nil {
		out.values["iterations"] = float64(n.solution.Iterations)
	}
	return out
}

func (n *natural) leave(int) {}

// naturalHead is what a snapshot has beside vectors.
type naturalHead struct {
	Scale, Square, Enough *float64
	Iterations            *int
}

func (n *natural) head() any {
	return &naturalHead{&n.Scale, &n.solution.Square, &n.solution.Enough, &n.solution.Iterations}
}

func (n *natural) save() map[string][]float64 {
	vectors := map[string][]float64{"theta": n.point}
	for name, v := range map[string][]float64{"g": n.g, "x": n.solution.X, "r": n.solution.R, "p": n.solution.P} {
		if v != nil {
			vectors[name] = v
		}
	}
	return vectors
}

func (n *natural) load(_ int, vectors map[string][]float64) (err error) {
	n.g, n.solution.Why = vectors["g"], ""
	n.solution.X, n.solution.R, n.solution.P = vectors["x"], vectors["r"], vectors["p"]
	n.point, err = vector(vectors, "theta")
	return err
}
