package federated

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// problem has agents with random positive definite H_i, random g_i and weights. Its gradients move with θ, as gradients
// of a quadratic return do.
type problem struct {
	h       [][][]float64
	g       [][]float64
	weights []float64
}

func randomProblem(r *rand.Rand, agents, d int) problem {
	var p problem
	for range agents {
		root := randomMatrix(r, d)
		h := make([][]float64, d)
		for i := range h {
			h[i] = make([]float64, d)
			for j := range h[i] {
				for k := range d {
					h[i][j] += root[i][k] * root[j][k] / float64(d)
				}
			}
			h[i][i] += 0.05
		}
		p.h, p.g = append(p.h, h), append(p.g, randomVector(r, d))
		p.weights = append(p.weights, 0.2+r.Float64())
	}
	p.weights = Shares(p.weights)
	return p
}

func randomVector(r *rand.Rand, d int) []float64 {
	v := make([]float64, d)
	for j := range v {
		v[j] = r.NormFloat64()
	}
	return v
}

func randomMatrix(r *rand.Rand, d int) [][]float64 {
	m := make([][]float64, d)
	for i := range m {
		m[i] = randomVector(r, d)
	}
	return m
}

// permuted gives the agents other numbers.
func (p problem) permuted(order []int) problem {
	var q problem
	for _, i := range order {
		q.h, q.g = append(q.h, p.h[i]), append(q.g, p.g[i])
		q.weights = append(q.weights, p.weights[i])
	}
	return q
}

// train runs rounds of FedNPG-ADMM, or of exact FedNPG, from θ = 0. The gradients are c·(g_i − H_iθ).
func (p problem) train(t *testing.T, exact bool, c float64) []float64 {
	t.Helper()
	theta := make([]float64, len(p.g[0]))
	f := newFixedProblem(p.h, nil, p.weights, 0.3, Hold)
	for range 15 {
		f.g = nil
		for i := range p.g {
			product, _ := times(p.h[i])(theta)
			f.g = append(f.g, Scaled(c, Difference(p.g[i], product)))
		}
		g := Mean(p.weights, f.g)
		if exact {
			theta = Ahead(theta, 1, naturalStep(t, f.mean, g, 0.01))
			continue
		}
		f.round(t, slices.Repeat([]bool{true}, len(p.g)))
		if scale, ok := Trust.Scale(g, f.server.Y, 0.01, 1); ok {
			f.server.Accept()
			theta = Ahead(theta, scale, f.server.Y)
		} else {
			f.server.Refuse()
		}
	}
	return theta
}

// naturalStep is FedNPG's step with exact matrices, which FedNPG-ADMM approaches: sqrt(2δ/(gᵀx))·x with H·x = g, and
// the product h with H = Σp_iH_i. The paper prints it with sums and a factor N; that is the same step.
func naturalStep(t *testing.T, h Product, g []float64, delta float64) []float64 {
	t.Helper()
	s, err := CG{50, 1e-15}.Solve(h, g, make([]float64, len(g)))
	scale, ok := TrustScale(g, s.X, delta, 1)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	return Scaled(scale, s.X)
}

func nearly(t *testing.T, name string, got, want []float64, relative float64) {
	t.Helper()
	if far := Norm(Difference(got, want)); !(far <= relative*max(1, Norm(want))) {
		t.Errorf("%s: %v, want %v", name, got, want)
	}
}

// With hold, ADMM reaches H⁻¹g whoever is absent, as long as everybody is there now and then.
func TestHoldReachesNaturalGradient(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := randomProblem(r, 2+r.IntN(4), 3)
		f := newFixedProblem(p.h, p.g, p.weights, 0.3, Hold)
		for range 6000 {
			mask := make([]bool, len(p.g))
			for i := range mask {
				mask[i] = r.IntN(2) == 0
			}
			f.round(t, mask)
		}
		exact := expect.Must(CG{50, 1e-15}.Solve(f.mean, Mean(p.weights, p.g), make([]float64, 3)))(t)
		nearly(t, fmt.Sprintf("seed %d", seed), f.server.Y, exact.X, 1e-10)
	}
}

func TestPropertiesOfTraining(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := randomProblem(r, 4, 5)
		for name, exact := range map[string]bool{"FedNPG": true, "FedNPG-ADMM": false} {
			theta := p.train(t, exact, 1)
			if Norm(theta) < 0.1 {
				t.Errorf("%s went nowhere: %v", name, theta)
			}
			nearly(t, name+", agents permuted", p.permuted(r.Perm(4)).train(t, exact, 1), theta, 1e-9)
			nearly(t, name+", gradients scaled", p.train(t, exact, 1000), theta, 1e-9)
			one, equal := p.permuted([]int{2}), p.permuted([]int{2, 2, 2})
			nearly(t, name+", equal agents", equal.train(t, exact, 1), one.train(t, exact, 1), 1e-9)
		}
	}
}

func TestAFedPGStepLength(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, schedule := range []Schedule{{Constant, 0.2, 0.05}, {Global, 0, 0.5}, {FOSP, 0, 0.5}} {
		s := NewAFedPG(randomVector(r, 6), schedule)
		for k := range 30 {
			before, version := s.Theta, max(0, k-r.IntN(5))
			step := s.Step(Scaled(math.Exp(10*r.NormFloat64()), randomVector(r, 6)), version)
			moved := Difference(s.Theta, before)
			near(t, "length", Norm(moved), schedule.EtaAt(k))
			ahead := Ahead(Scaled(-(1-step.Alpha), moved), step.Alpha, Difference(s.Tilde, s.Theta))
			near(t, "Hessian terms", Norm(ahead), 0)
		}
	}
}

func TestRefusedRoundsRestart(t *testing.T) {
	a := NewADMM(2, 2, Hold, 0)
	a.Round([]float64{1, 1}, [][]float64{{2, 0}, nil})
	for i, restarts := range []bool{false, false, false, false, true} {
		if i == 2 { // a step ends the row of refusals
			a.Accept()
		}
		if a.Refuse() != restarts {
			t.Errorf("refusal %d restarts: %t, want %t", i, !restarts, restarts)
		}
	}
	nearAll(t, "y", a.Round([]float64{1, 1}, [][]float64{nil, {4, 0}}), []float64{2, 0})
	for _, y := range [][]float64{{-1, 0}, {0, 0}, {math.NaN(), 1}, {1e-320, 0}, {math.Inf(1), 0}} {
		if scale, ok := TrustScale([]float64{1, 0}, y, 0.01, 1); ok && !(scale > 0 && scale < 1e160) {
			t.Errorf("y = %v: scale %g", y, scale)
		}
	}
}

// One that joins counts from its first message on, one that stays away no longer, and the others share its weight.
func TestJoinAndForget(t *testing.T) {
	a := NewADMM(1, 1, Hold, 3)
	weights := []float64{0.25, 0.25, 0.5}
	rounds := []struct {
		sent [][]float64
		want float64
	}{
		{[][]float64{{4}, nil, nil}, 4},
		{[][]float64{nil, {8}, nil}, 6},
		{[][]float64{nil, {8}, nil}, 6},
		{[][]float64{nil, {8}, nil}, 8}, // agent 0 has missed three
		{[][]float64{{4}, {8}, {10}}, 8},
	}
	for k, round := range rounds {
		nearAll(t, fmt.Sprintf("round %d", k), a.Round(weights, round.sent), []float64{round.want})
	}
}

func TestChooseScale(t *testing.T) {
	table := func(kl, gain float64) SearchTable {
		out := SearchTable{make([]float64, Tries), make([]float64, Tries)}
		for j, s := range SearchScales(1) {
			out.KL[j], out.Gain[j] = kl*s*s, gain*s
		}
		return out
	}
	nan := table(0.01, 1)
	nan.KL[0] = math.NaN()
	cases := []struct {
		name   string
		tables []SearchTable
		want   int
	}{
		{"at once", []SearchTable{table(0.01, 1), table(0.01, 1)}, 0},
		{"the mean of KL counts", []SearchTable{table(0.018, 1), table(0, 1)}, 0},
		{"0.64²·0.02 is below 0.01", []SearchTable{table(0.02, 1), table(0.02, 1)}, 2},
		{"no gain", []SearchTable{table(0.001, 1), table(0.001, -1.1)}, -1},
		{"never", []SearchTable{table(100, 1), table(100, 1)}, -1},
		{"not a number", []SearchTable{nan, table(0.01, 1)}, 1},
	}
	for _, c := range cases {
		if j, _, _ := ChooseScale([]float64{3, 3}, c.tables, 0.01); j != c.want {
			t.Errorf("%s: %d, want %d", c.name, j, c.want)
		}
	}
}

func TestScoresSolve(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	rows := [][]float64{randomVector(r, 9), randomVector(r, 9), randomVector(r, 9)}
	scores := Scores[float64](rows)
	inverse := expect.Must(scores.Inverse(0.1))(t)
	b := randomVector(r, 9)
	s, err := CG{50, 1e-14}.Solve(Damped(scores.Product, 0.1), b, make([]float64, 9))
	if err != nil || s.Why != Converged {
		t.Fatal(s.Why, err)
	}
	x := expect.Must(inverse(b))(t)
	nearly(t, "n×n solve", x, s.X, 1e-10)
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.MaxFloat64} {
		if _, err := (Scores[float64]{{bad}}).Inverse(0.1); err == nil {
			t.Errorf("a score of %v: want an error", bad)
		}
	}
	if _, err := scores.Inverse(0); err == nil {
		t.Error("rho 0: want an error")
	}
}

func TestGuardKeepsOneAgentFromRuiningARun(t *testing.T) {
	train := func(clip float64) float64 {
		r := rand.New(rand.NewPCG(5, 5))
		best := Scaled(0.3, randomVector(r, 8))
		s := NewAFedPG(make([]float64, 8), Schedule{Constant, 0.2, 0.02})
		guard := &Guard{Length: 8, Clip: clip}
		for k := range 400 {
			g := Ahead(Difference(best, s.Tilde), 0.3, randomVector(r, 8))
			if k%8 == 7 {
				g = Scaled(-1000, g)
			}
			v := guard.Check(k%8, s.K, s.K, g, false)
			guard.Record(k%8, s.K, s.K, v.Norm)
			s.Step(v.Used, s.K)
		}
		return 1 - Norm(Difference(best, s.Theta))/Norm(best)
	}
	if with, without := train(3), train(0); !(with > 0.6 && without < 0) {
		t.Errorf("way to the optimum %.2f with the guard, %.2f without; want above 0.6 and below 0", with, without)
	}
}

func TestGuardRefuses(t *testing.T) {
	g := &Guard{Length: 2, Clip: 3, MaxDelay: 4}
	g.Record(0, 6, 6, 1)
	cases := []struct {
		agent, version int
		v              []float64
		reason, detail string
	}{
		{1, 9, []float64{1, 2, 3}, ReasonLength, "3 numbers, want 2"},
		{1, 9, []float64{0, math.NaN()}, ReasonFinite, "number 1 is NaN, want a finite one"},
		{1, 9, []float64{1.5e308, 1.5e308}, ReasonFinite, "its norm overflows, want a finite one"},
		{1, 9, []float64{0, 0}, ReasonNorm, "every number is 0, want a direction"},
		{1, 9, []float64{1, 0}, ReasonVersion, "version 9, want 5 to 8"},
		{0, 4, []float64{1, 0}, ReasonVersion, "version 4, want 5 to 8"},
		{0, 6, []float64{1, 0}, ReasonDuplicate, "agent 0 has sent its update of version 6 before"},
		{1, 6, []float64{1e200, 1e200}, "", ""},
		{0, 5, []float64{1e-200, 0}, "", ""},
	}
	if v := g.Check(1, 8, 8, []float64{0, 0}, true); v.Reason != "" || v.Norm != 0 || v.Used == nil {
		t.Errorf("zeros where they are right: %+v", v)
	}
	if g.Record(1, 7, 7, 0); len(g.Norms) != 1 {
		t.Errorf("norms %v, want that of zeros left out", g.Norms)
	}
	for _, c := range cases {
		v := g.Check(c.agent, c.version, 8, c.v, false)
		if v.Reason != c.reason || v.Detail != c.detail || (v.Used == nil) != (c.reason != "") {
			t.Errorf("%v: %q %q, want %q %q", c.v, v.Reason, v.Detail, c.reason, c.detail)
		}
	}
	for k := range 100 {
		g.Record(0, k, k, 1)
	}
	if len(g.Norms) != 20 || len(g.Seen) != 4 {
		t.Errorf("%d norms, %d marks; want 20 and 4", len(g.Norms), len(g.Seen))
	}
}

func TestMean(t *testing.T) {
	vectors := [][]float64{{1, 9}, nil, {2, 7}, {3, 8}, {1000, -1000}}
	weights := []float64{1, 5, 1, 2, 0}
	nearAll(t, "mean", Mean(weights, vectors), []float64{9.0 / 4, 32.0 / 4})
	if Mean(weights, make([][]float64, 5)) != nil {
		t.Error("the mean of no vector: want nil")
	}
}

func TestNorm(t *testing.T) {
	for _, scale := range []float64{1, 1e-300, 1e-160, 1e160, 3e307} {
		near(t, fmt.Sprint(scale), Norm([]float64{3 * scale, -4 * scale})/scale, 5)
	}
	if Norm([]float64{0, 0}) != 0 || !math.IsNaN(Norm([]float64{1, math.NaN()})) {
		t.Error("the norm of zeros or of NaN")
	}
}

func TestBaselines(t *testing.T) {
	a := NewA3C([]float64{1, 1}, 0.1)
	a.Step([]float64{2, 0})
	nearAll(t, "A3C", a.Theta, []float64{1 + 0.1*2/(0.2+1e-5), 1})
	near(t, "η of Adam's rate", EtaOfRate(3e-4, 10_000), 0.03)
}

// TestTheorem: step and rounds by hand, and as many rounds are enough on a return with curvature L and H of G² and μ. By
// hand: 0.5²/(4·2²·(56·2² + 76)) = 0.25/4800; 8·2²·10·4800/(7·0.25·0.01) = 87771428.57.
func TestTheorem(t *testing.T) {
	c := Theorem{G: 2, Mu: 0.5, L: 76, Gap: 10, Epsilon: 0.01}
	if c.Eta() != 0.25/4800 || c.Rounds() != 87771429 {
		t.Errorf("%v, %v", c.Eta(), c.Rounds())
	}
	// (10·227²·64 + 112·0.001)/((227 - 22.4)·0.01·0.01)
	paper := Theorem{G: 2, Mu: 0.1, L: 3, Gap: 10, Epsilon: 0.01}
	if k := paper.Published(); math.Abs(k-32978560.112/0.02046) > 1 || math.Round(k/1e6) != 1612 {
		t.Errorf("%v rounds of the paper's theorem", k)
	}
	if paper.Mu = 2; !math.IsInf(paper.Published(), 1) {
		t.Errorf("%v rounds where the theorem says nothing", paper.Published())
	}
	c = Theorem{G: 1, Mu: 1, L: 3, Gap: 6, Epsilon: 2} // J = -1.5‖x‖², from x = (2, 0)
	x, squares := 2.0, 0.0
	for range int(c.Rounds()) {
		squares += 9 * x * x
		x -= c.Eta() * 3 * x
	}
	if mean := squares / c.Rounds(); mean > c.Epsilon || c.Rounds() > 1000 {
		t.Errorf("mean ‖∇J‖² %v after %v rounds", mean, c.Rounds())
	}
}
