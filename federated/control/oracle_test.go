package control

import (
	"encoding/json"
	"fmt"
	"testing"

	"gonum.org/v1/gonum/floats"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// table is a softmax policy with a logit for each state and action: θ is [states, actions], an observation is the
// number of a state.
type table struct{ states, actions int }

func (b table) parameters() int { return b.states * b.actions }
func (b table) outputs() int    { return b.actions }
func (b table) tape() int       { return b.actions }

func (b table) row(v, x []float64) []float64 { return v[int(x[0])*b.actions:][:b.actions] }

func (b table) forward(theta, x, tape []float64)     { copy(tape, b.row(theta, x)) }
func (b table) derivative(_, x, _, v, out []float64) { copy(out, b.row(v, x)) }
func (b table) backward(_, x, _, slope, gradient []float64) {
	floats.Add(b.row(gradient, x), slope)
}

// oracleTrajectory has states that are numbers (tabular) or rows (gaussian).
type oracleTrajectory struct {
	States, Actions []json.RawMessage
	Rewards         []float64
	LastState       int `json:"last_state"`
	Advantages      []float64
	LogP            []float64
}

type oracleCase struct {
	Name            string
	States, Actions int
	Sizes           []int
	Values          []float64
	Theta0          []float64
	Gamma, Lam      float64
	Rho, Delta, Eta float64
	Weights         []float64
	Norm            string
	Iterations      int     `json:"cg_iters"`
	Tolerance       float64 `json:"cg_tol"`
	Start           string  `json:"cg_start"`
	LineSearch      bool    `json:"line_search"`
	Ridge           float64
	PooledDirection []float64 `json:"pooled_direction"`
	RoundsNeeded    int       `json:"rounds_needed_1e6"`
	V               []float64
	FisherV         []float64 `json:"fisher_v_agent0"`
	Data            json.RawMessage
	Rounds          []oracleRound
}

type oracleRound struct {
	ThetaBefore []float64 `json:"theta_before"`
	G           [][]float64
	Inner       []struct {
		Lam [][]float64
		YI  [][]float64 `json:"y_i"`
		Y   []float64
	}
	StepScale  float64 `json:"step_scale"`
	LineSearch []struct {
		KL, Gain []float64
	} `json:"line_search"`
	Chosen int
	Theta  []float64
}

// decode returns an agent's samples under theta.
func decode(t *testing.T, p *policy, theta []float64, trajectories []oracleTrajectory) *samples {
	s := &samples{trajectories: len(trajectories)}
	numbers := func(all []json.RawMessage) (out []float64) {
		for _, raw := range all {
			var row []float64
			if json.Unmarshal(raw, &row) != nil {
				row = []float64{0}
				expect.OK(t, json.Unmarshal(raw, &row[0]))
			}
			out = append(out, row...)
		}
		return out
	}
	for _, tr := range trajectories {
		s.n += len(tr.Actions)
		s.observations = append(s.observations, numbers(tr.States)...)
		s.actions = append(s.actions, numbers(tr.Actions)...)
		s.advantages = append(s.advantages, tr.Advantages...)
	}
	s.logp, s.tapes = make([]float64, s.n), make([]float64, s.n*p.net.tape())
	p.record(theta, s)
	return s
}

// record fills tapes and logp under θ.
func (p *policy) record(theta []float64, s *samples) {
	for i := range s.n {
		out := p.forward(theta, s.row(s.observations, i), s.row(s.tapes, i))
		s.logp[i] = p.head.logProb(out, p.headParams(theta), s.row(s.actions, i))
	}
}

func (c oracleCase) batch(p *policy, theta []float64, s *samples) *batch {
	o := Options{Norm: c.Norm}
	return &batch{workload: &Workload{Task: &Task{options: o, policy: p}}, theta: theta, samples: *s}
}

// train follows the case's rounds of FedNPG-ADMM.
func (c oracleCase) train(t *testing.T, p *policy, data func(round, agent int) []oracleTrajectory) {
	cg := federated.CG{Iterations: c.Iterations, Tolerance: c.Tolerance}
	server := federated.NewADMM(len(c.Theta0), len(c.Weights), federated.Hold, 0)
	theta, duals := c.Theta0, make([]federated.Dual, len(c.Weights))
	for i := range duals {
		duals[i] = federated.NewDual(server.Y)
	}
	for r, want := range c.Rounds {
		name := fmt.Sprintf("%s, round %d", c.Name, r)
		nearAll(t, name+": θ before", theta, want.ThetaBefore, 1e-9)
		batches, g := make([]*batch, len(duals)), make([][]float64, len(duals))
		for i := range duals {
			trajectories := data(r, i)
			c.checkReturns(t, name, trajectories)
			s := decode(t, p, theta, trajectories)
			if trajectories[0].LogP != nil {
				nearAll(t, name+": log-probs", s.logp, trajectories[0].LogP, 1e-9)
			}
			batches[i] = c.batch(p, theta, s)
			g[i], _ = batches[i].Gradient()
			nearAll(t, fmt.Sprintf("%s: g of agent %d", name, i), g[i], want.G[i], 1e-9)
		}
		for k, inner := range want.Inner {
			sent := make([][]float64, len(duals))
			for i := range duals {
				d := duals[i].Advance(server.Y, c.Rho)
				start := d.Y
				if c.Start == "zero" {
					start = make([]float64, len(theta))
				}
				var err error
				if duals[i], _, err = d.Solve(cg, batches[i].Product, g[i], server.Y, c.Rho, start); err != nil {
					t.Fatal(err)
				}
				place := fmt.Sprintf("%s, inner round %d, agent %d", name, k, i)
				nearAll(t, place+": λ", duals[i].Lambda, inner.Lam[i], 1e-9)
				nearAll(t, place+": y", duals[i].Y, inner.YI[i], 1e-9)
				sent[i] = duals[i].Message(c.Rho, federated.Hold)
			}
			nearAll(t, name+": y", server.Round(c.Weights, sent), inner.Y, 1e-9)
		}
		theta = c.step(t, name, theta, g, server.Y, batches, want)
	}
}

func (c oracleCase) step(t *testing.T, name string, theta []float64, g [][]float64, y []float64, batches []*batch,
	want oracleRound) []float64 {
	scale, ok := federated.TrustScale(federated.Mean(c.Weights, g), y, c.Delta, c.Eta)
	if !ok {
		t.Fatalf("%s: refused", name)
	}
	nearAll(t, name+": scale", []float64{scale}, []float64{want.StepScale}, 1e-9)
	if c.LineSearch {
		tables := make([]federated.SearchTable, len(batches))
		scales := federated.SearchScales(scale)
		for i, b := range batches {
			kl, gain, err := b.Search(y, scales)
			expect.OK(t, err)
			tables[i] = federated.SearchTable{KL: kl, Gain: gain}
			for j, line := range want.LineSearch {
				nearAll(t, fmt.Sprintf("%s, agent %d: KL and gain of j = %d", name, i, j),
					[]float64{kl[j], gain[j]}, []float64{line.KL[i], line.Gain[i]}, 1e-9)
			}
		}
		j, _, _ := federated.ChooseScale(c.Weights, tables, c.Delta)
		if j != want.Chosen {
			t.Fatalf("%s: j = %d, want %d", name, j, want.Chosen)
		}
		scale = scales[j]
	}
	theta = federated.Ahead(theta, scale, y)
	nearAll(t, name+": θ", theta, want.Theta, 1e-9)
	return theta
}

// checkReturns compares the advantages that Options compute with the case's.
func (c oracleCase) checkReturns(t *testing.T, name string, trajectories []oracleTrajectory) {
	o := Options{Returns: GAE, Gamma: c.Gamma, Lambda: c.Lam}
	for _, tr := range trajectories {
		if tr.Rewards == nil {
			continue
		}
		values := make([]float64, len(tr.States))
		for i, raw := range tr.States {
			var s int
			expect.OK(t, json.Unmarshal(raw, &s))
			values[i] = c.Values[s]
		}
		nearAll(t, name+": advantages", o.advantages(tr.Rewards, values, c.Values[tr.LastState]), tr.Advantages, 1e-9)
	}
}

func TestOracleTabular(t *testing.T) {
	var cases []oracleCase
	need.Oracle(t, "federated.json", "tabular", &cases)
	for _, c := range cases {
		if c.Name == "limit" {
			limit(t, c)
			continue
		}
		var data [][][]oracleTrajectory
		expect.OK(t, json.Unmarshal(c.Data, &data))
		p := &policy{net: table{c.States, c.Actions}, head: newCategorical(c.Actions)}
		c.train(t, p, func(round, agent int) []oracleTrajectory { return data[round][agent] })
	}
}

// limit repeats rounds of FedNPG-ADMM at a fixed θ until y is the natural gradient of the pooled samples.
func limit(t *testing.T, c oracleCase) {
	var data [][]oracleTrajectory
	expect.OK(t, json.Unmarshal(c.Data, &data))
	c.Norm = Timesteps
	p := &policy{net: table{3, 3}, head: newCategorical(3)}
	server := federated.NewADMM(len(c.Theta0), len(data), federated.Hold, 0)
	weights := []float64{0.5, 0.5}
	cg := federated.CG{Iterations: 100, Tolerance: 1e-14}
	duals := []federated.Dual{federated.NewDual(server.Y), federated.NewDual(server.Y)}
	for k := 1; k <= c.RoundsNeeded+1; k++ {
		sent := make([][]float64, len(data))
		for i, trajectories := range data {
			b := c.batch(p, c.Theta0, decode(t, p, c.Theta0, trajectories))
			g, _ := b.Gradient()
			d := duals[i].Advance(server.Y, c.Rho)
			var err error
			if duals[i], _, err = d.Solve(cg, federated.Damped(b.Product, c.Ridge), g, server.Y, c.Rho, d.Y); err != nil {
				t.Fatal(err)
			}
			sent[i] = duals[i].Message(c.Rho, federated.Hold)
		}
		server.Round(weights, sent)
	}
	off := federated.Norm(federated.Difference(server.Y, c.PooledDirection)) / federated.Norm(c.PooledDirection)
	if !(off <= 1e-6) {
		t.Errorf("limit: relative error %v after %d rounds, want at most 1e-6", off, c.RoundsNeeded+1)
	}
}

func TestOracleGaussian(t *testing.T) {
	var cases []oracleCase
	need.Oracle(t, "federated.json", "gaussian", &cases)
	for _, c := range cases {
		var data [][]oracleTrajectory // of each round and agent, one
		expect.OK(t, json.Unmarshal(c.Data, &data))
		last := len(c.Sizes) - 1
		net := newMLP(c.Sizes[0], c.Sizes[1:last], c.Sizes[last], relu, tanh)
		p := &policy{net: net, head: gaussian{c.Sizes[last]}}
		b := c.batch(p, c.Theta0, decode(t, p, c.Theta0, data[0][:1]))
		product, _ := b.Product(c.V)
		nearAll(t, "F·v", product, c.FisherV, 1e-9)
		c.train(t, p, func(round, agent int) []oracleTrajectory { return data[round][agent : agent+1] })
	}
}

func TestOracleReturns(t *testing.T) {
	var cases []struct {
		Rewards, Values     []float64
		Last                float64 `json:"last_value"`
		Terminated          bool
		Gamma, Lam          float64
		GAE, Letter, Causal []float64
	}
	need.Oracle(t, "federated.json", "returns", &cases)
	for _, c := range cases {
		bootstrap := c.Last
		if c.Terminated {
			bootstrap = 0
		}
		for returns, want := range map[string][]float64{GAE: c.GAE, Letter: c.Letter, Causal: c.Causal} {
			o := Options{Returns: returns, Gamma: c.Gamma, Lambda: c.Lam}
			nearAll(t, returns, o.advantages(c.Rewards, c.Values, bootstrap), want, 1e-9)
		}
	}
}
