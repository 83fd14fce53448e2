package gate

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// binomial draws counts by their cumulative chances.
type binomial []float64

func newBinomial(n int, p float64) binomial {
	b := make(binomial, n+1)
	for k := range n {
		b[k] = 1 - Count{k + 1, n}.Tail(p)
	}
	b[n] = 1
	return b
}

func (b binomial) draw(rng *rand.Rand) int {
	n, _ := slices.BinarySearch(b, rng.Float64())
	return min(n, len(b)-1)
}

// power is how often a gate fails, and how often it passes, of a policy with eight norms, two channels and limits of
// 5 %; leaking is the number of pairs of a norm and a channel that leak, with a chance of p. All answers are useful.
func power(n, leaking int, p float64) (fails, passes float64) {
	const norms, gates = 8, 1000
	limits := map[Channel]float64{Answer: 0.05, Tool: 0.05}
	policy, rng := &Policy{Limits: limits, Error: 0.05}, rand.New(rand.NewPCG(uint64(n), uint64(leaking)))
	for range norms {
		policy.Norms = append(policy.Norms, Norm{Limits: limits, Utility: 0.5})
	}
	leaks := newBinomial(n, p)
	for range gates {
		r := policy.report()
		left, all := leaking, map[Channel]*Check{}
		for i := range r.Checks {
			if c := &r.Checks[i]; c.norm < 0 {
				all[c.Channel] = c
			}
		}
		for i := range r.Checks {
			c := &r.Checks[i]
			if c.norm < 0 {
				continue
			}
			c.Leakage.Count, c.Utility.Count = Count{0, n}, Count{n, n}
			if left--; left >= 0 {
				c.Leakage.Count.Hits = leaks.draw(rng)
			}
			total := &all[c.Channel].Leakage.Count
			*total = Count{total.Hits + c.Leakage.Count.Hits, total.Scenarios + n}
			all[c.Channel].Utility.Count = Count{total.Scenarios, total.Scenarios}
		}
		r.decide()
		switch r.Verdict {
		case Fail:
			fails++
		case Pass:
			passes++
		}
	}
	return 100 * fails / gates, 100 * passes / gates
}

// TestPower: the table of docs/evaluation.md is what the simulation gives.
func TestPower(t *testing.T) {
	text := expect.Read(t, filepath.Join("..", "..", "docs", "evaluation.md"))
	for _, p := range []float64{0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2} {
		row := fmt.Sprintf("| %.3g %% |", 100*p)
		for _, leaking := range []int{1, 16} {
			for _, n := range []int{100, 300} {
				fails, passes := power(n, leaking, p)
				row += fmt.Sprintf(" %.0f / %.0f |", fails, passes)
			}
		}
		if !strings.Contains(text, row+"\n") {
			t.Errorf("docs/evaluation.md lacks\n%s", row)
		}
	}
}
