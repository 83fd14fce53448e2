package losses

// Metric names, TRL's, so that dashboards carry over. logps/* are summed log-probabilities for every loss, so that the
// curves of two losses can be compared (TRL's CPOTrainer logs per-token means there for simpo).
const (
	MetricLoss            = "loss"
	MetricLogpsChosen     = "logps/chosen"
	MetricLogpsRejected   = "logps/rejected"
	MetricRewardsChosen   = "rewards/chosen"
	MetricRewardsRejected = "rewards/rejected"
	MetricAccuracies      = "rewards/accuracies" // 1 where the chosen reward is strictly higher, else 0
	MetricMargins         = "rewards/margins"    // chosen reward - rejected reward
	MetricRewardGap       = "prior/reward_gap"   // only where the pairs have rewards
)

// Metrics are the values to be averaged under each metric name, each [pairs]. Average over the pairs of a whole step (or
// evaluation), not over the means of its microbatches. The reward gap is left out where the batch has none.
func (out Outcome) Metrics(b Batch) map[string][]float64 {
	margins, accuracies := make([]float64, b.Pairs()), make([]float64, b.Pairs())
	for i, chosen := range out.ChosenRewards {
		margins[i] = chosen - out.RejectedRewards[i]
		if margins[i] > 0 {
			accuracies[i] = 1
		}
	}
	values := map[string][]float64{
		MetricLoss:            out.Loss,
		MetricLogpsChosen:     b.PolicyChosen,
		MetricLogpsRejected:   b.PolicyRejected,
		MetricRewardsChosen:   out.ChosenRewards,
		MetricRewardsRejected: out.RejectedRewards,
		MetricAccuracies:      accuracies,
		MetricMargins:         margins,
	}
	if len(b.RewardGap) > 0 {
		values[MetricRewardGap] = b.RewardGap
	}
	return values
}
