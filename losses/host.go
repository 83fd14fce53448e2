package losses

import (
	"fmt"
	"math"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// Batch holds the inputs of a loss on the host, each [pairs].
type Batch struct {
	PolicyChosen, PolicyRejected       []float64 // summed log-probabilities under the model in training
	ReferenceChosen, ReferenceRejected []float64 // the same under the reference; unused if ReferenceFree
	ChosenLengths, RejectedLengths     []float64 // response tokens
	RewardGap                          []float64 // Δr; unused by the loss if the prior is None
}

func (b Batch) Pairs() int { return len(b.PolicyChosen) }

// Outcome holds a batch's losses, implicit rewards and gradients, each [pairs].
//
// The implicit rewards are TRL's: β·(logπ - logπref) of the summed log-probabilities for dpo and ipo (ipo uses means
// per token only in its loss), and for the other losses with a reference, β·logπ for cpo, β·logπ/length for simpo and
// orpo. The prior does not change them.
type Outcome struct {
	Loss            []float64
	ChosenRewards   []float64
	RejectedRewards []float64
	GradChosen      []float64 // d Loss[i] / d PolicyChosen[i]: of the pair's own loss, not of the mean
	GradRejected    []float64 // d Loss[i] / d PolicyRejected[i]
	Rounding        []float64 // how far float32 log-probabilities can move ChosenRewards[i] - RejectedRewards[i]
}

// Host computes in float64 what Graph builds, with analytic gradients.
func (o Options) Host(b Batch) (Outcome, error) {
	if err := o.checkBatch(b); err != nil {
		return Outcome{}, err
	}
	n := b.Pairs()
	numbers := func() []float64 { return make([]float64, n) }
	out := Outcome{numbers(), numbers(), numbers(), numbers(), numbers(), numbers()}
	for i := range n {
		o.computePair(b, i, &out)
	}
	return out, nil
}

func (o Options) checkBatch(b Batch) error {
	if err := fault.Err("loss", o.Check()); err != nil {
		return err
	}
	if o.Unpaired() {
		return fmt.Errorf("losses: %s is no loss of pairs: want UnpairedHost", o.Type)
	}
	vectors := map[string][]float64{
		"PolicyRejected": b.PolicyRejected, "ChosenLengths": b.ChosenLengths, "RejectedLengths": b.RejectedLengths,
	}
	if !o.ReferenceFree() {
		vectors["ReferenceChosen"], vectors["ReferenceRejected"] = b.ReferenceChosen, b.ReferenceRejected
	}
	if o.NeedsGap() {
		vectors["RewardGap"] = b.RewardGap
	}
	for name, v := range vectors {
		if len(v) != b.Pairs() {
			return fmt.Errorf("losses: %s has %d numbers: want %d, as PolicyChosen has", name, len(v), b.Pairs())
		}
	}
	return nil
}

func (o Options) computePair(b Batch, i int, out *Outcome) {
	chosen, rejected := b.PolicyChosen[i], b.PolicyRejected[i]
	if !o.ReferenceFree() {
		chosen, rejected = chosen-b.ReferenceChosen[i], rejected-b.ReferenceRejected[i]
	}
	gap := 1.0
	if o.NeedsGap() {
		gap = b.RewardGap[i]
	}
	chosenTokens, rejectedTokens := max(b.ChosenLengths[i], 1), max(b.RejectedLengths[i], 1)
	a, chosenSlope := o.termOf(chosen, chosenTokens)
	b0, rejectedSlope := o.termOf(rejected, rejectedTokens)
	ofU, weight := o.weights()

	loss, slope := o.linkOf(a - gap*b0 - o.offset())
	loss, slope = ofU*loss, ofU*slope
	out.Loss[i], out.GradChosen[i], out.GradRejected[i] = loss, slope*chosenSlope, -slope*gap*rejectedSlope
	if o.NLL != nil {
		if mode(o.NLL) == Mean {
			weight /= chosenTokens
		}
		out.Loss[i] -= weight * b.PolicyChosen[i]
		out.GradChosen[i] -= weight
	}
	out.ChosenRewards[i] = o.rewardOf(chosen, chosenTokens)
	out.RejectedRewards[i] = o.rewardOf(rejected, rejectedTokens)
	out.Rounding[i] = o.roundingOf(b, i)
}

// rounding is how far a float32 log-probability of many tokens may be off, relative to its size: eight units in its
// last place. The passes of policy and reference may run in graphs of different shapes, which round differently.
const rounding = 1e-6

// roundingOf is how far rounding can move the difference of a pair's implicit rewards.
func (o Options) roundingOf(b Batch, i int) float64 {
	chosen, rejected := math.Abs(b.PolicyChosen[i]), math.Abs(b.PolicyRejected[i])
	if !o.ReferenceFree() {
		chosen, rejected = chosen+math.Abs(b.ReferenceChosen[i]), rejected+math.Abs(b.ReferenceRejected[i])
	}
	return rounding * (o.rewardOf(chosen, max(b.ChosenLengths[i], 1)) +
		o.rewardOf(rejected, max(b.RejectedLengths[i], 1)))
}

// termOf is a response's term of u, and its derivative.
func (o Options) termOf(logratio, tokens float64) (term, slope float64) {
	slope = o.scale()
	if o.perToken() {
		slope /= tokens
	}
	if o.Type != ORPO {
		return slope * logratio, slope
	}
	x := slope * logratio
	if x > mostCertain {
		x, slope = mostCertain, 0
	}
	not := -math.Expm1(x) // 1-p
	return x - math.Log(not), slope / not
}

// rewardsPerToken says whether implicit rewards are divided by the length.
func (o Options) rewardsPerToken() bool { return o.Type == SimPO || o.Type == ORPO }

func (o Options) rewardOf(logratio, tokens float64) float64 {
	if o.rewardsPerToken() {
		logratio /= tokens
	}
	return o.Beta * logratio
}

// linkOf is the loss at argument u and its derivative.
func (o Options) linkOf(u float64) (loss, slope float64) {
	if k := o.kind(); k.link != nil {
		return k.link.host(u)
	}
	smoothing := o.smoothing()
	loss = (1-smoothing)*softplus(-u) + smoothing*softplus(u)
	return loss, smoothing*sigmoid(u) - (1-smoothing)*sigmoid(-u)
}

// softplus is log(1+exp(x)) = -log σ(-x) without overflow.
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// sigmoid is σ(x), accurate relative to its own size at both ends.
func sigmoid(x float64) float64 {
	if x >= 0 {
		return 1 / (1 + math.Exp(-x))
	}
	e := math.Exp(x)
	return e / (1 + e)
}

// Metric names, TRL's, so that dashboards carry over. logps/* are summed log-probabilities for every loss, so that the
// curves of two losses can be compared (TRL's CPOTrainer logs per-token means there for simpo).
const (
	MetricLoss            = "loss"
	MetricLogpsChosen     = "logps/chosen"
	MetricLogpsRejected   = "logps/rejected"
	MetricRewardsChosen   = "rewards/chosen"
	MetricRewardsRejected = "rewards/rejected"
	MetricAccuracies      = "rewards/accuracies" // 1 where the chosen reward is higher by more than rounding, else 0
	MetricMargins         = "rewards/margins"    // chosen reward - rejected reward
	MetricRewardGap       = "prior/reward_gap"   // only where the pairs have rewards
	MetricKL              = "kl"                 // kto: z0, its reference point
)

// Metrics gives the values of each metric, [pairs]. Average them over all pairs of a step or an evaluation, not over
// the means of its microbatches. The reward gap is left out if the batch has none. Rewards that are equal but for
// rounding are a tie, which counts 0 as in TRL: before the first update all pairs are ties.
func (out Outcome) Metrics(b Batch) map[string][]float64 {
	margins, accuracies := make([]float64, b.Pairs()), make([]float64, b.Pairs())
	for i, chosen := range out.ChosenRewards {
		margins[i] = chosen - out.RejectedRewards[i]
		if margins[i] > out.Rounding[i] {
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
