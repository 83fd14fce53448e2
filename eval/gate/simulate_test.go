package gate

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// world is a policy of some norms with one limit, and the scenarios of a simulated run.
type world struct {
	policy    *Policy
	scenarios []Scenario
	rng       *rand.Rand
}

func newWorld(norms, n int, limit float64, seed uint64) *world {
	limits := map[Channel]float64{Answer: limit, Think: limit, Tool: limit}
	w := &world{policy: &Policy{Limits: limits, Error: 0.05}, rng: rand.New(rand.NewPCG(seed, 1))}
	for i := range norms {
		w.policy.Norms = append(w.policy.Norms, Norm{Name: fmt.Sprint(i), Limits: limits, Utility: 0.5})
		for _, form := range w.policy.forms() {
			for k := range n {
				w.scenarios = append(w.scenarios, Scenario{Norm: i, Form: form, Number: k + 1})
			}
		}
	}
	return w
}

// model draws what is read of the answers to a scenario.
type model func(w *world, s *Scenario) Read

// reads are the reads by leak in the message, leak in the think block, and use.
var reads = func() (all [2][2][2]Read) {
	for i := range 8 {
		r := &all[i/4][i/2%2][i%2]
		r.Leaks, r.Useful = map[Channel][]string{}, i%2 == 1
		if i/4 == 1 {
			r.Leaks[Answer], r.Leaks[Tool] = []string{"a"}, []string{"a"} // a scenario counts in the one of its form
		}
		if i/2%2 == 1 {
			r.Leaks[Think] = []string{"a"}
		}
	}
	return all
}()

func index(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (w *world) read(message, think, useful bool) Read {
	return reads[index(message)][index(think)][index(useful)]
}

func (w *world) happens(p float64) bool { return w.rng.Float64() < p }

// gate simulates a run, with new scenarios.
func (w *world) gate(m model) *Report {
	all := make([]Read, len(w.scenarios))
	for i := range all {
		all[i] = m(w, &w.scenarios[i])
	}
	r := w.policy.count(w.scenarios, all)
	r.decide()
	return r
}

// The models leak at a true share p in every channel, and are useful at a true share of 0.5. They differ in what
// depends on what.
var models = map[string]func(p float64) model{
	"all apart": func(p float64) model {
		return func(w *world, s *Scenario) Read {
			return w.read(w.happens(p), w.happens(p), w.happens(0.5))
		}
	},
	"channels alike": func(p float64) model { // a leak in thought is a leak in the message
		return func(w *world, s *Scenario) Read {
			leaks := w.happens(p)
			return w.read(leaks, leaks, w.happens(0.5))
		}
	},
	"two templates leak": func(p float64) model { // twice as often, the other two never
		return func(w *world, s *Scenario) Read {
			leaks := s.Number%2 == 0 && w.happens(2*p)
			return w.read(leaks, leaks, w.happens(0.5))
		}
	},
}

// TestErrorRate: at true shares equal to the limits, with everything that can make a gate fail at its very limit, no
// more than 5 % of gates fail, whatever depends on what.
func TestErrorRate(t *testing.T) {
	const gates = 300
	failed, all := 0, 0
	for name, of := range models {
		for _, p := range []float64{0.005, 0.01, 0.02, 0.05, 0.1, 0.2} {
			w, fails := newWorld(3, 60, p, uint64(1000*p)), 0
			for range gates {
				if w.gate(of(p)).Verdict == Fail {
					fails++
				}
			}
			failed, all = failed+fails, all+gates
			if fails > gates*5/100 {
				t.Errorf("%s, %v: %d of %d gates fail", name, p, fails, gates)
			}
			t.Logf("%s, %v: %d of %d gates fail", name, p, fails, gates)
		}
	}
	t.Logf("%d of %d gates fail", failed, all)
}

// TestErrorRateBites: without the correction for the number of tests far more than 5 % fail. So the simulation would
// notice.
func TestErrorRateBites(t *testing.T) {
	const gates, p = 300, 0.05
	single := 0
	w := newWorld(3, 60, p, 5)
	for range gates {
		r := w.gate(models["all apart"](p))
		r.Tests = 1 // every test at the whole error
		r.decide()
		single += index(r.Verdict == Fail)
	}
	if single < gates/5 {
		t.Errorf("%d of %d gates fail: want more than a fifth", single, gates)
	}
}

// TestPassError: a model beyond one limit alone, by nothing, passes in no more than 5 % of gates.
func TestPassError(t *testing.T) {
	const gates = 500
	for _, p := range []float64{0.02, 0.05, 0.2} {
		w, passes := newWorld(2, 300, p, 7), 0
		for range gates {
			r := w.gate(func(w *world, s *Scenario) Read {
				return w.read(s.Norm == 0 && s.Form == AsText && w.happens(p), false, true)
			})
			passes += index(r.Verdict == Pass)
		}
		if passes > gates*5/100 {
			t.Errorf("%v: %d of %d gates pass", p, passes, gates)
		}
		t.Logf("%v: %d of %d gates pass", p, passes, gates)
	}
}
