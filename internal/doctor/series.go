package doctor

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// point is a metric at a step; series are its points by step, without what is not finite, or hardly.
type point struct {
	step  int
	value float64
}

type series []point

// of is a metric's series.
func (l *Log) of(metric string) (s series) {
	for _, r := range l.Records {
		if v, ok := r.Values[metric]; ok && math.Abs(v) < 1e150 { // squares are finite too
			s = append(s, point{r.Step, v})
		}
	}
	slices.SortStableFunc(s, func(a, b point) int { return a.step - b.step })
	return s
}

func (s series) values() []float64 {
	v := make([]float64, len(s))
	for i, p := range s {
		v[i] = p.value
	}
	return v
}

func byValue(a, b point) int { return cmp.Compare(a.value, b.value) }

// change is how a metric went from the beginning of a run to its end. noise is the standard error of the difference, 0
// for values of the same held-out examples.
type change struct {
	Evidence
	noise float64
}

// Least numbers of values that a change is measured from.
const leastHeld, leastBatches, leastWindow = 2, 10, 5

// change is the change over the held-out examples where there are some, else over the batches; false with too few.
func (l *Log) change(metric string) (change, bool) {
	if held := l.of("eval_" + metric); len(held) >= leastHeld {
		first, last := held[0], held[len(held)-1]
		return change{Evidence: Evidence{"eval_" + metric, first.step, first.value, last.step, last.value,
			"held-out examples"}}, true
	}
	return l.batches(metric)
}

// batches is the change over the batches.
func (l *Log) batches(metric string) (change, bool) {
	all := l.of(metric)
	if len(all) < leastBatches {
		return change{}, false
	}
	n := all.window()
	return all.between(metric, all[:n]), true
}

// fromBest is the change over the batches from the best time of the run, when the metric was largest.
func (l *Log) fromBest(metric string) (c change, ok bool) {
	all := l.of(metric)
	if len(all) < leastBatches {
		return c, false
	}
	n := all.window()
	for k := 0; k+2*n <= len(all); k += n {
		if d := all.between(metric, all[k:k+n]); k == 0 || d.From > c.From {
			c = d
		}
	}
	return c, true
}

// window is the number of values that a mean is of.
func (s series) window() int { return max(leastWindow, len(s)/10) }

// between is the change from some values to the last ones.
func (s series) between(metric string, first series) change {
	n := len(first)
	last := s[len(s)-n:]
	a, sa := stat.MeanStdDev(first.values(), nil)
	b, sb := stat.MeanStdDev(last.values(), nil)
	return change{Evidence{metric, first[n-1].step, a, last[n-1].step, b, "means of the values up to there"},
		math.Sqrt((sa*sa + sb*sb) / float64(n))}
}

// rise is how much more the end is than the beginning; 0 where it may be chance.
func (c change) rise() float64 {
	if d := c.To - c.From; math.Abs(d) > 3*c.noise {
		return d
	}
	return 0
}

// together is the correlation of the steps of two metrics from one record to the next; 0 with fewer than 20.
func (l *Log) together(a, b string) (r float64, n int) {
	var da, db []float64
	var last [2]float64
	seen := false
	for _, record := range l.Records {
		x, okA := record.Values[a]
		y, okB := record.Values[b]
		if !okA || !okB || !(math.Abs(x+y) < 1e150) {
			continue
		}
		if seen {
			da, db = append(da, x-last[0]), append(db, y-last[1])
		}
		last, seen = [2]float64{x, y}, true
	}
	if len(da) < 20 {
		return 0, len(da)
	}
	if r = stat.Correlation(da, db, nil); math.IsNaN(r) { // one of them never moves
		r = 0
	}
	return r, len(da)
}
