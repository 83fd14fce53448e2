package train

import (
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/losses"
)

// KTO trains on single answers that are desirable or not. Examples are groups of one answer.
//
// Its reference point is the mean log-ratio of the mismatched pairs of all examples of a step, however they are split,
// and of all examples of an evaluation. TRL takes the mean of each microbatch.
type KTO struct {
	Options   losses.Options
	Tolerance float64 // of the self-check at step 0, relative; 0: no check, the reference is another model

	now point
}

// point is what the examples at hand have in common.
type point struct {
	z                      float64 // the reference point
	desirable, undesirable int
}

// Mismatch gives each example the answer of another one with another prompt: of the nearest before it in its batch,
// whose first follows its last; where the whole batch has one prompt, the nearest before it in the order. Answers are
// cut to most tokens with their prompt; 0: they are not. TRL takes the answer before it, whatever its prompt.
func Mismatch(examples []Example, order []int, batchSize, most int) error {
	for k, i := range order {
		j := partner(examples, order, k, batchSize)
		if j < 0 {
			return fmt.Errorf("all %d examples have the same prompt: kto measures answers to other prompts, and "+
				"wants two prompts at least", len(examples))
		}
		prompt, answer := examples[i].Prompt, examples[j].Answers[0]
		if most > 0 {
			answer = answer[:min(len(answer), max(1, most-len(prompt)))]
		}
		examples[i].Mismatched = answer
	}
	return nil
}

// Both are groups of an example's answer and the mismatched one, whose reference log-probs are measured.
func Both(examples []Example) []Group {
	groups := make([]Group, len(examples))
	for i, x := range examples {
		groups[i] = Group{Prompt: x.Prompt, Answers: [][]int32{x.Answers[0], x.Mismatched}}
	}
	return groups
}

// partner is the example whose answer the k-th of the order gets, or -1.
func partner(examples []Example, order []int, k, batchSize int) int {
	first := k / batchSize * batchSize
	for _, part := range []struct {
		from []int
		at   int
	}{{order[first:min(first+batchSize, len(order))], k - first}, {order, k}} {
		n := len(part.from)
		for back := 1; back < n; back++ {
			j := part.from[(part.at-back+n)%n]
			if !slices.Equal(examples[j].Prompt, examples[order[k]].Prompt) {
				return j
			}
		}
	}
	return -1
}

// Key covers every option of the loss.
func (m *KTO) Key() string { return m.Options.Key() }

// Weight counts examples.
func (m *KTO) Weight(examples []Example) float64 { return float64(len(examples)) }

// others are the prompts of examples with the answers to other ones.
func (m *KTO) others(examples []Example) []Group {
	groups := make([]Group, len(examples))
	for i, x := range examples {
		groups[i] = Group{Prompt: x.Prompt, Answers: [][]int32{x.Mismatched}}
	}
	return groups
}

// prepare measures the reference point of the examples under the present weights.
func (m *KTO) prepare(l *Learner, examples []Example, layout batch.Layout) error {
	m.now = point{}
	sum := 0.0
	for members, p := range splitGroups(m.others(examples), layout) {
		sums, err := l.Sums(p)
		if err != nil {
			return err
		}
		for i, e := range members {
			sum += float64(sums[i]) - float64(examples[e].Reference[1])
		}
	}
	m.now.z = max(0, sum/float64(len(examples)))
	for _, x := range examples {
		if x.Desirable {
			m.now.desirable++
		} else {
			m.now.undesirable++
		}
	}
	return nil
}

// Inputs are, for the answers of the batch with padding at the end: weight [answers] (0 for padding), 1 for a desirable
// answer [answers], the reference's log-probs [answers], and the reference point [1].
func (m *KTO) Inputs(examples []Example, p *batch.Packed) []Input {
	weight, desirable, ref := make([]float32, p.Answers), make([]float32, p.Answers), make([]float32, p.Answers)
	for i, x := range examples {
		weight[i], desirable[i], ref[i] = 1, float32(float.Indicator(x.Desirable)), x.Reference[0]
	}
	n := []int{p.Answers}
	return []Input{{weight, n}, {desirable, n}, {ref, n}, {[]float32{float32(m.now.z)}, []int{1}}}
}

// Loss sums the answers' losses; outputs: the answers' summed log-probs [answers].
func (m *KTO) Loss(lp LogProbs, inputs []*graph.Node) (*graph.Node, []*graph.Node) {
	loss := m.Options.UnpairedGraph(losses.UnpairedInputs{Policy: lp.Sums, Reference: inputs[2], Desirable: inputs[1],
		Point: inputs[3]})
	return graph.ReduceAllSum(graph.Mul(loss, inputs[0])), []*graph.Node{lp.Sums}
}

// Observe computes the diagnostics on the host, in float64. The names are TRL's: a desirable answer is "chosen".
func (m *KTO) Observe(examples []Example, p *batch.Packed, outputs [][]float32, metrics *Metrics) error {
	b := m.batch(examples, outputs[0])
	out, err := m.Options.UnpairedHost(b)
	if err != nil {
		return err
	}
	for i, reward := range out.Rewards {
		logps, rewards, sign, n := losses.MetricLogpsChosen, losses.MetricRewardsChosen, 1.0, m.now.desirable
		if !b.Desirable[i] {
			logps, rewards, sign, n = losses.MetricLogpsRejected, losses.MetricRewardsRejected, -1, m.now.undesirable
		}
		metrics.Add(losses.MetricLoss, out.Loss[i], 1)
		metrics.Add(losses.MetricKL, b.Point, 1)
		metrics.Add(logps, b.Policy[i], 1)
		metrics.Add(rewards, reward, 1)
		if all := float64(m.now.desirable + m.now.undesirable); m.now.desirable > 0 && m.now.undesirable > 0 {
			// Together the examples add the difference of the two means, with a weight of 1.
			metrics.Add(losses.MetricMargins, sign*reward*all/float64(n), 1/all)
		}
	}
	return nil
}

func (m *KTO) batch(examples []Example, sums []float32) losses.UnpairedBatch {
	b := losses.UnpairedBatch{Point: m.now.z}
	for i, x := range examples {
		b.Policy = append(b.Policy, float64(sums[i]))
		b.Reference = append(b.Reference, float64(x.Reference[0]))
		b.Desirable = append(b.Desirable, x.Desirable)
	}
	return b
}

// CheckStart is the self-check of step 0: policy and reference agree.
func (m *KTO) CheckStart(examples []Example, _ *batch.Packed, outputs [][]float32) error {
	return checkReference(examples, outputs[0], 1, m.Tolerance)
}
