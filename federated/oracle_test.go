package federated

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// oracle reads one section of federated.json.
func oracle[T any](t *testing.T, section string) []T {
	t.Helper()
	dir := os.Getenv("POSTTRAIN_ORACLE_DIR")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "oracle")
	}
	text, err := os.ReadFile(filepath.Join(dir, "federated.json"))
	if err != nil {
		t.Skipf("no oracle: %v; set POSTTRAIN_ORACLE_DIR to the folder that holds federated.json", err)
	}
	var sections map[string]json.RawMessage
	if err := json.Unmarshal(text, &sections); err != nil {
		t.Fatal(err)
	}
	var cases []T
	if err := json.Unmarshal(sections[section], &cases); err != nil || len(cases) == 0 {
		t.Fatalf("section %s: %d cases, %v", section, len(cases), err)
	}
	return cases
}

// near compares got with want within 1e-9·max(1, |want|).
func near(t *testing.T, name string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-9*max(1, math.Abs(want))) {
		t.Errorf("%s = %.12g, want %.12g", name, got, want)
	}
}

func nearAll(t *testing.T, name string, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s has %d numbers, want %d", name, len(got), len(want))
		return
	}
	for j := range want {
		near(t, name+"["+strconv.Itoa(j)+"]", got[j], want[j])
	}
}

type oracleSchedule struct {
	Kind  ScheduleKind
	Const struct{ Alpha, Eta float64 }
}

func (o oracleSchedule) schedule() Schedule { return Schedule{o.Kind, o.Const.Alpha, o.Const.Eta} }

type oracleStep struct {
	Time               float64
	Agent              int
	K, Version, Delay  int
	Alpha, Eta, Norm   float64
	D, Theta, Tilde, G []float64
}

func (o oracleStep) compare(t *testing.T, name string, s *AFedPG, step AFedPGStep) {
	t.Helper()
	if s.K != o.K || o.Delay > 0 && step.Delay != o.Delay {
		t.Errorf("%s: version %d, delay %d, want %d, %d", name, s.K, step.Delay, o.K, o.Delay)
	}
	nearAll(t, name+" alpha, eta", []float64{step.Alpha, step.Eta}, []float64{o.Alpha, o.Eta})
	nearAll(t, name+" theta", s.Theta, o.Theta)
	nearAll(t, name+" tilde", s.Tilde, o.Tilde)
	if o.D != nil {
		nearAll(t, name+" d", s.D, o.D)
		near(t, name+" norm", step.Norm, o.Norm)
	}
}

func TestOracleAFedPG(t *testing.T) {
	type testCase struct {
		oracleSchedule
		Theta0   []float64
		Arrivals []oracleStep
	}
	for i, c := range oracle[testCase](t, "afedpg") {
		s := NewAFedPG(c.Theta0, c.schedule())
		for _, a := range c.Arrivals {
			a.compare(t, "case "+strconv.Itoa(i)+" k "+strconv.Itoa(a.K), s, s.Step(a.G, a.Version))
		}
	}
}

func TestOracleGuard(t *testing.T) {
	type update struct {
		Agent, Version, K  int
		G                  []json.RawMessage
		Refused            string
		Bound              *float64
		Used, Theta, Tilde []float64
	}
	type testCase struct {
		Clip     float64
		MaxDelay int `json:"max_delay"`
		Const    struct{ Alpha, Eta float64 }
		Updates  []update
	}
	for _, c := range oracle[testCase](t, "guard") {
		s := NewAFedPG(make([]float64, 3), Schedule{Constant, c.Const.Alpha, c.Const.Eta})
		guard := &Guard{Length: 3, Clip: c.Clip, MaxDelay: c.MaxDelay}
		for i, u := range c.Updates {
			name := "update " + strconv.Itoa(i)
			v := guard.Check(u.Agent, u.Version, s.K, parseNumbers(t, u.G))
			if v.Reason != u.Refused {
				t.Fatalf("%s: refused for %q (%s), want %q", name, v.Reason, v.Detail, u.Refused)
			}
			if u.Refused == "" {
				guard.Record(u.Agent, u.Version, s.K, v.Norm)
				s.Step(v.Used, u.Version)
				nearAll(t, name+" used", v.Used, u.Used)
			}
			if (u.Bound != nil) != (v.Bound > 0) {
				t.Errorf("%s: bound %g, want %v", name, v.Bound, u.Bound)
			} else if u.Bound != nil {
				near(t, name+" bound", v.Bound, *u.Bound)
			}
			if s.K != u.K {
				t.Errorf("%s: version %d, want %d", name, s.K, u.K)
			}
			nearAll(t, name+" theta", s.Theta, u.Theta)
			nearAll(t, name+" tilde", s.Tilde, u.Tilde)
		}
	}
}

// parseNumbers reads numbers, and the strings "nan" and "inf".
func parseNumbers(t *testing.T, raw []json.RawMessage) []float64 {
	t.Helper()
	out := make([]float64, len(raw))
	for j, r := range raw {
		text := string(r)
		if text[0] == '"' {
			text = text[1 : len(text)-1]
		}
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		out[j] = x
	}
	return out
}

// times returns the product with a matrix.
func times(matrix [][]float64) Product {
	return func(v []float64) ([]float64, error) {
		out := make([]float64, len(v))
		for i, row := range matrix {
			out[i] = Dot(row, v)
		}
		return out, nil
	}
}

func TestOracleCG(t *testing.T) {
	type testCase struct {
		Matrix             [][]float64
		Damping, Tol       float64
		B, Start, X, Exact []float64
		MaxIter            int `json:"max_iter"`
		Steps              []struct {
			Residual float64
			X        []float64
		}
		Iterations int
		Why        string
	}
	for i, c := range oracle[testCase](t, "cg") {
		name := "case " + strconv.Itoa(i)
		solve := func(iterations int) Solution {
			s, err := CG{iterations, c.Tol}.Solve(Damped(times(c.Matrix), c.Damping), c.B, c.Start)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		s := solve(c.MaxIter)
		if s.Why != c.Why || s.Iterations != c.Iterations {
			t.Errorf("%s: %s after %d, want %s after %d", name, s.Why, s.Iterations, c.Why, c.Iterations)
		}
		nearAll(t, name+" x", s.X, c.X)
		for j, step := range c.Steps {
			s := solve(j + 1)
			near(t, name+" residual", s.Residual, step.Residual)
			nearAll(t, name+" step "+strconv.Itoa(j), s.X, step.X)
		}
	}
}

type oracleADMM struct {
	Kind    string
	Absent  Absent
	H       [][][]float64
	G       [][]float64
	Weights []float64
	Rho     float64
	Masks   [][]bool
	Rounds  []struct {
		Lam [][]float64
		YI  [][]float64 `json:"y_i"`
		Y   []float64
	}
	Exact     []float64
	Error     map[string]float64 `json:"relative_error_after"`
	MasksUsed int                `json:"masks_used"`
	Delta     float64
	StepScale *float64 `json:"step_scale"`
	Y, Step   []float64
}

// fixedProblem runs ADMM on matrices and gradients that do not change, with exact solves.
type fixedProblem struct {
	h       [][][]float64
	g       [][]float64
	weights []float64
	rho     float64
	server  *ADMM
	agents  []Dual
}

func newFixedProblem(h [][][]float64, g [][]float64, weights []float64, rho float64, absent Absent) *fixedProblem {
	p := &fixedProblem{h, g, weights, rho, NewADMM(len(g[0]), len(g), absent, 0), nil}
	for range g {
		p.agents = append(p.agents, NewDual(p.server.Y))
	}
	return p
}

func (p *fixedProblem) round(t *testing.T, present []bool) {
	t.Helper()
	sent := make([][]float64, len(p.agents))
	for i, here := range present {
		if !here {
			continue
		}
		a := p.agents[i].Advance(p.server.Y, p.rho)
		a, _, err := a.Solve(CG{50, 1e-15}, times(p.h[i]), p.g[i], p.server.Y, p.rho)
		if err != nil {
			t.Fatal(err)
		}
		p.agents[i], sent[i] = a, a.Message(p.rho, p.server.Absent)
	}
	p.server.Round(p.weights, sent)
}

func (p *fixedProblem) error(exact []float64) float64 {
	return Norm(Difference(p.server.Y, exact)) / Norm(exact)
}

func TestOracleADMM(t *testing.T) {
	for _, c := range oracle[oracleADMM](t, "admm") {
		name := c.Kind + " " + string(c.Absent)
		switch c.Kind {
		case "refused":
			if scale, ok := TrustScale(c.G[0], c.Y, c.Delta, 1); ok {
				t.Errorf("gᵀy < 0: scale %g, want a refusal", scale)
			}
			continue
		case "step-identity":
			stepIdentity(t, c)
			continue
		}
		p := newFixedProblem(c.H, c.G, c.Weights, c.Rho, c.Absent)
		for k := range 40 {
			mask := make([]bool, len(c.G))
			for i := range mask {
				mask[i] = k >= len(c.Masks) || c.Masks[k][i]
			}
			p.round(t, mask)
			if want, ok := c.Error[strconv.Itoa(k+1)]; ok && (c.Kind != "half" || k < len(c.Masks)) {
				near(t, name+" error after "+strconv.Itoa(k+1), p.error(c.Exact), want)
			}
			if k >= len(c.Rounds) {
				continue
			}
			nearAll(t, name+" y", p.server.Y, c.Rounds[k].Y)
			for i, agent := range p.agents {
				nearAll(t, name+" λ", agent.Lambda, c.Rounds[k].Lam[i])
				nearAll(t, name+" y_i", agent.Y, c.Rounds[k].YI[i])
			}
			if k == len(c.Rounds)-1 {
				scale, ok := TrustScale(Mean(c.Weights, c.G), p.server.Y, c.Delta, 1)
				if near(t, name+" step_scale", scale, *c.StepScale); !ok {
					t.Errorf("%s: refused", name)
				}
			}
		}
	}
}

// The paper's step with sums and a factor N, our step with means, and ADMM's step at convergence are one.
func stepIdentity(t *testing.T, c oracleADMM) {
	t.Helper()
	weights := make([]float64, len(c.G))
	for i := range weights {
		weights[i] = 1 / float64(len(c.G))
	}
	p := newFixedProblem(c.H, c.G, weights, 0.5, Hold)
	for range 4000 {
		p.round(t, []bool{true, true, true, true, true}[:len(c.G)])
	}
	g := Mean(weights, c.G)
	scale, _ := TrustScale(g, p.server.Y, c.Delta, 1)
	nearAll(t, "ADMM's step at convergence", Scaled(scale, p.server.Y), c.Step)
	mean := func(v []float64) ([]float64, error) {
		products := make([][]float64, len(c.H))
		for i, h := range c.H {
			products[i], _ = times(h)(v)
		}
		return Mean(weights, products), nil
	}
	step, ok, err := NaturalStep(CG{50, 1e-15}, mean, g, c.Delta)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	nearAll(t, "FedNPG's step", step, c.Step)
}
