package train

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/losses"
)

// Preference trains on pairs with a loss of the DPO family, with or without MaPPO's prior.
// Examples are groups of two answers, the chosen one first.
type Preference struct {
	Options   losses.Options
	Tolerance float64 // of the self-check at step 0, relative; 0: no check, the reference is another model
}

// Key covers every option of the loss: its graph depends on all of them.
func (m *Preference) Key() string { return m.Options.Key() }

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
	loss := m.Options.Graph(in)
	return graph.ReduceAllSum(graph.Mul(loss, inputs[0])), []*graph.Node{lp.Sums}
}

// Observe computes the diagnostics on the host, in float64, from the answers' log-probs.
func (m *Preference) Observe(examples []Example, p *batch.Packed, outputs [][]float32, metrics *Metrics) error {
	b := m.batch(examples, p, outputs[0])
	out, err := m.Options.Host(b)
	if err != nil {
		return err
	}
	for name, values := range out.Metrics(b) {
		for _, v := range values {
			metrics.Add(name, v, 1)
		}
	}
	return nil
}

// CheckStart is the self-check of step 0: policy and reference agree.
func (m *Preference) CheckStart(examples []Example, _ *batch.Packed, outputs [][]float32) error {
	if m.Options.ReferenceFree() {
		return nil
	}
	return checkReference(examples, outputs[0], 2, m.Tolerance)
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
