package train

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/batch"
)

// SFT trains on demonstrations: the mean negative log-likelihood of the predicted tokens. Examples are groups of one
// answer.
type SFT struct{}

// Key is always the same: there are no options.
func (SFT) Key() string { return "sft" }

// Weight counts predicted tokens: the mean is over the tokens of the whole batch, however it is split.
func (SFT) Weight(examples []Example) float64 {
	n := 0
	for _, x := range examples {
		n += x.AnswerTokens()
	}
	return float64(n)
}

// Inputs: none.
func (SFT) Inputs([]Example, *batch.Packed) []Input { return nil }

// Loss sums the tokens' negative log-likelihoods; outputs: the answers' summed log-probs [answers].
func (SFT) Loss(lp LogProbs, _ []*graph.Node) (*graph.Node, []*graph.Node) {
	return graph.Neg(graph.ReduceAllSum(graph.Mul(lp.Tokens, lp.Real))), []*graph.Node{lp.Sums}
}

// Observe counts the loss, per token.
func (SFT) Observe(examples []Example, p *batch.Packed, outputs [][]float32, metrics *Metrics) error {
	for i := range examples {
		n := float64(p.Lengths[i])
		metrics.Add("loss", -float64(outputs[0][i])/n, n)
	}
	return nil
}
