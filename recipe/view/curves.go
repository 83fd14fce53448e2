package view

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/posttrain/posttrain/internal/run"
)

// axes are what curves are drawn over, beside steps: passes over the data, seconds, tokens and samples of training, all
// since the start of the run. A federated run has the seconds of its virtual clock.
var axes = []string{"epoch", "time", "tokens", "samples"}

// table are the records of a run by metrics.
type table struct {
	steps   []int
	axes    map[string][]float64 // of each record; an axis that no record has is not there
	metrics map[string]*column

	last map[string]float64 // of each axis
	step int                // of the last record with a time
}

// column are the values of a metric with the records that have them.
type column struct {
	at     []int
	values []float64
}

func newTable() *table {
	return &table{axes: map[string][]float64{}, metrics: map[string]*column{}, last: map[string]float64{}}
}

func (t *table) add(r run.Record) {
	for name, x := range t.along(r) {
		if _, ok := t.axes[name]; !ok {
			t.axes[name] = make([]float64, len(t.steps)) // 0 before it is measured, as at the start
		}
		if x > t.last[name] {
			t.last[name] = x
		}
	}
	for name := range t.axes {
		t.axes[name] = append(t.axes[name], t.last[name])
	}
	for name, v := range r.Values {
		c := t.metrics[name]
		if c == nil {
			c = &column{}
			t.metrics[name] = c
		}
		c.at, c.values = append(c.at, len(t.steps)), append(c.values, v)
	}
	t.steps = append(t.steps, r.Step)
}

// along are the places of a record on the axes that it has.
func (t *table) along(r run.Record) map[string]float64 {
	places := map[string]float64{}
	put := func(name string, v float64, ok bool) {
		if ok && drawable(v) {
			places[name] = v
		}
	}
	put("epoch", r.Epoch, r.Epoch > 0)
	if v, ok := r.Values["epoch"]; ok { // of other programs
		put("epoch", v, true)
	}
	for name, metric := range map[string]string{"tokens": "num_tokens", "samples": "samples", "time": "time"} {
		v, ok := r.Values[metric]
		put(name, v, ok)
	}
	step, timed := r.Values["step_time"] // the mean of the steps since the record before
	runtime, measured := r.Values["eval_runtime"]
	if timed {
		step, t.step = step*float64(r.Step-t.step), r.Step
	}
	if _, clock := places["time"]; !clock {
		put("time", t.last["time"]+step+runtime, timed || measured)
	}
	return places
}

// drawable says that a number is finite, and not as large as in a run that explodes.
func drawable(v float64) bool { return math.Abs(v) <= 1e30 }

// number is a float in JSON, null where it is not finite, in the seven digits that a picture can show.
type number float64

// MarshalJSON writes it.
func (n number) MarshalJSON() ([]byte, error) {
	if !drawable(float64(n)) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', 7, 64), nil
}

func numbers(values []float64) []number {
	out := make([]number, len(values))
	for i, v := range values {
		out[i] = number(v)
	}
	return out
}

// weights are those of the past in the smooth lines.
var weights = []float64{0.6, 0.9, 0.97}

// curve is a metric of a run. Its lists have one entry for each point that is kept.
type curve struct {
	Run      int                 `json:"run"`
	Steps    []int               `json:"steps"`
	Axes     map[string][]number `json:"axes"`
	Values   []number            `json:"values"` // null where the value is not finite
	Smooth   [][]number          `json:"smooth"` // one list for each of weights
	Last     *mark               `json:"last"`   // of the finite values; nil without one
	Least    *mark               `json:"least"`
	Greatest *mark               `json:"greatest"`
	Lost     int                 `json:"lost"`      // values that are not finite
	LostStep int                 `json:"lost_step"` // the first of them
}

// mark is a value at a step.
type mark struct {
	Step  int    `json:"step"`
	Value number `json:"value"`
}

// curve is a metric, thinned to about that number of points; nil: it was not measured.
func (t *table) curve(metric string, points int) *curve {
	c := t.metrics[metric]
	if c == nil {
		return nil
	}
	out := &curve{Axes: map[string][]number{}}
	t.measure(out, c)
	kept := thin(c.values, points)
	of := func(values []float64) []number { return numbers(pick(values, kept)) }
	out.Values = of(c.values)
	for _, w := range weights {
		out.Smooth = append(out.Smooth, of(smooth(c.values, w)))
	}
	records := pick(c.at, kept)
	out.Steps = pick(t.steps, records)
	for name, places := range t.axes {
		out.Axes[name] = numbers(pick(places, records))
	}
	return out
}

// measure finds the last, the least and the greatest value, and those that are lost.
func (t *table) measure(out *curve, c *column) {
	for i, v := range c.values {
		m := &mark{t.steps[c.at[i]], number(v)}
		if !drawable(v) {
			if out.Lost++; out.Lost == 1 {
				out.LostStep = m.Step
			}
			continue
		}
		if out.Last = m; out.Least == nil || m.Value < out.Least.Value {
			out.Least = m
		}
		if out.Greatest == nil || m.Value > out.Greatest.Value {
			out.Greatest = m
		}
	}
}

func pick[T any](from []T, places []int) []T {
	out := make([]T, len(places))
	for i, p := range places {
		out[i] = from[p]
	}
	return out
}

// thin chooses points: all where there are no more than most, else of each of most/4 parts the first, the least, the
// greatest and the last, and the first that is not finite.
func thin(values []float64, most int) (kept []int) {
	n := len(values)
	if n <= most {
		most = 4 * n // parts of one point
	}
	parts := most / 4
	for p := range parts {
		kept = append(kept, corners(values, p*n/parts, (p+1)*n/parts)...)
	}
	return kept
}

// corners are the points that thin keeps of values[from:to], in their order.
func corners(values []float64, from, to int) []int {
	if from == to {
		return nil
	}
	kept, least, greatest, lost := []int{from, to - 1}, -1, -1, -1
	for i := from; i < to; i++ {
		switch v := values[i]; {
		case !drawable(v):
			if lost < 0 {
				lost = i
			}
			continue
		case least < 0:
			least, greatest = i, i
		case v < values[least]:
			least = i
		case v > values[greatest]:
			greatest = i
		}
	}
	for _, i := range []int{least, greatest, lost} {
		if i >= 0 {
			kept = append(kept, i)
		}
	}
	slices.Sort(kept)
	return slices.Compact(kept)
}

// smooth is the exponential moving average of the finite values, corrected for its start at 0 as in TensorBoard.
func smooth(values []float64, past float64) []float64 {
	out, mean, weight := make([]float64, len(values)), 0.0, 0.0
	for i, v := range values {
		if !drawable(v) {
			out[i] = math.NaN()
			continue
		}
		mean, weight = past*mean+(1-past)*v, past*weight+(1-past)
		out[i] = mean / weight
	}
	return out
}

// names are the metrics in alphabetical order.
func (t *table) names() []string {
	return append([]string{}, slices.Sorted(maps.Keys(t.metrics))...) // never nil
}

// first are the metrics to draw at first: those of the run's picture, else some that federated runs have, else any.
func (t *table) first() []string {
	chosen := []string{}
	all := run.Record{Values: map[string]float64{}}
	for _, name := range t.names() {
		all.Values[name] = 0
	}
	for _, p := range run.PanelsOf([]run.Record{all}) {
		for _, l := range p.Lines {
			chosen = append(chosen, l.Name)
		}
	}
	for _, name := range []string{"return", "accuracy", "norm"} {
		if t.metrics[name] != nil && len(chosen) < 2 {
			chosen = append(chosen, name)
		}
	}
	if len(chosen) == 0 {
		chosen = t.names()[:min(2, len(t.metrics))]
	}
	return chosen
}
