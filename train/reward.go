package train

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/losses"
)

// Reward trains a reward model on pairs. Examples are groups of two answers that [batch.Encoder.Scored] made, the
// chosen one first; Gap is the margin by which it should at least score higher.
type Reward struct {
	Options losses.BradleyTerry
}

// Metrics of a reward model, beside the loss; the names are TRL's.
const (
	MetricAccuracy   = "accuracy"    // share of pairs whose chosen answer scores higher
	MetricMargin     = "margin"      // mean difference of the scores
	MetricMeanReward = "mean_reward" // of all answers
	MetricMinReward  = "min_reward"  // of a step's answers
	MetricMaxReward  = "max_reward"
)

// Key covers the loss's options.
func (m *Reward) Key() string { return m.Options.Key() }

// Weight counts pairs.
func (m *Reward) Weight(examples []Example) float64 { return float64(len(examples)) }

// Inputs are, for the pairs of the batch with padding at the end: weight [pairs] (0 for padding) and margin [pairs].
func (m *Reward) Inputs(examples []Example, p *batch.Packed) []Input {
	pairs := p.Answers / 2
	weight, margin := make([]float32, pairs), make([]float32, pairs)
	for i, x := range examples {
		weight[i], margin[i] = 1, float32(x.Gap)
	}
	return []Input{{weight, []int{pairs}}, {margin, []int{pairs}}}
}

// Loss sums the pairs' losses; outputs: the answers' scores [answers].
func (m *Reward) Loss(lp LogProbs, inputs []*graph.Node) (*graph.Node, []*graph.Node) {
	pairs := inputs[0].Shape().Dim(0)
	scores := graph.Reshape(lp.Sums, pairs, 2)
	side := func(i int) *graph.Node {
		return graph.Reshape(graph.SliceAxis(scores, 1, graph.AxisRange(i, i+1)), pairs)
	}
	loss := m.Options.Graph(side(0), side(1), inputs[1])
	return graph.ReduceAllSum(graph.Mul(loss, inputs[0])), []*graph.Node{lp.Sums}
}

// Observe computes the metrics in float64 from the answers' scores.
func (m *Reward) Observe(examples []Example, _ *batch.Packed, outputs [][]float32, metrics *Metrics) error {
	scores := outputs[0][:2*len(examples)]
	for i, x := range examples {
		chosen, rejected := float64(scores[2*i]), float64(scores[2*i+1])
		metrics.Add("loss", m.Options.Host(chosen, rejected, x.Gap), 1)
		higher := 0.0
		if chosen > rejected {
			higher = 1
		}
		metrics.Add(MetricAccuracy, higher, 1)
		metrics.Add(MetricMargin, chosen-rejected, 1)
		metrics.Add(MetricMeanReward, (chosen+rejected)/2, 1)
	}
	metrics.Least(MetricMinReward, float64(slices.Min(scores)))
	metrics.Most(MetricMaxReward, float64(slices.Max(scores)))
	return nil
}
