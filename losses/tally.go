package losses

// Metric names, TRL's, so that dashboards carry over. logps/* are summed log-probabilities for every loss, so that the
// curves of two losses can be compared (TRL's CPOTrainer logs per-token means there for simpo).
const (
	MetricLoss            = "loss"
	MetricLogpsChosen     = "logps/chosen"
	MetricLogpsRejected   = "logps/rejected"
	MetricRewardsChosen   = "rewards/chosen"
	MetricRewardsRejected = "rewards/rejected"
	MetricAccuracies      = "rewards/accuracies" // share of pairs whose chosen reward is strictly higher
	MetricMargins         = "rewards/margins"
	MetricRewardGap       = "prior/reward_gap" // only where the pairs have rewards
)

// A Tally gathers pairs over the microbatches of a step (or an evaluation) and gives their means. Every pair counts
// once, so the split into microbatches does not show. The zero Tally is ready.
type Tally struct {
	pairs, gaps int
	sums        map[string]float64
}

// Add counts the pairs of a batch (real ones: cut padding pairs off first).
func (t *Tally) Add(b Batch, out Outcome) {
	if t.sums == nil {
		t.sums = map[string]float64{}
	}
	t.pairs += b.Pairs()
	t.sum(MetricLoss, out.Loss)
	t.sum(MetricLogpsChosen, b.PolicyChosen)
	t.sum(MetricLogpsRejected, b.PolicyRejected)
	t.sum(MetricRewardsChosen, out.ChosenRewards)
	t.sum(MetricRewardsRejected, out.RejectedRewards)
	for i, chosen := range out.ChosenRewards {
		t.sums[MetricMargins] += chosen - out.RejectedRewards[i]
		if chosen > out.RejectedRewards[i] {
			t.sums[MetricAccuracies]++
		}
	}
	t.gaps += len(b.RewardGap)
	t.sum(MetricRewardGap, b.RewardGap)
}

func (t *Tally) sum(name string, values []float64) {
	for _, v := range values {
		t.sums[name] += v
	}
}

// Pairs is the number of pairs added.
func (t *Tally) Pairs() int { return t.pairs }

// Metrics are the means over all pairs added, by metric name; empty when there were none.
func (t *Tally) Metrics() map[string]float64 {
	means := map[string]float64{}
	if t.pairs == 0 {
		return means
	}
	for _, name := range []string{MetricLoss, MetricLogpsChosen, MetricLogpsRejected, MetricRewardsChosen,
		MetricRewardsRejected, MetricAccuracies, MetricMargins} {
		means[name] = t.sums[name] / float64(t.pairs)
	}
	if t.gaps > 0 {
		means[MetricRewardGap] = t.sums[MetricRewardGap] / float64(t.gaps)
	}
	return means
}
