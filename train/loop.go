package train

import (
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
	"strings"
	"time"

	"github.com/posttrain/posttrain/data"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/run"
)

// Examples are what a method trains or is evaluated on.
type Examples struct {
	Method  Method
	Groups  []batch.Group
	Sources []string // the place of each example, for messages
	Mix     Mix      // how training draws them
}

// Loop trains on examples in batches. The order of the examples follows from seed, epoch and mix alone.
type Loop struct {
	Course
	Options Options
	Train   Examples
	Eval    *Examples // nil: no evaluation
	Share   bool      // groups share their prompt in one row
	Data    string    // identifies the examples of all rounds, see Enter; "": a hash of Train and Eval

	rows  batch.Layout // see Layout
	round *Round       // nil: the run has no rounds
}

// Run trains to the last step, or until ctx ends. Then it finishes the step, saves a checkpoint, and the error is
// ErrInterrupted.
func (l *Loop) Run(ctx context.Context) error {
	if err := l.check(); err != nil {
		return err
	}
	return l.Follow(ctx, l.plan())
}

// Resume continues from the newest good checkpoint of the folder and returns its warnings, see [Course.Restore].
func (l *Loop) Resume() ([]run.Warning, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	return l.Restore(l.plan())
}

func (l *Loop) plan() Plan {
	p := Plan{Options: l.Options, Total: l.Total(), Examples: len(l.Train.Groups), Data: l.dataHash(), Step: l.step}
	if l.round != nil {
		p.Total = l.round.Last
	}
	if l.Eval != nil {
		p.Evaluate = l.evaluate
	}
	return p
}

func (l *Loop) check() error {
	if len(l.Train.Groups) == 0 && l.Data == "" {
		return errors.New("the training split is empty: there is nothing to learn from")
	}
	if l.Options.BatchSize < 1 {
		return fmt.Errorf("train.batch_size %d: want 1 or more", l.Options.BatchSize)
	}
	if err := l.Train.Mix.Err(len(l.Train.Groups)); err != nil {
		return err
	}
	return l.Options.Err()
}

// Total is the number of updates of the whole run.
func (l *Loop) Total() int {
	if l.round != nil {
		return l.round.Total
	}
	if l.Options.MaxSteps > 0 {
		return l.Options.MaxSteps
	}
	return l.Options.Passes(len(l.Train.Groups))
}

// step is one update: the next batch in pieces, then the optimiser.
func (l *Loop) step(context.Context) error {
	started, examples, metrics := time.Now(), l.next(), NewMetrics()
	tokens, err := l.pass(examples, metrics)
	if err != nil {
		return err
	}
	rate := l.Options.RateAt(l.State.Step, l.Total())
	norm, err := l.Learner.Update(l.Options.Rule(), rate)
	if err != nil {
		return err
	}
	if !finite(norm) {
		return badRows(l.State.Step+1, "the gradient's norm", norm, l.Train, examples)
	}
	metrics.Add("grad_norm", norm, 1)
	metrics.Add("learning_rate", rate, 1)
	return l.Record(metrics, len(examples), float64(tokens), time.Since(started).Seconds())
}

// pass adds up the gradient of the mean loss on some examples, and counts their tokens.
func (l *Loop) pass(examples []int, metrics *Metrics) (tokens int, err error) {
	weight := l.Train.Method.Weight(examples)
	if err := l.prepare(l.Train, examples); err != nil {
		return 0, err
	}
	for _, p := range l.alternate(slices.Collect(pieces(l.Train.Groups, examples, l.Layout()))) {
		if err := l.accumulate(p, 1/weight, metrics); err != nil {
			return 0, err
		}
		tokens += p.Count
	}
	return tokens, nil
}

// Seek goes to a step, counted from 0, and returns the examples of its batch.
func (l *Loop) Seek(step int) (examples []int, err error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	epoch := (len(l.Train.Groups) + l.Options.BatchSize - 1) / l.Options.BatchSize // in steps
	l.State.Step, l.State.Epoch, l.State.Position = step, step/epoch, step%epoch*l.Options.BatchSize
	return l.next(), nil
}

// Gradient is the gradient of the mean loss on examples under the present weights, [weights] in the order of
// [Learner.Flat]: on the examples of the step that the loop is at, the numbers that the step applies. The weights stay.
// The metrics are those of a step.
func (l *Loop) Gradient(examples []int) ([]float32, *Metrics, error) {
	metrics := NewMetrics()
	if _, err := l.pass(examples, metrics); err != nil {
		return nil, nil, err
	}
	g, err := l.Learner.TakeGradient()
	return g, metrics, err
}

// preparer is a method that measures more groups of its own, one for each example, before a step on some examples, or
// before their evaluation.
type preparer interface {
	others() []batch.Group
	prepare(l *Learner, examples []int, layout batch.Layout) error
}

func (l *Loop) prepare(x Examples, examples []int) error {
	if m, ok := x.Method.(preparer); ok {
		return m.prepare(l.Learner, examples, l.Layout())
	}
	return nil
}

// accumulate adds the gradient of one piece of a batch.
func (l *Loop) accumulate(p piece, scale float64, metrics *Metrics) error {
	method := l.Train.Method
	loss, outputs, err := l.Learner.Accumulate(p.Packed, method, method.Inputs(p.examples, p.Packed), scale)
	if err != nil {
		return err
	}
	if !finite(loss) {
		return badRows(l.State.Step+1, "the loss", loss, l.Train, p.examples)
	}
	before := metrics.Sums["loss"]
	if err := l.Train.Method.Observe(p.examples, p.Packed, outputs, metrics); err != nil {
		return err
	}
	if l.State.Step == 0 {
		return l.checkStart(p, outputs, loss, (metrics.Sums["loss"]-before)*scale)
	}
	return nil
}

// checkStart is the self-check of step 0: the method's own, and that the loss which is differentiated in the graph is
// the one which the host computes and logs.
func (l *Loop) checkStart(p piece, outputs [][]float32, graph, host float64) error {
	if c, ok := l.Train.Method.(starter); ok {
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
	CheckStart(examples []int, p *batch.Packed, outputs [][]float32) error
}

// alternate reverses the pieces of every other step: it begins with the program that the step before ended with.
// Changing programs costs time, since on onnx the threads of the one before spin for a while.
func (l *Loop) alternate(p []piece) []piece {
	if l.State.Step%2 == 1 {
		slices.Reverse(p)
	}
	return p
}

// Layout is how examples are laid out, in evaluation as in training, so that their programs have the same shapes. It
// needs a Learner.
func (l *Loop) Layout() batch.Layout {
	if l.rows.Pad == 0 {
		var others [][]batch.Group
		if l.Eval != nil {
			others = append(others, l.Eval.Groups)
		}
		for _, x := range l.sets() {
			if m, ok := x.Method.(preparer); ok {
				others = append(others, m.others())
			}
		}
		l.rows = l.Learner.Layout(l.Train.Groups, l.Share, l.Options.Micro(), others...)
	}
	return l.rows
}

// next lists the examples of the next step. The last batch of an epoch may be smaller.
func (l *Loop) next() []int {
	order := l.Train.Mix.Order(len(l.Train.Groups), l.Seed, l.State.Epoch, l.Options.Shuffle)
	return order[l.State.Position:min(l.State.Position+l.Options.BatchSize, len(order))]
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

// evaluate measures the evaluation split.
func (l *Loop) evaluate(ctx context.Context) (map[string]float64, error) {
	values, err := l.measure(ctx, *l.Eval)
	if value, ok := values[l.Options.EvalMetric]; ok {
		l.Notice("step %d: %s %.4f", l.State.Step, l.Options.EvalMetric, value)
	}
	return values, err
}

// Measure returns the metrics of examples under the present weights, with eval_ before their names.
func (l *Loop) Measure(x Examples) (map[string]float64, error) {
	return l.measure(context.Background(), x)
}

// measure is Measure. It gives ErrInterrupted where the context ends.
func (l *Loop) measure(ctx context.Context, x Examples) (map[string]float64, error) {
	metrics, all := NewMetrics(), Order(len(x.Groups), 0, 0, false)
	if err := l.prepare(x, all); err != nil {
		return nil, err
	}
	for p := range pieces(x.Groups, all, l.Layout()) {
		if ctx.Err() != nil {
			return nil, ErrInterrupted
		}
		sums, err := l.Learner.Sums(p.Packed)
		if err != nil {
			return nil, err
		}
		if err := x.Method.Observe(p.examples, p.Packed, [][]float32{sums}, metrics); err != nil {
			return nil, err
		}
		if loss := metrics.Sums["loss"]; !finite(loss) {
			return nil, badRows(l.State.Step, "the evaluation loss", loss, x, p.examples)
		}
	}
	return metrics.Means("eval_"), nil
}

// badRows says which rows gave a number that is not finite.
func badRows(step int, what string, value float64, in Examples, examples []int) error {
	rows := make([]string, len(examples))
	for i, e := range examples {
		if rows[i] = strconv.Itoa(e + 1); in.Sources != nil {
			rows[i] = in.Sources[e]
		}
	}
	return BadWeights{fmt.Errorf("step %d: %s is %v in the batch of rows %s: lower train.learning_rate, or look at "+
		"these rows",
		step, what, value, places(rows))}
}

// places lists rows, the file only where it changes: pairs.jsonl:3, 8, 12.
func places(rows []string) string {
	last := ""
	for i, row := range rows {
		n := strings.LastIndex(row, ":") + 1
		if file := row[:n]; file == last && file != "" {
			rows[i] = strings.TrimSpace(row[n:])
		} else {
			last = file
		}
	}
	return strings.Join(rows, ", ")
}

// dataHash identifies the token ids of all examples, the reward gaps or margins of pairs, and what kto has beside them.
func (l *Loop) dataHash() string {
	if l.Data != "" {
		return l.Data
	}
	h := sha256.New()
	if m := l.Train.Mix; m.On() {
		fmt.Fprintln(h, m)
	}
	for _, x := range l.sets() {
		hashGroups(h, x.Groups)
		switch m := x.Method.(type) {
		case *Preference:
			fmt.Fprintln(h, m.Gaps)
		case *KTO:
			fmt.Fprintln(h, m.Desirable)
			hashGroups(h, m.Mismatched)
		case *Reward:
			fmt.Fprintln(h, m.Margins)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// sets are the training examples, and those of the evaluation.
func (l *Loop) sets() []Examples {
	if l.Eval == nil {
		return []Examples{l.Train}
	}
	return []Examples{l.Train, *l.Eval}
}

// piece is a share of some examples that goes through the model at once.
type piece struct {
	examples []int
	*batch.Packed
}

// window is how many examples are sorted by their length together: enough to fill rows well, few enough to be held
// packed.
const window = 4096

// pieces cuts examples of a set into what goes through the model at once. Together they have the gradient of the whole.
func pieces(groups []batch.Group, examples []int, layout batch.Layout) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		for part := range slices.Chunk(examples, window) {
			for _, p := range batch.Split(data.Pick(groups, part), layout) {
				if !yield(piece{data.Pick(part, p.Members), p.Packed}) {
					return
				}
			}
		}
	}
}
