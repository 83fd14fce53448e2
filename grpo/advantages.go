package grpo

import (
	"math"
	"slices"
)

// epsilon keeps a small deviation from blowing advantages up.
const epsilon = 1e-6

// Advantages are the rewards of one group less their mean, divided by their deviation plus 1e-6 (std: sample,
// population) or not at all (none). Rewards are finite.
//
// degenerate says that all of them are 0, since the rewards are equal or fewer than two: the group teaches nothing.
func Advantages(rewards []float64, std string) (advantages []float64, degenerate bool) {
	o := Options{Std: std}
	return o.Advantages([][]float64{rewards})[0], equalRewards(rewards)
}

// Advantages are the advantages A of a rollout batch, from rewards [groups][answers] that are finite:
//
//	A(i) = (r(i) - b(i)) / s
//
//	baseline        b(i)
//	group           the mean of the group's rewards: GRPO
//	leave-one-out   the mean of the group's other rewards, so that r - b is G/(G-1) times as large: RLOO, Ahmadian
//	                et al. 2024, arXiv:2402.14740, equation 7
//	batch           the mean of all rewards of the batch: REINFORCE++, Hu et al. 2025, arXiv:2501.03262
//
//	std             s
//	sample          the standard deviation, with divisor n-1, of the rewards that the baseline is of, group's or
//	                batch's, plus 1e-6
//	population      with divisor n
//	batch           the standard deviation of all r - b of the batch, with divisor n-1, plus 1e-6: the global
//	                normalisation of REINFORCE++, with the baseline group REINFORCE++-baseline
//	none            1
//
// Equal rewards, of a group or of the batch, have advantages of 0. A reward that is not a number is left out, and has
// an advantage of 0. Of n rewards of a batch no advantage is beyond √n, but for std none and for leave-one-out with
// population, which reaches G/√(G-1).
func (o Options) Advantages(rewards [][]float64) [][]float64 {
	out := make([][]float64, len(rewards))
	all := slices.Concat(rewards...)
	for g, group := range rewards {
		out[g] = make([]float64, len(group))
		of := group
		if o.Baseline == OfBatch {
			of = all
		}
		if of = numbers(of); equalRewards(of) {
			continue
		}
		mean, deviation := moments(of, o.Std)
		for i, r := range group {
			switch n := float64(len(of)); {
			case math.IsNaN(r):
			case o.Baseline == LeaveOneOut:
				out[g][i] = (r - mean) * (n / (n - 1)) / deviation
			default:
				out[g][i] = (r - mean) / deviation
			}
		}
	}
	if o.Std == OfBatch {
		scale(out)
	}
	return out
}

// Combined are the advantages of several rewards [rewards][groups][answers] with weights: of their weighted sum,
// or with combine each the weighted sum of every reward's own advantages, divided by its standard deviation over the
// batch (GDPO, Liu et al. 2026, arXiv:2601.05242, equations 4 to 6):
//
//	A(i) = Σ w(k)·A(k,i) / (std + 1e-6)
//
// so that a reward with large numbers does not drown one with small ones. NaN is the reward of a judge that an answer
// is not for: it is left out, as in TRL.
func (o Options) Combined(rewards [][][]float64, weights []float64) [][]float64 {
	if o.Combine == EachReward {
		own := make([][][]float64, len(rewards))
		for k := range rewards {
			own[k] = o.Advantages(rewards[k])
		}
		sum := weightedSum(own, weights)
		scale(sum)
		return sum
	}
	return o.Advantages(weightedSum(rewards, weights))
}

// numbers are the rewards that are numbers.
func numbers(rewards []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(rewards), math.IsNaN)
}

// weightedSum is Σ weights[k]·x[k], [groups][answers], without what is not a number.
func weightedSum(x [][][]float64, weights []float64) [][]float64 {
	sum := make([][]float64, len(x[0]))
	for g := range sum {
		sum[g] = make([]float64, len(x[0][g]))
		for i := range sum[g] {
			for k, w := range weights {
				if r := x[k][g][i]; !math.IsNaN(r) {
					sum[g][i] += w * r
				}
			}
		}
	}
	return sum
}

// scale divides the advantages of a batch, whose mean is 0, by their standard deviation.
func scale(groups [][]float64) {
	_, deviation := moments(slices.Concat(groups...), Sample)
	for _, group := range groups {
		for i := range group {
			if group[i] != 0 { // of a single answer the deviation is not a number
				group[i] /= deviation
			}
		}
	}
}

// equalRewards compares them with each other and not with their mean, which rounding may move, as it may move rewards:
// 3/3 - 2/3 is 1/3.
func equalRewards(rewards []float64) bool {
	differs := func(r float64) bool { return math.Abs(r-rewards[0]) > 1e-12*max(1, math.Abs(r)) }
	return !slices.ContainsFunc(rewards, differs)
}

// moments are the mean of the rewards and what their distance from it is divided by.
func moments(rewards []float64, std string) (mean, divisor float64) {
	n, sum := float64(len(rewards)), 0.0
	for _, r := range rewards {
		sum += r
	}
	mean = sum / n
	squares := 0.0
	for _, r := range rewards {
		squares += (r - mean) * (r - mean)
	}
	switch std {
	case Sample:
		return mean, math.Sqrt(squares/(n-1)) + epsilon
	case Population:
		return mean, math.Sqrt(squares/n) + epsilon
	}
	return mean, 1
}
