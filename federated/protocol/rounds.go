package protocol

import "github.com/posttrain/posttrain/federated"

func newMethod(o Options, start []float64) method {
	point := trust{o: o, Theta: start}
	switch o.Method {
	case FedNPGADMM:
		forget := *o.Forget * *o.Inner // the state counts inner rounds
		return &admm{point, federated.NewADMM(len(start), o.Agents, federated.Absent(*o.Absent), forget)}
	case FedNPG:
		return &natural{trust: point, cg: federated.CG{Iterations: *o.CG.Iters, Tolerance: *o.CG.Tol}}
	case FedPG:
		return &meanGradient{Rule: newRule(o, start)}
	}
	return &average{o, start}
}

// vectorOfEach is one vector of each answer, nil for the absent, or nil if all are absent.
func vectorOfEach(answers []*Update, j int) [][]float64 {
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
	Rule  rule
	Steps int // a round without a gradient has none
}

func (m *meanGradient) theta() []float64 { return m.Rule.theta() }
func (m *meanGradient) firstTask() Task  { return Task{Kind: Gradient, Params: m.Rule.agentParams()} }
func (m *meanGradient) leave(int)        {}

func (m *meanGradient) next(_ Task, weights []float64, answers []*Update) outcome {
	g := federated.Mean(weights, vectorOfEach(answers, 0))
	if g == nil {
		return outcome{refused: true}
	}
	values := m.Rule.step(g, m.Steps)
	m.Steps++
	values["norm"] = federated.Norm(g)
	return outcome{values: values}
}

// average is the server of FedPPO and FedAvg: agents train for themselves, and the mean change of their weights is added
// to θ.
type average struct {
	o     Options
	Theta []float64 `json:"-"`
}

func (a *average) theta() []float64 { return a.Theta }
func (a *average) firstTask() Task  { return Task{Kind: Train, Params: a.Theta} }
func (a *average) leave(int)        {}

func (a *average) next(_ Task, weights []float64, answers []*Update) outcome {
	change := federated.Mean(weights, vectorOfEach(answers, 0))
	if change == nil || !a.o.fitsWire(federated.FedAvg(a.Theta, change)) {
		return outcome{refused: true}
	}
	a.Theta = federated.FedAvg(a.Theta, change)
	return outcome{values: map[string]float64{"norm": federated.Norm(change)}}
}

// trust is what FedNPG-ADMM and FedNPG share: the step along a direction y, with a line search or without.
type trust struct {
	o     Options
	Scale float64   // of the step before the line search
	Theta []float64 `json:"-"`
	G     []float64 `json:"-"` // the mean gradient of the round
}

func (t *trust) theta() []float64 { return t.Theta }

// stepAlong begins the step along y: the line search, or the end of the round.
func (t *trust) stepAlong(y []float64) outcome {
	if t.G == nil {
		return t.outcome(y, outcome{refused: true})
	}
	scale, ok := federated.StepKind(*t.o.Step).Scale(t.G, y, *t.o.Delta, *t.o.Eta)
	if !ok {
		return t.outcome(y, outcome{refused: true})
	}
	if t.Scale = scale; *t.o.LineSearch == "on" {
		return outcome{task: &Task{Kind: Search, Direction: y, Scale: t.Scale}}
	}
	return t.outcome(y, outcome{refused: !t.step(t.Scale, y)})
}

// endSearch ends the round with the answers of the line search.
func (t *trust) endSearch(y, weights []float64, answers []*Update) outcome {
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
	refused := !t.step(federated.SearchScales(t.Scale)[j], y)
	return t.outcome(y, outcome{values: values, refused: refused})
}

// step goes along y, unless the wire cannot carry where that leads.
func (t *trust) step(scale float64, y []float64) bool {
	theta := federated.Ahead(t.Theta, scale, y)
	if !t.o.fitsWire(theta) {
		return false
	}
	t.Theta = theta
	return true
}

func (t *trust) outcome(y []float64, out outcome) outcome {
	if out.values == nil {
		out.values = map[string]float64{}
	}
	out.values["direction_norm"] = federated.Norm(y)
	if t.G != nil {
		out.values["norm"] = federated.Norm(t.G)
	}
	if t.G = nil; !out.refused {
		out.values["scale"] = t.Scale
	}
	return out
}

// admm is the server of FedNPG-ADMM.
type admm struct {
	trust
	Duals *federated.ADMM
}

func (m *admm) firstTask() Task { return Task{Kind: Solve, Params: m.Theta, Direction: m.Duals.Y} }

func (m *admm) next(t Task, weights []float64, answers []*Update) outcome {
	if t.Kind == Search {
		return m.close(m.endSearch(m.Duals.Y, weights, answers))
	}
	sent := vectorOfEach(answers, 0)
	if t.Step == 0 && sent != nil {
		m.G = federated.Mean(weights, vectorOfEach(answers, 1))
	}
	if sent == nil {
		sent = make([][]float64, len(answers))
	}
	m.Duals.Y = m.o.roundToWire(m.Duals.Round(weights, sent))
	if t.Step+1 < *m.o.Inner && m.G != nil {
		return outcome{task: &Task{Kind: Solve, Step: t.Step + 1, Direction: m.Duals.Y}}
	}
	return m.close(m.stepAlong(m.Duals.Y))
}

// close counts refused rounds, of which three in a row restart the duals.
func (m *admm) close(out outcome) outcome {
	switch {
	case out.task != nil:
	case out.refused:
		out.restart = m.Duals.Refuse()
	default:
		m.Duals.Accept()
	}
	return out
}

func (m *admm) leave(agent int) { m.Duals.U[agent] = nil }

// natural is the server of FedNPG: it solves (H + damping)·x = g by conjugate gradient from 0, and all agents together
// compute each product with H.
type natural struct {
	trust
	cg       federated.CG
	Solution federated.Solution
}

func (n *natural) firstTask() Task { return Task{Kind: Gradient, Params: n.Theta} }
func (n *natural) leave(int)       {}

func (n *natural) next(t Task, weights []float64, answers []*Update) outcome {
	if t.Kind == Search {
		return n.addIterations(n.endSearch(n.Solution.X, weights, answers))
	}
	mean := federated.Mean(weights, vectorOfEach(answers, 0))
	switch {
	case mean == nil && t.Kind == Gradient:
		return outcome{refused: true}
	case mean == nil: // all are late or refused: what is found so far must do
		return n.endSolve()
	case t.Kind == Gradient:
		n.G = mean
		zero := make([]float64, len(n.G))
		n.Solution = n.cg.Start(n.G, zero, zero)
	default:
		n.Solution = n.cg.Step(n.Solution, federated.Ahead(mean, *n.o.Damping, n.Solution.P))
	}
	if n.Solution.Why != "" {
		return n.endSolve()
	}
	n.Solution.P = n.o.roundToWire(n.Solution.P)
	return outcome{task: &Task{Kind: Product, Step: n.Solution.Iterations, Direction: n.Solution.P}}
}

// endSolve steps along what conjugate gradient has found.
func (n *natural) endSolve() outcome {
	n.Solution.X = n.o.roundToWire(n.Solution.X)
	return n.addIterations(n.stepAlong(n.Solution.X))
}

func (n *natural) addIterations(out outcome) outcome {
	if out.task == nil {
		out.values["iterations"] = float64(n.Solution.Iterations)
	}
	return out
}
