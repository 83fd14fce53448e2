package protocol

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// tabular is a workload with a softmax policy over a table, θ[s·actions + a], whose samples are given for each round.
type tabular struct {
	actions int
	norm    string
	start   []float64
	rounds  [][]trajectory
}

type trajectory struct {
	States, Actions []int
	Advantages      []float64
}

func (w *tabular) Identity() Identity    { return Identity{Protocol: Version, Task: "tabular"} }
func (w *tabular) Start() []float64      { return slices.Clone(w.start) }
func (w *tabular) State() (State, error) { return State{Head: json.RawMessage("{}")}, nil }
func (w *tabular) Restore(State) error   { return nil }

func (w *tabular) Collect(_ context.Context, params []float64, version int) (Batch, error) {
	return &tabularBatch{w, params, w.rounds[version]}, nil
}

type tabularBatch struct {
	*tabular
	theta        []float64
	trajectories []trajectory
}

// each calls do with every step, and the probabilities of its state's actions under θ.
func (b *tabularBatch) each(theta []float64, do func(state, action int, advantage float64, p []float64)) (steps int) {
	for _, tr := range b.trajectories {
		for i, s := range tr.States {
			p, sum := make([]float64, b.actions), 0.0
			for a := range p {
				p[a] = math.Exp(theta[s*b.actions+a])
				sum += p[a]
			}
			for a := range p {
				p[a] /= sum
			}
			do(s, tr.Actions[i], tr.Advantages[i], p)
			steps++
		}
	}
	return steps
}

func (b *tabularBatch) Stats() Stats {
	n := b.each(b.theta, func(int, int, float64, []float64) {})
	return Stats{Steps: n, Episodes: len(b.trajectories)}
}

func (b *tabularBatch) Gradient() ([]float64, error) {
	g := make([]float64, len(b.theta))
	n := b.each(b.theta, func(s, action int, advantage float64, p []float64) {
		for a := range p {
			g[s*b.actions+a] -= advantage * p[a]
		}
		g[s*b.actions+action] += advantage
	})
	if b.norm == "trajectories" {
		n = len(b.trajectories)
	}
	return federated.Scaled(1/float64(n), g), nil
}

// Product is the mean of (diag p − ppᵀ)v over the steps.
func (b *tabularBatch) Product(v []float64) ([]float64, error) {
	out := make([]float64, len(v))
	n := b.each(b.theta, func(s, _ int, _ float64, p []float64) {
		row := v[s*b.actions : (s+1)*b.actions]
		mean := federated.Dot(p, row)
		for a := range p {
			out[s*b.actions+a] += p[a] * (row[a] - mean)
		}
	})
	return federated.Scaled(1/float64(n), out), nil
}

func (b *tabularBatch) Search(direction []float64, scales []float64) (kl, gain []float64, err error) {
	for _, scale := range scales {
		moved := federated.Ahead(b.theta, scale, direction)
		var before [][]float64
		var advantages []float64
		b.each(b.theta, func(_, action int, advantage float64, p []float64) {
			before, advantages = append(before, p), append(advantages, advantage)
		})
		far, better, i := 0.0, 0.0, 0
		n := b.each(moved, func(_, action int, _ float64, p []float64) {
			for a := range p {
				far += before[i][a] * math.Log(before[i][a]/p[a])
			}
			better += (p[action]/before[i][action] - 1) * advantages[i]
			i++
		})
		kl, gain = append(kl, far/float64(n)), append(gain, better/float64(n))
	}
	return kl, gain, nil
}

func (b *tabularBatch) Train(context.Context, Local) ([]float64, error) { return nil, nil }

// TestOracleTabular is FedNPG-ADMM from given samples: gradients, duals, directions, line search and θ of every round.
func TestOracleTabular(t *testing.T) {
	var cases []struct {
		Name       string
		Actions    int
		Theta0     []float64
		Rho, Delta float64
		Eta        float64
		Weights    []float64
		Norm       string
		Iters      int     `json:"cg_iters"`
		Tol        float64 `json:"cg_tol"`
		From       string  `json:"cg_start"`
		Inner      int
		Search     bool            `json:"line_search"`
		Data       json.RawMessage // [rounds][agents][trajectories]
		Rounds     []struct {
			Before []float64 `json:"theta_before"`
			G      [][]float64
			Inner  []struct {
				Lam [][]float64
				YI  [][]float64 `json:"y_i"`
				Y   []float64
			}
			Scale  float64 `json:"step_scale"`
			Chosen *int
			Theta  []float64
		}
	}
	need.Oracle(t, "federated.json", "tabular", &cases)
	for _, c := range cases {
		if c.Rounds == nil {
			continue
		}
		var data [][][]trajectory
		expect.OK(t, json.Unmarshal(c.Data, &data))
		o := Defaults(FedNPGADMM)
		o.Agents, o.Wire, o.Clip, o.Rho, o.Delta, o.Eta = len(c.Weights), "float64", 0, &c.Rho, &c.Delta, &c.Eta
		o.CG, o.Inner, o.Damping = CG{&c.Iters, &c.Tol, &c.From}, &c.Inner, new(0.0)
		if o.LineSearch = new("off"); c.Search {
			o.LineSearch = new("on")
		}
		s := expect.Must(NewServer(o, c.Theta0, 0))(t)
		r := &trial{t: t, server: s.(*synchronous), tasks: make([]*Task, o.Agents)}
		r.server.Turn.Weights = c.Weights
		for i := range o.Agents {
			w := &tabular{actions: c.Actions, norm: c.Norm, start: c.Theta0}
			for _, round := range data {
				w.rounds = append(w.rounds, round[i])
			}
			a := expect.Must(NewAgent(i, w, o))(t)
			r.agents = append(r.agents, a)
			r.take(second(s.Join(i)))
		}
		for _, want := range c.Rounds {
			near(t, c.Name+" θ before", s.Params(), want.Before)
			for _, inner := range want.Inner {
				var receipt Receipt
				for i := range r.agents {
					receipt = r.do(i)
				}
				for i, a := range r.agents {
					near(t, c.Name+" g", a.gradient, want.G[i])
					near(t, c.Name+" λ_i", a.last().Dual.Lambda, inner.Lam[i])
					near(t, c.Name+" y_i", a.last().Dual.Y, inner.YI[i])
				}
				near(t, c.Name+" y", r.y(), inner.Y)
				if receipt.Stepped {
					near(t, c.Name+" scale", []float64{receipt.Metrics["scale"]}, []float64{want.Scale})
				}
			}
			if c.Search {
				var receipt Receipt
				for i := range r.agents {
					receipt = r.do(i)
				}
				if receipt.Metrics["search"] != float64(*want.Chosen) {
					t.Fatalf("%s: %v, want try %d", c.Name, receipt.Metrics, *want.Chosen)
				}
			}
			near(t, c.Name+" θ", s.Params(), want.Theta)
		}
	}
}
