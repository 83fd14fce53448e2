package lm

import (
	"context"
	"math"
	"slices"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/grpo"
)

// scoresOf are the scores s_i = ∇Σ_t ℓ of the batch's completions, each times sqrt(n/T) for n completions of T tokens:
// with them H = Σs_is_iᵀ/T, which has the expectation of the mean over tokens, as tokens' scores are uncorrelated. The
// first call makes a backward pass for each completion. nil: they would take more than the memory.
func (b *batch) scoresOf() (federated.Scores[float32], error) {
	n, tokens := 0, 0
	b.eachTrained(func(_, _ int, answer []int32) { n, tokens = n+1, tokens+len(answer) })
	if b.exact != nil || float64(n)*float64(len(b.theta))*4 > b.workload.memory || n == 0 {
		return b.exact, nil
	}
	var all federated.Scores[float32]
	scale := float32(math.Sqrt(float64(n) / float64(tokens)))
	err := b.turn(context.Background(), func(l *grpo.Rollouts) (err error) {
		b.eachTrained(func(group, _ int, answer []int32) {
			if err != nil {
				return
			}
			var one grpo.Group
			one.Prompt, one.Answers = b.drawn.Groups[group].Prompt, [][]int32{answer}
			var row []float32
			row, err = l.Trainer().Scores([]grpo.Group{one}, [][][]float32{{slices.Repeat([]float32{scale}, len(answer))}})
			all = append(all, row)
		})
		return err
	})
	if err == nil {
		b.exact = all
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
	if err := protocol.CheckLength(right, len(b.theta)); err != nil {
		return nil, err
	}
	s, err := b.scoresOf()
	if s == nil || err != nil {
		return nil, err
	}
	if b.inverse == nil || b.rho != rho {
		if b.inverse, err = s.Inverse(rho); err != nil {
			return nil, err
		}
		b.rho = rho
	}
	return b.inverse(right)
}
