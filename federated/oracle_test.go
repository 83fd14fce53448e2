package federated

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// oracle reads one section of federated.json.
func oracle[T any](t *testing.T, section string) []T {
	t.Helper()
	var cases []T
	if need.Oracle(t, "federated.json", section, &cases); len(cases) == 0 {
		t.Fatalf("section %s: no cases", section)
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
			v := guard.Check(u.Agent, u.Version, s.K, parseNumbers(t, u.G), false)
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
		x := expect.Must(strconv.ParseFloat(text, 64))(t)
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
			return expect.Must(CG{iterations, c.Tol}.Solve(Damped(times(c.Matrix), c.Damping), c.B, c.Start))(t)
		}
		s := solve(c.MaxIter)
		if s.Why != c.Why || s.Iterations != c.Iterations {
			t.Errorf("%s: %s after %d, want %s after %d", name, s.Why, s.Iterations, c.Why, c.Iterations)
		}
		nearAll(t, name+" x", s.X, c.X)
		for j, step := range c.Steps {
			s := solve(j + 1)
			near(t, name+" residual", math.Sqrt(s.Square), step.Residual)
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
	p := &fixedProblem{h, g, weights, rho, NewADMM(len(h[0]), len(h), absent, 0), nil}
	for range h {
		p.agents = append(p.agents, NewDual(p.server.Y))
	}
	return p
}

// mean is the product with Σp_iH_i.
func (p *fixedProblem) mean(v []float64) ([]float64, error) {
	products := make([][]float64, len(p.h))
	for i, h := range p.h {
		products[i], _ = times(h)(v)
	}
	return Mean(p.weights, products), nil
}

func (p *fixedProblem) round(t *testing.T, present []bool) {
	t.Helper()
	sent := make([][]float64, len(p.agents))
	for i, here := range present {
		if !here {
			continue
		}
		a := p.agents[i].Advance(p.server.Y, p.rho)
		a, _, err := a.Solve(CG{50, 1e-15}, times(p.h[i]), p.g[i], p.server.Y, p.rho, a.Y)
		expect.OK(t, err)
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
	nearAll(t, "FedNPG's step", naturalStep(t, p.mean, g, c.Delta), c.Step)
}

// quadratic is the gradient at x of the return −½(x−best)ᵀQ(x−best).
func quadratic(q [][]float64, best, x []float64) []float64 {
	g, _ := times(q)(Difference(best, x))
	return g
}

func TestOracleClosedLoop(t *testing.T) {
	type testCase struct {
		oracleSchedule
		Name             string
		Lookahead        bool
		Q                [][]float64
		Best, Theta0     []float64
		Times            []float64
		Arrivals, Rounds []oracleStep
	}
	for _, c := range oracle[testCase](t, "closed_loop") {
		s := NewAFedPG(c.Theta0, c.schedule())
		s.Vanilla = !c.Lookahead
		for k, a := range c.Rounds { // every agent has the same gradient
			near(t, c.Name+" time", float64(k+1)*SyncPerGradient(c.Times)*float64(len(c.Times)), a.Time)
			a.compare(t, c.Name, s, s.Step(quadratic(c.Q, c.Best, s.Tilde), s.K))
		}
		due, versions := slices.Clone(c.Times), make([]int, len(c.Times))
		at := slices.Repeat([][]float64{c.Theta0}, len(c.Times))
		for _, a := range c.Arrivals {
			i := earliest(due)
			if due[i] != a.Time || i != a.Agent || versions[i] != a.Version {
				t.Fatalf("%s: agent %d at %v, version %d, want %+v", c.Name, i, due[i], versions[i], a)
			}
			a.compare(t, c.Name, s, s.Step(quadratic(c.Q, c.Best, at[i]), versions[i]))
			at[i], versions[i] = s.Tilde, s.K
			due[i] += c.Times[i]
		}
	}
}

func TestOracleTime(t *testing.T) {
	type testCase struct {
		Agents                   int
		Ratio                    float64
		Pattern                  string
		Times                    []float64
		TBar, Speedup, Simulated float64
		Sync                     float64 `json:"sync_per_gradient"`
	}
	for _, c := range oracle[testCase](t, "time") {
		name, times := c.Pattern, c.Times
		if name == "geometric" {
			nearAll(t, name+" times", Times(c.Agents, c.Ratio), times)
		}
		near(t, name+" asynchronous", AsyncPerGradient(times), c.TBar)
		near(t, name+" synchronous", SyncPerGradient(times), c.Sync)
		near(t, name+" speed-up", Speedup(times), c.Speedup)
		near(t, name+" simulated speed-up", 400*c.Times[c.Agents-1]/timeOf(400*c.Agents, times), c.Simulated)
	}
}

// timeOf is when the asynchronous method has its nth gradient on the virtual clock.
func timeOf(n int, times []float64) float64 {
	due := slices.Clone(times)
	for range n - 1 {
		i := earliest(due)
		due[i] += times[i]
	}
	return slices.Min(due)
}

// earliest is the agent whose gradient comes next; ties go to the lower number.
func earliest(due []float64) int { return slices.Index(due, slices.Min(due)) }

func TestOracleBytes(t *testing.T) {
	type testCase struct {
		Task    string
		D       int
		Up      map[string]int64 `json:"up_per_round_float64"`
		Down    map[string]int64 `json:"down_per_round_float64"`
		UpOne   int64            `json:"afedpg_up_per_gradient_float32"`
		DownOne int64            `json:"afedpg_down_per_gradient_float32"`
	}
	for _, c := range oracle[testCase](t, "bytes") {
		methods := map[string]Traffic{
			"fedppo": OneVector(c.D), "fednpg_cg15": FedNPGProducts(c.D, 15), "fednpg_admm": FedNPGADMM(c.D, 1, false),
		}
		for name, up := range c.Up {
			method, ok := methods[name]
			if !ok { // its matrices are never sent
				continue
			}
			got := method.Bytes(8)
			down, ok := c.Down[name]
			if got.Up != up || ok && got.Down != down {
				t.Errorf("%s %s: %+v, want %d up, %d down", c.Task, name, got, up, down)
			}
		}
		if got := OneVector(c.D).Bytes(4); got.Up != c.UpOne || got.Down != c.DownOne {
			t.Errorf("%s: AFedPG %+v, want %d up, %d down", c.Task, got, c.UpOne, c.DownOne)
		}
	}
}

func TestOracleReturns(t *testing.T) {
	type testCase struct {
		Rewards, Values, GAE, Letter, Causal []float64
		Last                                 float64 `json:"last_value"`
		Terminated                           bool
		Gamma, Lam                           float64
	}
	for _, c := range oracle[testCase](t, "returns") {
		if c.Terminated {
			c.Last = 0
		}
		nearAll(t, "GAE", GAE(c.Rewards, c.Values, c.Last, c.Gamma, c.Lam), c.GAE)
		nearAll(t, "letter", Letter(c.Rewards, c.Gamma), c.Letter)
		nearAll(t, "causal", Causal(c.Rewards, c.Gamma), c.Causal)
	}
}

func TestOracleBaselines(t *testing.T) {
	type testCase struct {
		Name                   string
		Theta, Samples, Result []float64
		Local                  json.RawMessage
	}
	for _, c := range oracle[testCase](t, "baselines") {
		if c.Name != "fedavg" { // methods that are not here
			continue
		}
		var local, changes [][]float64
		expect.OK(t, json.Unmarshal(c.Local, &local))
		for _, w := range local {
			changes = append(changes, Difference(w, c.Theta))
		}
		nearAll(t, c.Name, FedAvg(c.Theta, Mean(c.Samples, changes)), c.Result)
	}
}

// tinyModel is the model of section [lm]: B·tanh(A·x + a) + b on fixed embeddings x of the token before.
type tinyModel struct {
	width, hidden, vocab int
	embedding            [][]float64
	theta                []float64 // A [hidden][width], a, B [vocab][hidden], b
}

// forward has the hidden layer after a token, and the log-probs of the next.
func (m tinyModel) forward(from int) (hidden, logps []float64) {
	x, w, h, v := m.embedding[from], m.width, m.hidden, m.vocab
	a, bias, b, logits := m.theta, m.theta[w*h:], m.theta[w*h+h:], slices.Clone(m.theta[w*h+h+h*v:])
	hidden, total := make([]float64, h), 0.0
	for j := range hidden {
		hidden[j] = math.Tanh(bias[j] + Dot(a[j*w:(j+1)*w], x))
	}
	for k := range logits {
		logits[k] += Dot(b[k*h:(k+1)*h], hidden)
		total += math.Exp(logits[k])
	}
	for k := range logits {
		logits[k] -= math.Log(total)
	}
	return hidden, logits
}

// score is ∇ log π(to|from).
func (m tinyModel) score(from, to int) []float64 {
	x, w, h := m.embedding[from], m.width, m.hidden
	hidden, logps := m.forward(from)
	b, back := m.theta[w*h+h:], make([]float64, h) // of log π by the hidden layer
	var gA, gB, logits []float64
	for k, l := range logps {
		logits = append(logits, -math.Exp(l))
		if k == to {
			logits[k]++
		}
		AddScaled(back, logits[k], b[k*h:(k+1)*h])
		gB = append(gB, Scaled(logits[k], hidden)...)
	}
	for j, y := range hidden {
		back[j] *= 1 - y*y
		gA = append(gA, Scaled(back[j], x)...)
	}
	return slices.Concat(gA, back, gB, logits)
}

func TestOracleScores(t *testing.T) {
	type testCase struct {
		Rho                     float64
		RHS, Theta, V, Sequence []float64
		Inverse                 []float64 `json:"damped_inverse"`
		Advantages              []float64 `json:"sequence_advantages"`
		Natural                 []float64 `json:"natural_gradient"`
		Vocab, Width, Hidden    int
		Embedding               [][]float64
		Sequences               [][]int
	}
	for _, c := range oracle[testCase](t, "lm") {
		model := tinyModel{c.Width, c.Hidden, c.Vocab, c.Embedding, c.Theta}
		rows := make([][]float64, len(c.Sequences))
		for i, tokens := range c.Sequences {
			rows[i] = make([]float64, len(c.Theta))
			for k, to := range tokens[1:] {
				AddScaled(rows[i], 1, model.score(tokens[k], to))
			}
		}
		scores := Scores[float64](rows)
		inverse := expect.Must(scores.Inverse(c.Rho))(t)
		product, _ := scores.Product(c.V)
		nearAll(t, "product", product, c.Sequence)
		damped, _ := inverse(c.RHS)
		nearAll(t, "damped inverse", damped, c.Inverse)
		natural, _ := inverse(scores.Weighted(Scaled(1/float64(len(rows)), c.Advantages)))
		nearAll(t, "natural gradient", natural, c.Natural)
	}
}
