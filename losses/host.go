package losses

import (
	"fmt"
	"math"
)

// Batch are the numbers of a loss on the host, each [pairs].
type Batch struct {
	PolicyChosen, PolicyRejected       []float64 // summed log-probabilities under the model in training
	ReferenceChosen, ReferenceRejected []float64 // the same under the reference; unread when ReferenceFree
	ChosenLengths, RejectedLengths     []float64 // response tokens
	RewardGap                          []float64 // Δr; unread by the loss when the prior is none
}

// Pairs is the number of pairs.
func (b Batch) Pairs() int { return len(b.PolicyChosen) }

// Outcome is what a loss says of a batch, each [pairs].
//
// The implicit rewards are TRL's: β·(logπ - logπref) of the summed log-probabilities for dpo and ipo (ipo's per-token
// means are in its loss only), β·logπ for cpo, β·logπ/length for simpo. The prior does not enter them.
type Outcome struct {
	Loss            []float64
	ChosenRewards   []float64
	RejectedRewards []float64
	GradChosen      []float64 // d Loss[i] / d PolicyChosen[i]: of the pair's own loss, not of the mean
	GradRejected    []float64 // d Loss[i] / d PolicyRejected[i]
}

// Host computes in float64 what Graph builds, with analytic gradients. It is an error when a vector's length differs.
func (o Options) Host(b Batch) (Outcome, error) {
	if err := o.check(b); err != nil {
		return Outcome{}, err
	}
	n := b.Pairs()
	out := Outcome{make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)}
	for i := range n {
		o.pair(b, i, &out)
	}
	return out, nil
}

func (o Options) check(b Batch) error {
	if err := o.Err(); err != nil {
		return err
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
			return fmt.Errorf("losses: %s has %d numbers, PolicyChosen %d: want one a pair", name, len(v), b.Pairs())
		}
	}
	return nil
}

// pair computes pair i.
func (o Options) pair(b Batch, i int, out *Outcome) {
	chosen, rejected := b.PolicyChosen[i], b.PolicyRejected[i]
	if !o.ReferenceFree() {
		chosen, rejected = chosen-b.ReferenceChosen[i], rejected-b.ReferenceRejected[i]
	}
	gap := 1.0
	if o.NeedsGap() {
		gap = b.RewardGap[i]
	}
	chosenTokens, rejectedTokens := max(b.ChosenLengths[i], 1), max(b.RejectedLengths[i], 1)
	chosenScale, rejectedScale := o.scaleOf(chosenTokens), gap*o.scaleOf(rejectedTokens)

	loss, slope := o.linkOf(chosenScale*chosen - rejectedScale*rejected - o.offset())
	out.Loss[i], out.GradChosen[i], out.GradRejected[i] = loss, slope*chosenScale, -slope*rejectedScale
	if o.Type == CPO {
		weight := value(o.Lambda)
		if mode(o.NLL) == Mean {
			weight /= chosenTokens
		}
		out.Loss[i] -= weight * b.PolicyChosen[i]
		out.GradChosen[i] -= weight
	}
	out.ChosenRewards[i], out.RejectedRewards[i] = o.rewardOf(chosen, chosenTokens), o.rewardOf(rejected, rejectedTokens)
}

func (o Options) scaleOf(tokens float64) float64 {
	if o.perToken() {
		return o.scale() / tokens
	}
	return o.scale()
}

func (o Options) rewardOf(logratio, tokens float64) float64 {
	if o.Type == SimPO {
		logratio /= tokens
	}
	return o.Beta * logratio
}

// linkOf is the loss at argument u and its derivative.
func (o Options) linkOf(u float64) (loss, slope float64) {
	if o.Type == IPO {
		return u * u, 2 * u
	}
	smoothing := value(o.LabelSmoothing)
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
