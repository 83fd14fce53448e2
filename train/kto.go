package train

import (
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/losses"
)

// KTO trains on single answers that are desirable or not. Examples are groups of one answer.
//
// Its reference point is the mean log-ratio of the mismatched pairs of all examples of a step, however they are split,
// and of all examples of an evaluation. TRL takes the mean of each microbatch.
type KTO struct {
	Options    losses.Options
	Desirable  []bool
	Mismatched []batch.Group // [examples] the example's prompt with the answer to another one, see [Mismatch]
	Reference  [][2]float32  // [examples] summed log-probs of the answer and of the mismatched one
	Tolerance  float64       // of the self-check at step 0, relative; 0: no check, the reference is another model

	now point
}

// point is what the examples at hand have in common.
type point struct {
	z                      float64 // the reference point
	desirable, undesirable int
}

// Mismatch gives each example the answer of another one with another prompt: that of the nearest before it in its
// batch, whose first follows its last; where the whole batch has one prompt, the nearest before it in the order.
// Answers are cut to most tokens with their prompt; 0: they are not. TRL takes the answer before it, whatever its
// prompt.
func Mismatch(groups []batch.Group, order []int, batchSize, most int) ([]batch.Group, error) {
	mismatched := make([]batch.Group, len(groups))
	for k, i := range order {
		j := partner(groups, order, k, batchSize)
		if j < 0 {
			return nil, fmt.Errorf("all %d examples have the same prompt: kto measures answers to other prompts, and "+
				"wants two prompts at least", len(groups))
		}
		prompt, answer := groups[i].Prompt, groups[j].Answers[0]
		if most > 0 {
			answer = answer[:min(len(answer), max(1, most-len(prompt)))]
		}
		mismatched[i] = batch.Group{Prompt: prompt, Answers: [][]int32{answer}}
	}
	return mismatched, nil
}

// Both are groups of an example's answer and the mismatched one, whose reference log-probs are measured.
func (m *KTO) Both(groups []batch.Group) []batch.Group {
	both := make([]batch.Group, len(groups))
	for i, g := range groups {
		both[i] = batch.Group{Prompt: g.Prompt, Answers: [][]int32{g.Answers[0], m.Mismatched[i].Answers[0]}}
	}
	return both
}

// partner is the example whose answer the k-th of the order gets, or -1.
func partner(groups []batch.Group, order []int, k, batchSize int) int {
	first := k / batchSize * batchSize
	for _, part := range []struct {
		from []int
		at   int
	}{{order[first:min(first+batchSize, len(order))], k - first}, {order, k}} {
		n := len(part.from)
		for back := 1; back < n; back++ {
			j := part.from[(part.at-back+n)%n]
			if !slices.Equal(groups[j].Prompt, groups[order[k]].Prompt) {
				return j
			}
		}
	}
	return -1
}

// Key covers every option of the loss.
func (m *KTO) Key() string { return m.Options.Key() }

// Weight counts examples.
func (m *KTO) Weight(examples []int) float64 { return float64(len(examples)) }

// others are the groups that Prepare measures beside the examples.
func (m *KTO) others() []batch.Group { return m.Mismatched }

// prepare measures the reference point of the examples under the present weights.
func (m *KTO) prepare(l *Learner, examples []int, layout batch.Layout) error {
	m.now = point{}
	sum := 0.0
	for p := range pieces(m.Mismatched, examples, layout) {
		sums, err := l.Sums(p.Packed)
		if err != nil {
			return err
		}
		for i, e := range p.examples {
			sum += float64(sums[i]) - float64(m.Reference[e][1])
		}
	}
	m.now.z = max(0, sum/float64(len(examples)))
	for _, e := range examples {
		if m.Desirable[e] {
			m.now.desirable++
		} else {
			m.now.undesirable++
		}
	}
	return nil
}

// Inputs are, for the answers of the batch with padding at the end: weight [answers] (0 for padding), 1 for a desirable
// answer [answers], the reference's log-probs [answers], and the reference point [1].
func (m *KTO) Inputs(examples []int, p *batch.Packed) []Input {
	weight, desirable, ref := make([]float32, p.Answers), make([]float32, p.Answers), make([]float32, p.Answers)
	for i, e := range examples {
		weight[i], desirable[i] = 1, oneIf(m.Desirable[e])
		if m.Reference != nil { // else only the shapes count, in a plan
			ref[i] = m.Reference[e][0]
		}
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
func (m *KTO) Observe(examples []int, p *batch.Packed, outputs [][]float32, metrics *Metrics) error {
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
		metrics.Spread(logps, b.Policy[i])
		metrics.Add(rewards, reward, 1)
		if all := float64(m.now.desirable + m.now.undesirable); m.now.desirable > 0 && m.now.undesirable > 0 {
			// Together the examples add the difference of the two means, with a weight of 1.
			metrics.Add(losses.MetricMargins, sign*reward*all/float64(n), 1/all)
		}
	}
	return nil
}

func (m *KTO) batch(examples []int, sums []float32) losses.UnpairedBatch {
	b := losses.UnpairedBatch{Point: m.now.z}
	for i, e := range examples {
		b.Policy = append(b.Policy, float64(sums[i]))
		b.Reference = append(b.Reference, float64(m.Reference[e][0]))
		b.Desirable = append(b.Desirable, m.Desirable[e])
	}
	return b
}

// CheckStart is the self-check of step 0: policy and reference agree.
func (m *KTO) CheckStart(examples []int, _ *batch.Packed, outputs [][]float32) error {
	if m.Tolerance == 0 {
		return nil
	}
	for i, e := range examples {
		policy, reference := float64(outputs[0][i]), float64(m.Reference[e][0])
		if !(math.Abs(policy-reference) <= m.Tolerance*(1+math.Abs(reference))) {
			return fmt.Errorf("step 0: before any update policy and reference must agree, but log p of example %d is "+
				"%.4f under the policy and %.4f under the reference: the reference is not the model that training "+
				"starts from, or its cached log-probabilities are stale (other weights, data or limits)", e+1, policy,
				reference)
		}
	}
	return nil
}
