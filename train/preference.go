package train

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/losses"
)

// Preference trains on pairs with a loss of the DPO family, with or without MaPPO's prior, or with a loss of one's own.
// Examples are groups of two answers, the chosen one first.
type Preference struct {
	Options   losses.Options
	Custom    *PairLoss // instead of the loss that Options names; nil: that loss
	Tolerance float64   // of the self-check at step 0, relative; 0: no check, the reference is another model
}

// PairLoss is a loss of one's own on preference pairs. Beside it, losses.Options says whether there is a reference and
// how the logged rewards are scaled.
type PairLoss struct {
	Key   string                             // the cache key of the compiled graph: it covers every constant of Graph
	Graph func(in losses.Inputs) *graph.Node // the loss of every pair [pairs]; a padding pair must give a finite number
	Host  func(b losses.Batch) []float64     // the same on the host, for metrics and the self-check of step 0
}

// Key covers every option of the loss: its graph depends on all of them.
func (m *Preference) Key() string {
	if m.Custom != nil {
		return "custom " + m.Custom.Key
	}
	return m.Options.Key()
}

// Weight counts pairs.
func (m *Preference) Weight(examples []Example) float64 { return float64(len(examples)) }

// Inputs are, for the pairs of the batch with padding at the end: weight [pairs] (0 for padding), gap [pairs], lengths
// [pairs, 2], and the reference's log-probs [pairs, 2] where the loss has a reference.
func (m *Preference) Inputs(examples []Example, p *batch.Packed) []Input {
	pairs := p.Answers / 2
	weight, gap, lengths, ref := make([]float32, pairs), make([]float32, pairs), make([]float32, p.Answers),
		make([]float32, p.Answers)
	for i, n := range p.Lengths {
		lengths[i] = float32(n)
	}
	for i, x := range examples {
		weight[i], gap[i] = 1, float32(x.Gap)
		ref[2*i], ref[2*i+1] = x.Reference[0], x.Reference[1]
	}
	in := []Input{{weight, []int{pairs}}, {gap, []int{pairs}}, {lengths, []int{pairs, 2}}}
	if m.Options.ReferenceFree() {
		return in
	}
	return append(in, Input{ref, []int{pairs, 2}})
}

// Loss sums the pairs' losses; outputs: the answers' summed log-probs [answers].
func (m *Preference) Loss(lp LogProbs, inputs []*graph.Node) (*graph.Node, []*graph.Node) {
	pairs := inputs[0].Shape().Dim(0)
	side := func(x *graph.Node, i int) *graph.Node {
		return graph.Reshape(graph.SliceAxis(x, 1, graph.AxisRange(i, i+1)), pairs)
	}
	policy := graph.Reshape(lp.Sums, pairs, 2)
	in := losses.Inputs{
		PolicyChosen: side(policy, 0), PolicyRejected: side(policy, 1),
		ChosenLengths: side(inputs[2], 0), RejectedLengths: side(inputs[2], 1), RewardGap: inputs[1],
	}
	if !m.Options.ReferenceFree() {
		in.ReferenceChosen, in.ReferenceRejected = side(inputs[3], 0), side(inputs[3], 1)
	}
	loss := m.pairLosses(in)
	return graph.ReduceAllSum(graph.Mul(loss, inputs[0])), []*graph.Node{lp.Sums}
}

func (m *Preference) pairLosses(in losses.Inputs) *graph.Node {
	if m.Custom != nil {
		return m.Custom.Graph(in)
	}
	return m.Options.Graph(in).Loss
}

// Observe computes the diagnostics on the host, in float64, from the answers' log-probs.
func (m *Preference) Observe(examples []Example, p *batch.Packed, outputs [][]float32, metrics *Metrics) error {
	b := m.batch(examples, p, outputs[0])
	out, err := m.Options.Host(b)
	if err != nil {
		return err
	}
	if m.Custom != nil {
		if out.Loss = m.Custom.Host(b); len(out.Loss) != b.Pairs() {
			return fmt.Errorf("loss %q gives %d numbers for %d pairs: want one a pair", m.Custom.Key, len(out.Loss),
				b.Pairs())
		}
	}
	for name, values := range out.Metrics(b) {
		for _, v := range values {
			metrics.Add(name, v, 1)
		}
	}
	metrics.Spread(losses.MetricLogpsChosen, b.PolicyChosen...)
	metrics.Spread(losses.MetricLogpsRejected, b.PolicyRejected...)
	return nil
}

// CheckStart is the self-check of step 0: as long as the policy is the reference, rewards are 0 and the loss is known.
func (m *Preference) CheckStart(examples []Example, p *batch.Packed, outputs [][]float32) error {
	if m.Options.ReferenceFree() || m.Tolerance == 0 || m.Custom != nil {
		return nil
	}
	return m.Options.CheckStartWithin(m.batch(examples, p, outputs[0]), m.Tolerance)
}

func (m *Preference) batch(examples []Example, p *batch.Packed, sums []float32) losses.Batch {
	var b losses.Batch
	for i, x := range examples {
		b.PolicyChosen = append(b.PolicyChosen, float64(sums[2*i]))
		b.PolicyRejected = append(b.PolicyRejected, float64(sums[2*i+1]))
		b.ChosenLengths = append(b.ChosenLengths, float64(p.Lengths[2*i]))
		b.RejectedLengths = append(b.RejectedLengths, float64(p.Lengths[2*i+1]))
		b.ReferenceChosen = append(b.ReferenceChosen, float64(x.Reference[0]))
		b.ReferenceRejected = append(b.ReferenceRejected, float64(x.Reference[1]))
		if x.Scored {
			b.RewardGap = append(b.RewardGap, x.Gap)
		}
	}
	return b
}
