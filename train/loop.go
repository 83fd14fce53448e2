package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/run"
)

// ErrInterrupted says that the loop stopped early because its context ended: the step was finished and saved.
var ErrInterrupted = errors.New("interrupted")

// Examples are what a method trains or is evaluated on.
type Examples struct {
	Method  Method
	Groups  []batch.Group
	Sources []string // where each example stands, for messages
}

// Loop trains: batches, steps, evaluations, checkpoints. All it needs to go on bit for bit after an interruption is in
// its checkpoints; the order of the examples follows from seed and epoch alone.
type Loop struct {
	Options    Options
	Learner    *Learner
	Train      Examples
	Eval       *Examples // nil: no evaluation
	Share      bool      // groups share their prompt in one row
	Folder     *run.Folder
	Export     Exporter
	Seed       uint64
	ConfigHash string
	OnStep     func(step, total int, values map[string]float64) // after every step; nil: nobody watches
	OnNotice   func(line string)                                // evaluations, in words; nil: nobody reads

	layout  batch.Layout // see fitted
	state   run.State
	window  *Metrics  // since the last metrics line
	tokens  float64   // fed since the run began
	started time.Time // of the running step
}

// Run trains to the last step, or to the step during which ctx ends, and saves a checkpoint there. The error is
// ErrInterrupted in the second case.
func (l *Loop) Run(ctx context.Context) error {
	if l.window == nil {
		l.window, l.state.Seed = NewMetrics(), l.Seed
	}
	if err := l.baseline(); err != nil {
		return err
	}
	total := l.Total()
	for l.state.Step < total {
		if err := l.step(); err != nil {
			return l.explain(err)
		}
		last := l.state.Step == total
		stopped, err := l.after(ctx, last)
		if err != nil {
			return err
		}
		if stopped && !last {
			return ErrInterrupted
		}
	}
	return nil
}

// Step is the number of updates done.
func (l *Loop) Step() int { return l.state.Step }

// Total is the number of updates of the whole run.
func (l *Loop) Total() int {
	if l.Options.MaxSteps > 0 {
		return l.Options.MaxSteps
	}
	return l.Options.Epochs * l.perEpoch()
}

func (l *Loop) perEpoch() int {
	return (len(l.Train.Groups) + l.Options.BatchSize - 1) / l.Options.BatchSize
}

// step is one update: the next batch in pieces, then the optimiser.
func (l *Loop) step() error {
	l.started = time.Now()
	examples := l.next()
	metrics, tokens := NewMetrics(), 0
	weight := l.Train.Method.Weight(examples)
	for _, p := range l.turned(slices.Collect(pieces(l.Train.Groups, examples, l.fitted()))) {
		if err := l.accumulate(p, 1/weight, metrics); err != nil {
			return err
		}
		tokens += p.Count
	}
	rate := l.Options.RateAt(l.state.Step, l.Total())
	norm, err := l.Learner.Update(l.Options.Rule(), rate)
	if err != nil {
		return err
	}
	if !finite(norm) {
		return l.broken(l.state.Step+1, "the gradient's norm", norm, l.Train, examples)
	}
	l.advance(len(examples))
	l.record(metrics, norm, rate, tokens)
	return nil
}

// accumulate adds the gradient of one piece of a batch.
func (l *Loop) accumulate(p piece, scale float64, metrics *Metrics) error {
	loss, outputs, err := l.Learner.Accumulate(p.Packed, l.Train.Method, l.Train.Method.Inputs(p.examples, p.Packed), scale)
	if err != nil {
		return err
	}
	if !finite(loss) {
		return l.broken(l.state.Step+1, "the loss", loss, l.Train, p.examples)
	}
	before := metrics.Sums["loss"]
	if err := l.Train.Method.Observe(p.examples, p.Packed, outputs, metrics); err != nil {
		return err
	}
	if l.state.Step == 0 {
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
		return fmt.Errorf("step 0: the engine's loss is %v, the same computed on the host from its log-probs %v: the engine computes the loss wrongly; try another --backend, and please report it", graph, host)
	}
	return nil
}

// startTolerance allows for float32 sums in another order.
const startTolerance = 1e-3

// starter is a method with a self-check of step 0.
type starter interface {
	CheckStart(examples []int, p *batch.Packed, outputs [][]float32) error
}

// turned turns the pieces of every other step around: it begins with the program that the step before ended with. Changing
// programs costs time, since on onnx the threads of the one before spin for a while.
func (l *Loop) turned(p []piece) []piece {
	if l.state.Step%2 == 1 {
		slices.Reverse(p)
	}
	return p
}

// fitted is how examples are laid out, the evaluation's as the training's, so that their programs have the same shapes.
func (l *Loop) fitted() batch.Layout {
	if l.layout.Pad == 0 {
		l.layout = l.Learner.Layout(l.Train.Groups, l.Share, l.micro())
	}
	return l.layout
}

func (l *Loop) micro() int {
	if l.Options.MicroBatchSize > 0 {
		return min(l.Options.MicroBatchSize, l.Options.BatchSize)
	}
	return l.Options.BatchSize
}

// next lists the examples of the next step. The last batch of an epoch may be smaller.
func (l *Loop) next() []int {
	order := Order(len(l.Train.Groups), l.Seed, l.state.Epoch, l.Options.Shuffle)
	return order[l.state.Position:min(l.state.Position+l.Options.BatchSize, len(order))]
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

func (l *Loop) advance(examples int) {
	l.state.Step++
	l.state.Position += examples
	if l.state.Position >= len(l.Train.Groups) {
		l.state.Epoch, l.state.Position = l.state.Epoch+1, 0
	}
}

func (l *Loop) epoch() float64 {
	return float64(l.state.Epoch) + float64(l.state.Position)/float64(len(l.Train.Groups))
}

// record adds a step's figures to the window of the next metrics line.
func (l *Loop) record(metrics *Metrics, norm, rate float64, tokens int) {
	l.window.Join(metrics)
	seconds := time.Since(l.started).Seconds()
	l.tokens += float64(tokens)
	l.window.Add("grad_norm", norm, 1)
	l.window.Add("learning_rate", rate, 1)
	l.window.Add("step_time", seconds, 1)
	l.window.Add("tokens_per_second", float64(tokens)/seconds, seconds)
	if l.OnStep != nil {
		values := metrics.Means("")
		values["tokens_per_second"] = float64(tokens) / seconds
		l.OnStep(l.state.Step, l.Total(), values)
	}
}

// after does what is due behind a step: a metrics line, an evaluation, a checkpoint. It tells whether the context had
// ended when it decided to save, so that "stopped" always means "saved".
func (l *Loop) after(ctx context.Context, last bool) (stopped bool, err error) {
	step := l.state.Step
	if due(step, l.Options.LogEvery) || last {
		if err := l.log(); err != nil {
			return false, err
		}
	}
	best := false
	if l.Eval != nil && (due(step, l.Options.EvalEvery) || last) {
		if best, err = l.evaluate(); err != nil {
			return false, err
		}
	}
	stopped = ctx.Err() != nil
	if best || last || stopped || due(step, l.Options.CheckpointEvery) {
		return stopped, l.save(best)
	}
	return stopped, nil
}

func due(step, every int) bool { return every > 0 && step%every == 0 }

func (l *Loop) log() error {
	values := l.window.Means("")
	values["num_tokens"] = l.tokens
	l.window = NewMetrics()
	return l.Folder.Log(run.Record{Step: l.state.Step, Epoch: l.epoch(), Values: values})
}

// baseline logs what the evaluation split is like before the first step.
func (l *Loop) baseline() error {
	if l.Eval == nil || l.state.Step > 0 {
		return nil
	}
	values, err := l.Measure(*l.Eval)
	if err != nil {
		return l.explain(err)
	}
	return l.Folder.Log(run.Record{Values: values})
}

// evaluate measures the evaluation split and tells whether its metric is the best so far.
func (l *Loop) evaluate() (best bool, err error) {
	values, err := l.Measure(*l.Eval)
	if err != nil {
		return false, l.explain(err)
	}
	if err := l.Folder.Log(run.Record{Step: l.state.Step, Epoch: l.epoch(), Values: values}); err != nil {
		return false, err
	}
	name := l.Options.EvalMetric
	value, ok := values[name]
	if !ok {
		return false, fmt.Errorf("train.eval_metric %q is not measured: want one of %s", name, strings.Join(names(values), ", "))
	}
	l.notice("step %d: %s %.4f", l.state.Step, name, value)
	if !finite(value) || l.state.Best != nil && !better(name, value, l.state.Best.Value) {
		return false, nil
	}
	l.state.Best = &run.Best{Step: l.state.Step, Metric: name, Value: value}
	return true, nil
}

// better: a loss wants to be small, everything else that may name the best checkpoint large.
func better(name string, value, than float64) bool {
	if strings.HasSuffix(name, "loss") {
		return value < than
	}
	return value > than
}

// Measure returns the metrics of examples under the present weights, with eval_ before their names.
func (l *Loop) Measure(x Examples) (map[string]float64, error) {
	metrics := NewMetrics()
	for p := range pieces(x.Groups, Order(len(x.Groups), 0, 0, false), l.fitted()) {
		sums, err := l.Learner.Sums(p.Packed)
		if err != nil {
			return nil, err
		}
		if err := x.Method.Observe(p.examples, p.Packed, [][]float32{sums}, metrics); err != nil {
			return nil, err
		}
		if loss := metrics.Sums["loss"]; !finite(loss) {
			return nil, l.broken(l.state.Step, "the evaluation loss", loss, x, p.examples)
		}
	}
	return metrics.Means("eval_"), nil
}

// notFinite is the error of a step or an evaluation that met NaN or infinity.
type notFinite struct{ error }

// broken says which rows made a number that is not finite. Nothing is saved after it.
func (l *Loop) broken(step int, what string, value float64, in Examples, examples []int) error {
	rows := make([]string, len(examples))
	for i, e := range examples {
		rows[i] = in.Sources[e]
	}
	return notFinite{fmt.Errorf("step %d: %s is %v in the batch of rows %s: lower train.learning_rate, or look at these rows",
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

// explain adds which checkpoint a failed run can go on from. After a NaN, the checkpoint of the present step holds the
// very weights that gave it: a good one is of an earlier step.
func (l *Loop) explain(err error) error {
	before := l.state.Step + 1
	if errors.As(err, new(notFinite)) {
		before--
	}
	return WithCheckpoint(l.Folder, before, err)
}

func (l *Loop) notice(format string, args ...any) {
	if l.OnNotice != nil {
		l.OnNotice(fmt.Sprintf(format, args...))
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
