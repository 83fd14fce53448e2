package lm

import (
	"context"
	"math"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/grpo"
)

// exact are the scores s_i = ∇Σ_t ℓ of a batch's completions, each times sqrt(n/T) for n completions of T tokens: with
// them H = Σs_is_iᵀ/T, which has the expectation of the mean over tokens, as tokens' scores are uncorrelated.
type exact struct {
	rows   [][]float32
	solver *federated.Scores[float32] // for rho
	rho    float64
}

// scoresOf makes one backward pass for each completion, at the first call. nil: they would take more than the memory.
func (b *batch) scoresOf() (*exact, error) {
	n, tokens := 0, 0
	b.eachTrained(func(_, _ int, answer []int32) { n, tokens = n+1, tokens+len(answer) })
	if b.exact != nil || float64(n)*float64(len(b.theta))*4 > b.workload.memory || n == 0 {
		return b.exact, nil
	}
	e, scale := &exact{}, float32(math.Sqrt(float64(n)/float64(tokens)))
	err := b.turn(context.Background(), func(l *grpo.Loop) (err error) {
		b.eachTrained(func(group, _ int, answer []int32) {
			if err != nil {
				return
			}
			var one grpo.Group
			one.Prompt, one.Answers = b.drawn.Groups[group].Prompt, [][]int32{answer}
			weights := make([]float32, len(answer))
			for t := range weights {
				weights[t] = scale
			}
			var row []float32
			row, err = l.Trainer().Scores([]grpo.Group{one}, [][][]float32{{weights}})
			e.rows = append(e.rows, row)
		})
		return err
	})
	if err == nil {
		b.exact = e
	}
	return b.exact, err
}

// eachTrained goes through the completions that train.
func (b *batch) eachTrained(f func(group, answer int, tokens []int32)) {
	for i, g := range b.drawn.Groups {
		for a, tokens := range g.Answers {
			if (g.Masked == nil || !g.Masked[a]) && len(tokens) > 0 {
				f(i, a, tokens)
			}
		}
	}
}

// Solve is (H + ρI)⁻¹right by one system of n equations, nil where the scores take too much memory.
func (b *batch) Solve(right []float64, rho float64) ([]float64, error) {
	if err := b.check("right side", right); err != nil {
		return nil, err
	}
	e, err := b.scoresOf()
	if e == nil || err != nil {
		return nil, err
	}
	if e.solver == nil || e.rho != rho {
		if e.solver, err = federated.NewScores(e.rows, rho); err != nil {
			return nil, err
		}
		e.rho = rho
	}
	return e.solver.Solve(right), nil
}

// product is H·v by the scores.
func (e *exact) product(v []float64) []float64 {
	out, n := make([]float64, len(v)), float64(len(e.rows))
	for _, row := range e.rows {
		s := federated.Widen(row)
		federated.AddScaled(out, federated.Dot(s, v)/n, s)
	}
	return out
}
