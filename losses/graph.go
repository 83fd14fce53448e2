package losses

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
)

// Inputs are the nodes of a loss, each [pairs], all float32 or all float64. A padding pair (log-probabilities 0,
// lengths 0) gives finite values and gradients; the caller gives its loss a weight of 0.
type Inputs struct {
	PolicyChosen, PolicyRejected       *graph.Node // summed log-probabilities under the model in training
	ReferenceChosen, ReferenceRejected *graph.Node // the same under the reference; unused (may be nil) if ReferenceFree
	ChosenLengths, RejectedLengths     *graph.Node // response tokens; 0 counts as 1
	RewardGap                          *graph.Node // Δr; unused (may be nil) if the prior is None
}

// Graph builds the loss of every pair, out of operations that every engine has. The options must be valid. Like all
// functions that build graphs it panics on a programming error, here a missing input.
func (o Options) Graph(in Inputs) *graph.Node {
	o.requireInputs(in)
	chosen, rejected := in.PolicyChosen, in.PolicyRejected
	if !o.ReferenceFree() {
		chosen, rejected = graph.Sub(chosen, in.ReferenceChosen), graph.Sub(rejected, in.ReferenceRejected)
	}
	loss := o.link(o.argument(chosen, rejected, in))
	ofU, ofNLL := o.weights()
	if ofU != 1 {
		loss = graph.MulScalar(loss, ofU)
	}
	if o.NLL != nil {
		loss = graph.Add(loss, graph.MulScalar(o.chosenNLL(in), ofNLL))
	}
	return loss
}

func (o Options) requireInputs(in Inputs) {
	if o.Unpaired() {
		panic(fmt.Errorf("losses: %s is no loss of pairs: want UnpairedGraph", o.Type))
	}
	needed := map[string]*graph.Node{
		"PolicyChosen": in.PolicyChosen, "PolicyRejected": in.PolicyRejected,
		"ChosenLengths": in.ChosenLengths, "RejectedLengths": in.RejectedLengths,
	}
	if !o.ReferenceFree() {
		needed["ReferenceChosen"], needed["ReferenceRejected"] = in.ReferenceChosen, in.ReferenceRejected
	}
	if o.NeedsGap() {
		needed["RewardGap"] = in.RewardGap
	}
	for name, node := range needed {
		if node == nil {
			panic(fmt.Errorf("losses: %s with prior %s needs %s", o.Type, o.Prior, name))
		}
	}
}

// argument is u of the package's formula.
func (o Options) argument(chosen, rejected *graph.Node, in Inputs) *graph.Node {
	chosen = o.scaleLogps(chosen, in.ChosenLengths)
	rejected = o.scaleLogps(rejected, in.RejectedLengths)
	if o.NeedsGap() {
		rejected = graph.Mul(in.RewardGap, rejected)
	}
	u := graph.Sub(chosen, rejected)
	if offset := o.offset(); offset != 0 {
		u = graph.AddScalar(u, -offset)
	}
	return u
}

func (o Options) scaleLogps(logps, lengths *graph.Node) *graph.Node {
	if o.perToken() {
		logps = perToken(logps, lengths)
	}
	if scale := o.scale(); scale != 1 {
		logps = graph.MulScalar(logps, scale)
	}
	if o.Type == ORPO {
		logps = logOdds(logps)
	}
	return logps
}

// logOdds is log(p/(1-p)) of p = exp(x), with its exact derivative 1/(1-p). 1-p is -2t/(1-t), t = tanh(x/2), which is
// accurate for probabilities near 1, too.
func logOdds(x *graph.Node) *graph.Node {
	x = graph.MinScalar(x, mostCertain)
	fixed := graph.StopGradient(x)
	t := graph.Tanh(graph.MulScalar(fixed, 0.5))
	not := graph.Div(graph.MulScalar(t, -2), graph.OneMinus(t)) // 1-p
	return withSlope(graph.Sub(fixed, graph.Log(not)), graph.Reciprocal(not), x)
}

// mostCertain is the log of the highest probability that has odds.
const mostCertain = -1e-6

// perToken divides by the length, at least 1: a padding pair has length 0 and must not become NaN.
func perToken(logps, lengths *graph.Node) *graph.Node {
	return graph.Div(logps, graph.MaxScalar(lengths, 1.0))
}

// chosenNLL is the negative log-likelihood of the chosen response.
func (o Options) chosenNLL(in Inputs) *graph.Node {
	logps := in.PolicyChosen
	if mode(o.NLL) == Mean {
		logps = perToken(logps, in.ChosenLengths)
	}
	return graph.Neg(logps)
}

func (o Options) link(u *graph.Node) *graph.Node {
	if k := o.kind(); k.link != nil {
		return k.link.graph(u)
	}
	return logistic(u, o.smoothing())
}

// logistic is -(1-ε)·log σ(u) - ε·log σ(-u) with its exact derivative ε·σ(u) - (1-ε)·σ(-u).
//
// Value and derivative both come from e = exp(-|u|), which cannot overflow, and are accurate relative to their own size
// at both ends. The derivative is attached by hand: the value's own graph would lose it to cancellation at a large
// margin, its |u| has a kink at u = 0 where training starts, and an engine's logistic op may saturate (ONNX Runtime's
// does beyond 18).
func logistic(u *graph.Node, smoothing float64) *graph.Node {
	fixed := graph.StopGradient(u)
	e, sigma, sigmaNeg := sigmas(fixed)
	// -log σ(u) = max(-u, 0) + log(1+e), and -log σ(-u) = -log σ(u) + u.
	value := graph.Add(graph.MaxScalar(graph.Neg(fixed), 0.0), graph.Log1p(e))
	slope := graph.MulScalar(sigmaNeg, -(1 - smoothing))
	if smoothing != 0 {
		value = graph.Add(value, graph.MulScalar(fixed, smoothing))
		slope = graph.Add(slope, graph.MulScalar(sigma, smoothing))
	}
	return withSlope(value, slope, u)
}

// sigmas are e = exp(-|u|), σ(u) and σ(-u).
func sigmas(u *graph.Node) (e, sigma, sigmaNeg *graph.Node) {
	positive := graph.GreaterThan(u, graph.ZerosLike(u))
	e = graph.Exp(graph.Neg(graph.Abs(u)))
	atLeastHalf := graph.Div(graph.OnesLike(e), graph.OnePlus(e)) // σ(|u|)
	atMostHalf := graph.Div(e, graph.OnePlus(e))                  // σ(-|u|)
	return e, graph.Where(positive, atLeastHalf, atMostHalf), graph.Where(positive, atMostHalf, atLeastHalf)
}

// withSlope gives a value of u its derivative: u less itself is 0 but carries it.
func withSlope(value, slope, u *graph.Node) *graph.Node {
	zero := graph.Sub(u, graph.StopGradient(u))
	return graph.Add(graph.StopGradient(value), graph.Mul(graph.StopGradient(slope), zero))
}
