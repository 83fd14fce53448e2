package train

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/float"
)

// Group is a prompt with its answers, as token ids.
type Group = batch.Group

// Example is an encoded prompt with what a method needs beside it.
type Example struct {
	Group                 // of pairs the chosen answer first; one answer of a demonstration, or of kto
	Gap        float64    // of pairs: the prior's reward gap Δr; of a reward model: the margin
	Scored     bool       // the pair has a gap
	Desirable  bool       // of kto
	Mismatched []int32    // of kto: the answer to another prompt, see [Mismatch]
	Reference  [2]float32 // summed log-probs of both answers under the reference; of kto, of answer and Mismatched
	Source     string     // its place in a file, for messages
	Class      string     // by which examples are dealt to agents
}

// place names the i-th example of a batch.
func (x Example) place(i int) string { return cmp.Or(x.Source, strconv.Itoa(i+1)) }

// Groups are the prompts and answers of examples.
func Groups(examples []Example) []Group {
	groups := make([]Group, len(examples))
	for i, x := range examples {
		groups[i] = x.Group
	}
	return groups
}

// Dataset is the source of a trainer that learns from examples in batches. Their order follows from seed and epoch
// alone.
type Dataset struct {
	Method   Method
	Examples []Example
	Held     []Example // nil: no evaluation
	Share    bool      // answers share their prompt in one row

	// Of a part of a run, which has other examples before or after it.
	Steps int    // of the whole run; 0: as the options say
	ID    string // identifies the examples of all parts; "": a hash of Train and Eval

	t    *Trainer
	rows batch.Layout // see Layout
}

// Start implements [Source].
func (d *Dataset) Start(t *Trainer) error {
	d.t = t
	if len(d.Examples) == 0 && d.ID == "" {
		return errors.New("the training split is empty: there is nothing to learn from")
	}
	if t.Options.BatchSize < 1 {
		return fmt.Errorf("train.batch_size %d: want 1 or more", t.Options.BatchSize)
	}
	return t.Options.Err()
}

// Size implements [Source].
func (d *Dataset) Size() int { return len(d.Examples) }

// Total implements [Source].
func (d *Dataset) Total() int {
	return cmp.Or(d.Steps, d.t.Options.MaxSteps, d.t.Options.Passes(len(d.Examples)))
}

// Passes is how many steps the epochs take over n examples.
func (o Options) Passes(n int) int { return o.Epochs * ((n + o.BatchSize - 1) / o.BatchSize) }

// Evaluation implements [Source].
func (d *Dataset) Evaluation() (every int, metric string) {
	if d.Held == nil {
		return 0, ""
	}
	return d.t.Options.EvalEvery, d.t.Options.EvalMetric
}

// Hash identifies the token ids of all examples, and what losses have beside them.
func (d *Dataset) Hash() string {
	if d.ID != "" {
		return d.ID
	}
	h := sha256.New()
	for _, set := range [][]Example{d.Examples, d.Held} {
		hashGroups(h, Groups(set))
		for _, x := range set {
			fmt.Fprintln(h, x.Gap, x.Scored, x.Desirable, x.Mismatched)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Next implements [Source]: the next batch is a minibatch.
func (d *Dataset) Next(_ context.Context, _ *Metrics) (*Step, error) {
	indices := d.nextIndices()
	b, err := d.Minibatch(indices)
	if err != nil {
		return nil, err
	}
	s := &Step{Minibatches: []*Minibatch{b}, Examples: len(indices)}
	for _, p := range b.Microbatches {
		s.Tokens += float64(p.Count)
	}
	return s, nil
}

// nextIndices lists the examples of the next step. The last batch of an epoch may be smaller.
func (d *Dataset) nextIndices() []int {
	s, o := d.t.State, d.t.Options
	order := Order(len(d.Examples), d.t.Seed, s.Epoch, o.Shuffle)
	return order[s.Position:min(s.Position+o.BatchSize, len(order))]
}

// Seek goes to a step, counted from 0, and returns the examples of its batch.
func (d *Dataset) Seek(step int) []int {
	epoch, s := (len(d.Examples)+d.t.Options.BatchSize-1)/d.t.Options.BatchSize, &d.t.State // an epoch in steps
	s.Step, s.Epoch, s.Position = step, step/epoch, step%epoch*d.t.Options.BatchSize
	return d.nextIndices()
}

// Minibatch is an update by the mean loss on some of the training examples.
func (d *Dataset) Minibatch(indices []int) (*Minibatch, error) {
	examples := data.Pick(d.Examples, indices)
	if err := d.prepare(examples); err != nil {
		return nil, err
	}
	scale := 1 / d.Method.Weight(examples)
	b := &Minibatch{Blame: func(norm float64) error {
		return d.badRows(d.t.State.Step+1, "the gradient's norm", norm, examples)
	}}
	for p := range split(examples, d.Layout()) {
		b.Microbatches = append(b.Microbatches, Microbatch{Packed: p.Packed, Objective: d.Method, Scale: scale,
			Inputs: d.Method.Inputs(p.examples, p.Packed),
			Observe: func(loss float64, outputs [][]float32, m *Metrics) error {
				return d.observe(p, scale, loss, outputs, m)
			}})
	}
	if d.t.State.Step%2 == 1 {
		// It begins with the program that the step before ended with. Changing programs costs time, since on onnx the
		// threads of the one before spin for a while.
		slices.Reverse(b.Microbatches)
	}
	return b, nil
}

// preparer is a method that measures more groups of its own, one for each example, before a step on some examples, or
// before their evaluation.
type preparer interface {
	others(examples []Example) []Group
	prepare(l *Learner, examples []Example, layout batch.Layout) error
}

func (d *Dataset) prepare(examples []Example) error {
	if m, ok := d.Method.(preparer); ok {
		return m.prepare(d.t.Learner, examples, d.Layout())
	}
	return nil
}

// observe adds what a microbatch says to the metrics. Before the first update it is held to what must be so.
func (d *Dataset) observe(p microbatch, scale, loss float64, outputs [][]float32, m *Metrics) error {
	if !float.IsFinite(loss) {
		return d.badRows(d.t.State.Step+1, "the loss", loss, p.examples)
	}
	before := m.Sums["loss"]
	if err := d.count(p, outputs, m, d.t.State.Step+1, "the loss"); err != nil {
		return err
	}
	if d.t.State.Step == 0 {
		return d.checkStart(p, outputs, loss, (m.Sums["loss"]-before)*scale)
	}
	return nil
}

// count adds a microbatch's outputs, the answers' log-probs or scores first, to the metrics. They must be finite, since
// a loss may have a limit at infinity.
func (d *Dataset) count(p microbatch, outputs [][]float32, m *Metrics, step int, what string) error {
	if err := d.Method.Observe(p.examples, p.Packed, outputs, m); err != nil {
		return err
	}
	if loss := m.Sums["loss"]; !float.IsFinite(loss) {
		return d.badRows(step, what, loss, p.examples)
	}
	for _, x := range outputs[0] {
		if !float.IsFinite(float64(x)) {
			return d.badRows(step, "what the model gives for an answer", float64(x), p.examples)
		}
	}
	return nil
}

// checkStart is the self-check of step 0: the method's own, and that the loss which is differentiated in the graph is
// the one which the host computes and logs.
func (d *Dataset) checkStart(p microbatch, outputs [][]float32, graph, host float64) error {
	if c, ok := d.Method.(starter); ok {
		if err := c.CheckStart(p.examples, p.Packed, outputs); err != nil {
			return err
		}
	}
	if math.Abs(graph-host) > startTolerance*(1+math.Abs(host)) {
		return fmt.Errorf("step 0: the engine's loss is %v, the same computed on the host from its log-probs %v: "+
			"the engine computes the loss wrongly; try another --backend, and please report it", graph, host)
	}
	return nil
}

// startTolerance allows for float32 sums in another order.
const startTolerance = 1e-3

// starter is a method with a self-check of step 0.
type starter interface {
	CheckStart(examples []Example, p *batch.Packed, outputs [][]float32) error
}

// checkReference wants the summed log-probs of the first answers of each example to equal the reference's, but for a
// tolerance relative to 1 + |logp|; 0: the reference is another model.
func checkReference(examples []Example, sums []float32, answers int, tolerance float64) error {
	for i, x := range examples {
		for a := range answers {
			policy, reference := float64(sums[answers*i+a]), float64(x.Reference[a])
			if tolerance != 0 && !(math.Abs(policy-reference) <= tolerance*(1+math.Abs(reference))) {
				return fmt.Errorf("step 0: before any update policy and reference must agree, but log p of %s is "+
					"%.4f under the policy and %.4f under the reference: the reference is not the model that training "+
					"starts from, or its cached log-probabilities are stale (other weights, data or limits)", x.place(i),
					policy, reference)
			}
		}
	}
	return nil
}

// Layout is how examples are laid out, in evaluation as in training, so that their programs have the same shapes. It
// comes after Start.
func (d *Dataset) Layout() batch.Layout {
	if d.rows.Pad == 0 {
		others := []Group(nil)
		if m, ok := d.Method.(preparer); ok {
			others = slices.Concat(m.others(d.Examples), m.others(d.Held))
		}
		d.rows = d.t.Learner.Layout(Groups(d.Examples), d.Share, d.t.Options.Micro(), Groups(d.Held), others)
	}
	return d.rows
}

// Order is the order of n examples in an epoch: by the seed and the epoch, or as they stand.
func Order(n int, seed uint64, epoch int, shuffle bool) []int {
	if shuffle {
		return rand.New(rand.NewPCG(seed, uint64(epoch))).Perm(n)
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// Evaluate implements [Source].
func (d *Dataset) Evaluate(ctx context.Context) (map[string]float64, error) {
	values, err := d.Measure(ctx, d.Held)
	if metric := d.t.Options.EvalMetric; err == nil {
		if value, ok := values[metric]; ok {
			d.t.Notice("step %d: %s %.4f", d.t.State.Step, metric, value)
		}
	}
	return values, err
}

// Measure returns the metrics of examples under the present weights, with eval_ before their names. It gives
// ErrInterrupted where the context ends.
func (d *Dataset) Measure(ctx context.Context, examples []Example) (map[string]float64, error) {
	metrics := NewMetrics()
	if err := d.prepare(examples); err != nil {
		return nil, err
	}
	for p := range split(examples, d.Layout()) {
		if ctx.Err() != nil {
			return nil, ErrInterrupted
		}
		sums, err := d.t.Learner.Sums(p.Packed)
		if err != nil {
			return nil, err
		}
		err = d.count(p, [][]float32{sums}, metrics, d.t.State.Step, "the evaluation loss")
		if err != nil {
			return nil, err
		}
	}
	return metrics.Means("eval_"), nil
}

// badRows says which rows gave a number that is not finite.
func (d *Dataset) badRows(step int, what string, value float64, examples []Example) error {
	rows := make([]string, len(examples))
	for i, x := range examples {
		rows[i] = x.place(i)
	}
	advice := "lower train.learning_rate, or look at these rows"
	if d.t.State.Step == 0 {
		advice = "no step has been made: look at the model's weights and at these rows"
	}
	return BadWeights{fmt.Errorf("step %d: %s is %v in the batch of rows %s: %s", step, what, value, data.Places(rows),
		advice)}
}

// microbatch is examples that go through the model at once, as they are laid out.
type microbatch struct {
	examples []Example
	*batch.Packed
}

// window is how many examples are sorted by their length together: enough to fill rows well, few enough to be held
// packed.
const window = 4096

// split cuts examples into microbatches.
func split(examples []Example, layout batch.Layout) iter.Seq[microbatch] {
	return func(yield func(microbatch) bool) {
		for members, p := range splitGroups(Groups(examples), layout) {
			if !yield(microbatch{data.Pick(examples, members), p}) {
				return
			}
		}
	}
}

// splitGroups cuts groups into microbatches: the members of each, and how they are laid out.
func splitGroups(groups []Group, layout batch.Layout) iter.Seq2[[]int, *batch.Packed] {
	return func(yield func([]int, *batch.Packed) bool) {
		for from := 0; from < len(groups); from += window {
			for _, p := range batch.Split(groups[from:min(from+window, len(groups))], layout) {
				members := slices.Clone(p.Members)
				for i := range members {
					members[i] += from
				}
				if !yield(members, p.Packed) {
					return
				}
			}
		}
	}
}
