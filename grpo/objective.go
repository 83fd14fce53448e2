package grpo

import (
	"fmt"
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/train"
)

// bound holds a difference of log-probs before it is exponentiated, so that nothing overflows.
const bound = 30

// Batch are the numbers of a minibatch on the host; answers may have different lengths.
type Batch struct {
	Logps      [][]float64 // [answers][tokens] of the policy
	Old        [][]float64 // [answers][tokens]; nil: the policy itself
	Reference  [][]float64 // [answers][tokens]; nil where the objective needs none
	Advantages []float64   // [answers]
	Masked     []bool      // [answers] true: the answer does not train; nil: all do
	Importance [][]float64 // [answers][tokens] factors of the advantage; nil: 1
}

// advantage is a token's advantage A.
func (b Batch) advantage(answer, token int) float64 {
	if b.Importance == nil {
		return b.Advantages[answer]
	}
	return b.Advantages[answer] * b.Importance[answer][token]
}

// Outcome is what the objective says of a minibatch.
type Outcome struct {
	Loss float64
	Grad [][]float64 // [answers][tokens] d Loss / d Logps

	Tokens             int     // that train; what follows is of them
	KL, Entropy        float64 // sums of the estimates; KL 0 where there is no reference
	ClippedLow         int     // ratio below 1-clip_low and a negative advantage
	ClippedHigh        int     // ratio above 1+clip_high and a positive advantage
	Ratio              float64 // sum
	MinRatio, MaxRatio float64
}

// Host computes in float64 what Graph builds, with its gradient by hand.
func (o Options) Host(b Batch) Outcome {
	weights := o.weights(lengths(b.Logps), b.Masked)
	out := Outcome{Grad: make([][]float64, len(b.Logps)), MinRatio: math.Inf(1), MaxRatio: math.Inf(-1)}
	for i, w := range weights {
		out.Grad[i] = make([]float64, len(b.Logps[i]))
		if w != 0 {
			o.answer(b, i, w, &out)
		}
	}
	return out
}

// answer adds the tokens of answer i.
func (o Options) answer(b Batch, i int, w float64, out *Outcome) {
	ratios := o.ratios(b, i)
	reach := 1.0 // tokens that every token's value depends on with its full slope
	if o.RatioLevel == Whole {
		reach = float64(len(ratios))
	}
	distances := o.distances(b, i)
	for t, logp := range b.Logps[i] {
		advantage := b.advantage(i, t)
		value, slope, clipped := o.surrogate(ratios[t], advantage, logp)
		if o.NeedsReference() {
			kl, klSlope := o.kl(distances[t])
			if out.KL += kl; o.inLoss() {
				value, slope = value+o.KLCoef*kl, slope+o.KLCoef*klSlope
			}
		}
		out.Loss += w * value
		out.Grad[i][t] = w * reach * slope
		out.count(ratios[t], advantage, clipped)
		out.Entropy -= logp
	}
}

func (out *Outcome) count(ratio, advantage float64, clipped bool) {
	out.Tokens++
	out.Ratio += ratio
	out.MinRatio, out.MaxRatio = min(out.MinRatio, ratio), max(out.MaxRatio, ratio)
	switch {
	case clipped && advantage < 0:
		out.ClippedLow++
	case clipped:
		out.ClippedHigh++
	}
}

// weights are the weights of one token of every answer, [answers]: 0 where it does not train. They depend on the whole
// minibatch, so that the parts of one add up to it.
func (o Options) weights(lengths []int, masked []bool) []float64 {
	answers, tokens := 0, 0
	trains := func(i int) bool { return lengths[i] > 0 && (masked == nil || !masked[i]) }
	for i, n := range lengths {
		if trains(i) {
			answers, tokens = answers+1, tokens+n
		}
	}
	weights := make([]float64, len(lengths))
	for i, n := range lengths {
		if trains(i) {
			weights[i] = 1 / o.divisor(float64(n), float64(answers), float64(tokens))
		}
	}
	return weights
}

// divisor divides the loss of a token of an answer of n tokens, in a minibatch of this many answers and tokens.
func (o Options) divisor(n, answers, tokens float64) float64 {
	switch o.Aggregation {
	case SeqMeanMean:
		return answers * n
	case SeqMeanSum:
		return answers
	case SeqMeanConstant:
		return answers * float64(o.NormLength)
	}
	return tokens
}

// ratios are the ratios ρ of answer i's tokens. The level sequence gives every token the geometric mean; since its
// gradient goes to all tokens alike, and all have the same slope, a token's share of it is its own slope. The level
// answer gives every token the ratio of the whole answer:
//
//	ρ(i) = π(answer)/π_old(answer) = exp(Σ_t (logπ - logπ_old))
//
// as CI-RL's paper prints the objective. With the aggregation seq-mean-token-mean the loss is the mean over the answers
// of -min(ρ(i)·A(i), clip(ρ(i))·A(i)) + β·KL(i), where d of KL is Σ_t (logπ_ref - logπ).
func (o Options) ratios(b Batch, i int) []float64 {
	ratios := make([]float64, len(b.Logps[i]))
	if b.Old != nil {
		ratios = o.level(b.Logps[i], b.Old[i])
	}
	for t, r := range ratios {
		ratios[t] = exp(r)
	}
	return ratios
}

// level is x - y of every token, or its mean or sum over all where the level is a sequence's or an answer's.
func (o Options) level(x, y []float64) []float64 {
	d, sum := make([]float64, len(x)), 0.0
	for t := range d {
		d[t] = x[t] - y[t]
		sum += d[t]
	}
	for t := range d {
		switch o.RatioLevel {
		case Sequence:
			d[t] = sum / float64(len(d))
		case Whole:
			d[t] = sum
		}
	}
	return d
}

// distances are the d of KL of answer i's tokens: each token's own, but for the level answer.
func (o Options) distances(b Batch, i int) []float64 {
	if !o.NeedsReference() {
		return nil
	}
	if o.RatioLevel == Sequence {
		o.RatioLevel = Token
	}
	return o.level(b.Reference[i], b.Logps[i])
}

// penalties are what KL takes from the rewards of a group's answers: β·Σ_t (logπ_old - logπ_ref) of each, k1 of the
// whole answer, as TRL's RLOOTrainer and verl's use_kl_in_reward have it. An answer that does not train has none.
func (o Options) penalties(g Group) []float64 {
	taken, masked := make([]float64, len(g.Answers)), masks(g)
	for i, old := range g.Old {
		for t, logp := range old {
			if !masked[i] {
				taken[i] += o.KLCoef * (float64(logp) - float64(g.Reference[i][t]))
			}
		}
	}
	return taken
}

func exp(d float64) float64 { return float.Exp(max(-bound, min(bound, d))) }

// surrogate is -min(ρA, clip(ρ)A), its derivative by log ρ, and whether the clipped side decides. CISPO's
// (MiniMax-M1, arXiv:2506.13585, equations 4 and 5) is -sg(clip(ρ))·A·logπ: the clipped ratio is a constant weight, so
// that every token has a gradient. The paper clips above alone: clip_low 1.
func (o Options) surrogate(ratio, advantage, logp float64) (value, slope float64, clipped bool) {
	low, high := 1-o.ClipLow, 1+o.ClipHigh
	if o.Surrogate == CISPO {
		slope = -min(max(ratio, low), high) * advantage
		return slope * logp, slope, advantage > 0 && ratio > high || advantage < 0 && ratio < low
	}
	switch {
	case advantage > 0 && ratio > high:
		return -high * advantage, 0, true
	case advantage < 0 && ratio < low:
		return -low * advantage, 0, true
	}
	return -ratio * advantage, -ratio * advantage, false
}

// importance is min(π_old/π_sampler, cap) of every token, or of the level. The surrogate is linear in the
// advantage, and this is no less than 0, so that it may multiply the advantage instead of the loss.
func (o Options) importance(old, sampled []float32) []float64 {
	both := wide([][]float32{old, sampled})
	factors := o.level(both[0], both[1])
	for t, d := range factors {
		factors[t] = min(exp(d), o.ImportanceCap)
	}
	return factors
}

// kl is the estimate from d = logπref - logπ, and its derivative by logπ, which k1 has no use for.
func (o Options) kl(d float64) (value, slope float64) {
	switch o.KL {
	case K1:
		return -d, 0
	case K2:
		return d * d / 2, -d
	}
	more := math.Expm1(max(-bound, min(bound, d)))
	return more - d, -more
}

func lengths[T any](rows [][]T) []int {
	n := make([]int, len(rows))
	for i, r := range rows {
		n[i] = len(r)
	}
	return n
}

// Inputs are the nodes of the objective, float32, each [slots] but for Answer's count; padding slots have weight 0,
// and their other numbers are not read.
type Inputs struct {
	Logps     *graph.Node // of the policy; the loss has a gradient by it alone
	Weight    *graph.Node // of the slot in the sum, see the package's table; 0: padding, or does not train
	Advantage *graph.Node
	Old       *graph.Node // nil: the policy itself
	Reference *graph.Node // nil where the objective needs none

	// Only with the level answer, or the level sequence and Old:
	Answer  *graph.Node // number of the slot's answer, from 0
	Share   *graph.Node // 1/tokens of that answer
	Answers int         // numbers that there are
}

// Graph builds the loss, a scalar: the weighted sum over the slots. Value and slope of every slot are computed
// without a gradient, and the slope is attached by hand: no gradient then passes through a Where, or an exponential
// that is not used.
func (o Options) Graph(in Inputs) *graph.Node {
	logps := graph.StopGradient(in.Logps)
	trains := graph.GreaterThan(in.Weight, graph.ZerosLike(in.Weight))
	value, slope := o.surrogateOf(o.logRatio(logps, in, trains), in.Advantage, among(trains, logps))
	if o.inLoss() {
		d := among(trains, graph.Sub(in.Reference, logps))
		if o.RatioLevel == Whole {
			d = answerSums(d, in)
		}
		kl, klSlope := o.klOf(d)
		value = graph.Add(value, graph.MulScalar(kl, o.KLCoef))
		slope = graph.Add(slope, graph.MulScalar(klSlope, o.KLCoef))
	}
	if o.RatioLevel == Whole {
		slope = among(trains, graph.Div(slope, in.Share))
	}
	value = graph.Add(graph.Mul(in.Weight, value), graph.Mul(graph.Mul(in.Weight, slope), graph.Sub(in.Logps, logps)))
	return graph.ReduceAllSum(value)
}

// among is x where the slot trains and 0 elsewhere: chosen before anything is multiplied, since 0 times infinity is
// not 0.
func among(trains, x *graph.Node) *graph.Node { return graph.Where(trains, x, graph.ZerosLike(x)) }

// logRatio is log ρ of every slot; nil: the ratio is 1 everywhere.
func (o Options) logRatio(logps *graph.Node, in Inputs, trains *graph.Node) *graph.Node {
	if in.Old == nil {
		return nil
	}
	r := among(trains, graph.Sub(logps, in.Old))
	switch o.RatioLevel {
	case Sequence:
		r = answerSums(graph.Mul(r, in.Share), in)
	case Whole:
		r = answerSums(r, in)
	}
	return graph.ClipScalar(r, -bound, bound)
}

// answerSums gives every slot the sum over its answer. Masked sums, not a scatter and a gather: a scatter with
// repeated indices races on onnx.
func answerSums(r *graph.Node, in Inputs) *graph.Node {
	slots := r.Shape().Dim(0)
	number := graph.ConvertDType(graph.Iota(r.Graph(), shapes.Make(dtypes.Int32, in.Answers, 1), 0), r.DType())
	member := graph.ConvertDType(graph.Equal(number, graph.Reshape(in.Answer, 1, slots)), r.DType())
	sums := graph.ReduceAndKeep(graph.Mul(member, graph.Reshape(r, 1, slots)), graph.ReduceSum, -1)
	return graph.ReduceSum(graph.Mul(member, sums), 0)
}

// surrogateOf is surrogate in the graph.
func (o Options) surrogateOf(logRatio, advantage, logps *graph.Node) (value, slope *graph.Node) {
	if logRatio == nil {
		slope = graph.Neg(advantage)
		if o.Surrogate == CISPO {
			return graph.Mul(slope, logps), slope
		}
		return slope, slope
	}
	ratio, zero := graph.Exp(logRatio), graph.ZerosLike(advantage)
	positive := graph.GreaterThan(advantage, zero)
	low, high := graph.Scalar(ratio.Graph(), ratio.DType(), 1-o.ClipLow), graph.Scalar(ratio.Graph(), ratio.DType(),
		1+o.ClipHigh)
	if o.Surrogate == CISPO {
		slope = graph.Neg(graph.Mul(graph.Max(graph.Min(ratio, high), low), advantage))
		return graph.Mul(slope, logps), slope
	}
	over := graph.LogicalAnd(positive, graph.GreaterThan(ratio, high))
	under := graph.LogicalAnd(graph.LessThan(advantage, zero), graph.LessThan(ratio, low))
	slope = graph.Neg(graph.Mul(ratio, advantage))
	value = graph.Neg(graph.Mul(graph.Max(graph.Min(ratio, high), low), advantage))
	clipped := graph.LogicalOr(over, under)
	return graph.Where(clipped, value, slope), graph.Where(clipped, zero, slope)
}

// klOf is kl in the graph.
func (o Options) klOf(d *graph.Node) (value, slope *graph.Node) {
	if o.KL == K2 {
		return graph.MulScalar(graph.Square(d), 0.5), graph.Neg(d)
	}
	more, excess := expm1(d)
	return excess, graph.Neg(more)
}

// expm1 gives exp(d)-1 and exp(d)-1-d. Near 0, where training starts, the differences of float32 numbers would leave
// little of either: there they are their series, d + d²/2 + … + d⁶/720.
func expm1(d *graph.Node) (more, excess *graph.Node) {
	small := graph.LessThan(graph.Abs(d), graph.Scalar(d.Graph(), d.DType(), 0.25))
	sum := graph.MulScalar(d, 1.0/6)
	for k := 5.0; k >= 3; k-- {
		sum = graph.MulScalar(graph.Mul(d, graph.OnePlus(sum)), 1/k)
	}
	series := graph.MulScalar(graph.Mul(graph.Square(d), graph.OnePlus(sum)), 0.5)
	direct := graph.AddScalar(graph.Exp(graph.ClipScalar(d, -bound, bound)), -1)
	return graph.Where(small, graph.Add(d, series), direct), graph.Where(small, series, graph.Sub(direct, d))
}

// objective is the loss over a part's slots, as a train.Objective. The host makes a weight for every slot, so that
// the graph depends neither on the aggregation nor on what else is in the minibatch, and parts add up to it.
type objective struct {
	Options
	old bool // the old policy's log-probs are given
}

// Key covers what changes the graph.
func (o objective) Key() string {
	name := "grpo"
	if o.old {
		name += fmt.Sprintf(" %s clip=%v,%v", o.RatioLevel, o.ClipLow, o.ClipHigh)
	}
	if o.RatioLevel == Whole || o.Surrogate == CISPO {
		name += " " + o.RatioLevel + " " + o.Surrogate
	}
	if o.inLoss() {
		name += fmt.Sprintf(" %s=%v", o.KL, o.KLCoef)
	}
	return name
}

// sequence says that the graph takes sums over answers.
func (o objective) sequence() bool { return o.old && o.RatioLevel == Sequence || o.RatioLevel == Whole }

// Loss reads inputs in the order of minibatch.inputs; output: the log-probs [slots].
func (o objective) Loss(lp train.LogProbs, inputs []*graph.Node) (*graph.Node, []*graph.Node) {
	in := Inputs{Logps: lp.Tokens, Weight: inputs[0], Advantage: inputs[1], Answers: lp.Sums.Shape().Dim(0)}
	inputs = inputs[2:]
	if o.inLoss() {
		in.Reference, inputs = inputs[0], inputs[1:]
	}
	if o.old {
		in.Old, inputs = inputs[0], inputs[1:]
	}
	if o.sequence() {
		in.Answer, in.Share = inputs[0], inputs[1]
	}
	return o.Graph(in), []*graph.Node{lp.Tokens}
}
