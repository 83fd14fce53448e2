package losses

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// This file is kto, arXiv:2402.01306, equation 7, as TRL computes it: with A = logπ(y) - logπref(y),
//
//	loss = λ_D·(1 - σ(β·(A - z)))   of a desirable response
//	loss = λ_U·(1 - σ(β·(z - A)))   of an undesirable one
//
// The reference point z is max(0, mean of A over mismatched pairs), each a prompt with a response to another one. It
// estimates the KL divergence of policy and reference, and has no gradient.

// UnpairedInputs are the nodes of kto, all float32 or all float64. A padding response may have any finite numbers; the
// caller gives its loss a weight of 0.
type UnpairedInputs struct {
	Policy, Reference *graph.Node // [responses] summed log-probabilities
	Desirable         *graph.Node // [responses] 1 or 0
	Point             *graph.Node // [1] z
}

// UnpairedGraph builds the loss of every response [responses]. The options must be valid.
func (o Options) UnpairedGraph(in UnpairedInputs) *graph.Node {
	good, bad := in.Desirable, graph.OneMinus(in.Desirable)
	sign := graph.Sub(good, bad)
	above := graph.Sub(graph.Sub(in.Policy, in.Reference), graph.BroadcastToShape(in.Point, in.Policy.Shape()))
	u := graph.Mul(sign, graph.MulScalar(above, o.Beta))
	_, sigma, sigmaNeg := sigmas(graph.StopGradient(u))
	desirable, undesirable := o.sideWeights()
	weight := graph.Add(graph.MulScalar(good, desirable), graph.MulScalar(bad, undesirable))
	return graph.Mul(weight, withSlope(sigmaNeg, graph.Neg(graph.Mul(sigma, sigmaNeg)), u))
}

// UnpairedBatch holds the inputs of kto on the host, each [responses].
type UnpairedBatch struct {
	Policy, Reference []float64 // summed log-probabilities
	Desirable         []bool
	Point             float64 // z
}

// UnpairedOutcome holds losses, implicit rewards β·A and gradients, each [responses].
type UnpairedOutcome struct {
	Loss, Rewards []float64
	Grad          []float64 // d Loss[i] / d Policy[i]
}

// UnpairedHost computes in float64 what UnpairedGraph builds, with analytic gradients.
func (o Options) UnpairedHost(b UnpairedBatch) (out UnpairedOutcome, err error) {
	if err := fault.Err("loss", o.Check()); err != nil {
		return out, err
	}
	n := len(b.Policy)
	if !o.Unpaired() || len(b.Reference) != n || len(b.Desirable) != n {
		return out, fmt.Errorf("losses: %s has %d log-probabilities, %d of the reference and %d labels: want kto, and "+
			"as many of each", o.Type, n, len(b.Reference), len(b.Desirable))
	}
	desirable, undesirable := o.sideWeights()
	for i, logp := range b.Policy {
		ratio := logp - b.Reference[i]
		sign, weight := 1.0, desirable
		if !b.Desirable[i] {
			sign, weight = -1, undesirable
		}
		u := sign * o.Beta * (ratio - b.Point)
		out.Loss = append(out.Loss, weight*sigmoid(-u))
		out.Rewards = append(out.Rewards, o.Beta*ratio)
		out.Grad = append(out.Grad, -weight*sign*o.Beta*sigmoid(u)*sigmoid(-u))
	}
	return out, nil
}

// sideWeights are λ_D and λ_U.
func (o Options) sideWeights() (desirable, undesirable float64) {
	desirable, undesirable = 1, 1
	if o.DesirableWeight != nil {
		desirable = *o.DesirableWeight
	}
	if o.UndesirableWeight != nil {
		undesirable = *o.UndesirableWeight
	}
	return desirable, undesirable
}

// AdviseWeights is a line where the weights do not balance the numbers of desirable and undesirable responses as
// equation 8 of the paper advises, and "" where they do: λ_D·n_D is to be 1 to 4/3 of λ_U·n_U.
func (o Options) AdviseWeights(desirable, undesirable int) string {
	if !o.Unpaired() || desirable == 0 || undesirable == 0 {
		return ""
	}
	ofDesirable, ofUndesirable := o.sideWeights()
	balanced := ofUndesirable * float64(undesirable) / float64(desirable)
	if ratio := ofDesirable / balanced; ratio >= 0.99 && ratio <= 1.34 {
		return ""
	}
	return fmt.Sprintf("%d desirable responses with loss.desirable_weight %s and %d undesirable ones with "+
		"loss.undesirable_weight %s: the paper of KTO advises a desirable_weight from %.3g to %.3g here", desirable,
		number(ofDesirable), undesirable, number(ofUndesirable), balanced, balanced*4/3)
}
