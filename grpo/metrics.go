package grpo

import (
	"math"

	"github.com/posttrain/posttrain/train"
)

// Metric names of an update, TRL's but for the ratio's. All are over the tokens that train, with the level sequence
// too, where TRL counts answers.
const (
	MetricLoss           = "loss"
	MetricKL             = "kl"      // mean of the estimate in force; only with a reference
	MetricEntropy        = "entropy" // estimate: mean of -log p of the sampled tokens
	MetricRatioMean      = "ratio/mean"
	MetricRatioMin       = "ratio/min" // over several updates: the mean of their minima
	MetricRatioMax       = "ratio/max"
	MetricClipLow        = "clip_ratio/low_mean"    // share of tokens below 1-clip_low with a negative advantage
	MetricClipHigh       = "clip_ratio/high_mean"   // share of tokens above 1+clip_high with a positive advantage
	MetricClipRegion     = "clip_ratio/region_mean" // both
	MetricDifferenceMean = "sampling/sampling_logp_difference/mean"
	MetricDifferenceMax  = "sampling/sampling_logp_difference/max"   // over several updates: the mean of their maxima
	MetricImportanceMean = "sampling/importance_sampling_ratio/mean" // of the truncated ratios of old policy to sampler
	MetricImportanceMin  = "sampling/importance_sampling_ratio/min"
)

// report adds what the minibatch's numbers say to the metrics, in float64. It is false, and adds nothing, where no
// token trains.
func (m *minibatch) report(to *train.Metrics) bool {
	out := m.Host(m.numbers)
	if out.Tokens == 0 {
		return false
	}
	n := float64(out.Tokens)
	to.Add(MetricLoss, out.Loss, 1)
	to.Add(MetricEntropy, out.Entropy/n, n)
	to.Add(MetricRatioMean, out.Ratio/n, n)
	to.Add(MetricRatioMin, out.MinRatio, 1)
	to.Add(MetricRatioMax, out.MaxRatio, 1)
	to.Add(MetricClipLow, float64(out.ClippedLow)/n, n)
	to.Add(MetricClipHigh, float64(out.ClippedHigh)/n, n)
	to.Add(MetricClipRegion, float64(out.ClippedLow+out.ClippedHigh)/n, n)
	if m.NeedsReference() {
		to.Add(MetricKL, out.KL/n, n)
	}
	m.compareSampler(to)
	m.reportImportance(to)
	return true
}

// compareSampler compares the sampler's log-probs with the trainer's of the same weights: the old ones, or without
// those this update's.
func (m *minibatch) compareSampler(to *train.Metrics) {
	sum, top, n := 0.0, 0.0, 0.0
	for i, g := range m.groups {
		for a, sampled := range g.Sampled {
			logps := m.numbers.Logps[m.first[i]+a]
			if m.old && logps != nil {
				logps = m.numbers.Old[m.first[i]+a]
			}
			for t, logp := range logps {
				d := math.Abs(logp - float64(sampled[t]))
				sum, top, n = sum+d, math.Max(top, d), n+1
			}
		}
	}
	if n > 0 {
		to.Add(MetricDifferenceMean, sum/n, n)
		to.Add(MetricDifferenceMax, top, 1)
	}
}

// reportImportance says how far truncated importance sampling changes the advantages of tokens that train.
func (m *minibatch) reportImportance(to *train.Metrics) {
	sum, least, n := 0.0, math.Inf(1), 0.0
	for i, factors := range m.numbers.Importance {
		for _, f := range factors[:len(m.numbers.Logps[i])] { // none of a masked answer
			sum, least, n = sum+f, math.Min(least, f), n+1
		}
	}
	if n > 0 {
		to.Add(MetricImportanceMean, sum/n, n)
		to.Add(MetricImportanceMin, least, 1)
	}
}
