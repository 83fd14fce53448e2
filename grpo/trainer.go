package grpo

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/float"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/train"
)

// Group is one prompt's rollouts, ready to train on.
type Group struct {
	batch.Group
	Advantages []float64   // [answers]
	Masked     []bool      // [answers] true: the answer does not train; nil: all do
	Sampled    [][]float32 // [answers][predicted tokens] the sampler's log-probs; nil: unknown
	Old        [][]float32 // [answers][predicted tokens] the old policy's log-probs; nil in all groups: this very policy's
	Reference  [][]float32 // [answers][predicted tokens] the reference's log-probs; nil: no KL
}

// Trainer measures groups and trains on them.
type Trainer struct {
	Learner *train.Learner
	Options Options
	Tokens  int               // tokens that go through the model at once, about; 0: as the engine wants
	Apart   bool              // every answer repeats its prompt: slower, for tests and benchmarks
	Rows    batch.GroupLayout // of a whole run, see Rollouts.Rows; the zero value: groups choose

	row int // tokens of a row; 0: chosen
}

// deviceTokens is what goes through the model at once where the engine asks for no bound.
const deviceTokens = 8192

func tokensFor(l *train.Learner) int { return cmp.Or(l.Wants().Tokens, deviceTokens) }

// spread lays groups out in parts.
func (t *Trainer) spread(groups []batch.Group) []batch.GroupMicrobatch {
	s := t.Rows
	s.Short, s.Apart, s.Tokens = t.row, t.Apart, cmp.Or(t.Tokens, tokensFor(t.Learner))
	s.Blocks = cmp.Or(s.Blocks, t.Learner.Blocks())
	return batch.PackGroups(groups, s.Fit(groups, t.Learner.Config().HiddenSize))
}

// Measure returns the log-probs [groups][answers][predicted tokens] of every answer under weights (nil: the learner's
// own). Of a group it reads prompt and answers.
func (t *Trainer) Measure(groups []Group, weights []compute.Buffer) ([][][]float32, error) {
	if err := t.checkTokens(groups); err != nil {
		return nil, err
	}
	plain, out := make([]batch.Group, len(groups)), make([][][]float32, len(groups))
	for i, g := range groups {
		plain[i], out[i] = g.Group, make([][]float32, len(g.Answers))
	}
	for _, p := range t.spread(plain) {
		logps, err := t.Learner.TokenLogps(p.Packed, weights)
		if err != nil {
			return nil, err
		}
		eachSlot(p, func(slot, _, group, answer, _ int) {
			out[group][answer] = append(out[group][answer], logps[slot])
		})
	}
	return out, nil
}

// Minibatch is one update by the gradient of the objective on groups. It adds to the metrics what the answers'
// log-probs of before the update say (metrics.go). Where no token trains there is no update.
func (t *Trainer) Minibatch(groups []Group) (*train.Minibatch, error) {
	if err := t.check(groups); err != nil {
		return nil, err
	}
	b := newMinibatch(t.Options, groups)
	out := &train.Minibatch{Report: b.report}
	add := func(p batch.GroupMicrobatch, o train.Objective, in []train.Input) {
		out.Microbatches = append(out.Microbatches, train.Microbatch{Packed: p.Packed, Objective: o, Inputs: in,
			Scale: 1, Observe: func(_ float64, outputs [][]float32, _ *train.Metrics) error {
				b.keep(p, outputs[0])
				return nil
			}})
	}
	training, idle := b.training()
	for _, p := range t.spread(training) {
		add(p, b.objective, b.inputs(p))
	}
	for _, p := range t.spread(idle) { // no gradient
		add(p, nil, nil)
	}
	return out, nil
}

// Update makes one update of the optimiser on groups, and returns the gradient's norm before clipping. A norm that is
// not finite leaves the weights as they were; so do groups of which nothing trains, whose norm is 0.
func (t *Trainer) Update(groups []Group, rule train.AdamW, rate float64, m *train.Metrics) (norm float64, err error) {
	b, err := t.Minibatch(groups)
	if err != nil {
		return 0, err
	}
	if learns, err := t.Learner.Pass(b, m); err != nil || !learns {
		return 0, err
	}
	return t.Learner.Update(rule, rate)
}

// Gradient is the gradient of the objective's loss on a minibatch, [weights] in the order of [train.Learner.Flat]: the
// numbers that Update would apply. It adds the same metrics, and leaves the weights as they are.
func (t *Trainer) Gradient(groups []Group, m *train.Metrics) ([]float32, error) {
	b, err := t.Minibatch(groups)
	if err != nil {
		return nil, err
	}
	if _, err := t.Learner.Pass(b, m); err != nil {
		return nil, err
	}
	return t.Learner.TakeGradient()
}

// Scores is Σ weight·∇logp over the answers' tokens, [weights] in the order of [train.Learner.Flat]: one backward pass
// with a given weight for every predicted token, [groups][answers][tokens].
func (t *Trainer) Scores(groups []Group, weights [][][]float32) ([]float32, error) {
	if err := t.checkTokens(groups); err != nil {
		return nil, err
	}
	if !slices.EqualFunc(groups, weights, Group.fits) {
		return nil, fmt.Errorf("the weights have other lengths than the answers: want one for every token")
	}
	plain := make([]batch.Group, len(groups))
	for i, g := range groups {
		plain[i] = g.Group
	}
	for _, p := range t.spread(plain) {
		weight := make([]float32, p.Slots)
		eachSlot(p, func(slot, _, group, answer, token int) { weight[slot] = weights[group][answer][token] })
		in := []train.Input{{Data: weight, Dims: []int{p.Slots}}}
		if _, _, err := t.Learner.Accumulate(p.Packed, weighted{}, in, 1); err != nil {
			return nil, err
		}
	}
	return t.Learner.TakeGradient()
}

// fits says that there is a number for every predicted token.
func (g Group) fits(numbers [][]float32) bool {
	if len(numbers) != len(g.Answers) {
		return false
	}
	for a, row := range numbers {
		if len(row) != g.Predicted(a) {
			return false
		}
	}
	return true
}

// weighted is the sum of the log-probs [slots], each with a weight. Padding slots have weight 0.
type weighted struct{}

func (weighted) Key() string { return "weighted log-probs" }

func (weighted) Loss(lp train.LogProbs, inputs []*graph.Node) (*graph.Node, []*graph.Node) {
	return graph.ReduceAllSum(graph.Mul(inputs[0], lp.Tokens)), nil
}

// check refuses what would be trained on wrongly.
func (t *Trainer) check(groups []Group) error {
	if err := fault.Err("grpo", t.Options.Check()); err != nil {
		return err
	}
	if err := t.checkTokens(groups); err != nil {
		return err
	}
	for i, g := range groups {
		if err := t.checkNumbers(g, groups[0].Old != nil); err != nil {
			return fmt.Errorf("group %d of the minibatch: %w", i, err)
		}
	}
	return nil
}

func (t *Trainer) checkTokens(groups []Group) error {
	vocab := int32(t.Learner.Config().VocabSize)
	for i, g := range groups {
		if len(g.Prompt) == 0 {
			return fmt.Errorf("group %d: the prompt has no tokens: want at least one", i)
		}
		for _, ids := range append([][]int32{g.Prompt}, g.Answers...) {
			if k := slices.IndexFunc(ids, func(id int32) bool { return id < 0 || id >= vocab }); k >= 0 {
				return fmt.Errorf("group %d: token %d: want one below the model's vocabulary size %d", i, ids[k], vocab)
			}
		}
	}
	return nil
}

func (t *Trainer) checkNumbers(g Group, old bool) error {
	n := len(g.Answers)
	if len(g.Advantages) != n || g.Masked != nil && len(g.Masked) != n {
		return fmt.Errorf("%d answers, %d advantages, %d masks: want one for each answer", n, len(g.Advantages),
			len(g.Masked))
	}
	for a, x := range g.Advantages {
		if !float.IsFinite(x) {
			return fmt.Errorf("the advantage of answer %d is %v: want a finite number", a, x)
		}
	}
	if (g.Old != nil) != old {
		return fmt.Errorf("the old policy's log-probs are given for some groups and not for others: want all or none")
	}
	for _, x := range []struct {
		name   string
		logps  [][]float32
		needed bool
	}{{"old", g.Old, old}, {"reference", g.Reference, t.Options.NeedsReference()}, {"sampled", g.Sampled,
		g.Sampled != nil}} {
		if x.needed && !g.fits(x.logps) {
			return fmt.Errorf("the %s log-probs have other lengths than the answers: want one for every token", x.name)
		}
	}
	return nil
}
