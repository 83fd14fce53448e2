package eval

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

// Mean is the mean of a number over cases that come in clusters, as for a Rate. The zero value is ready for use.
type Mean struct{ items map[int]sum }

type sum struct {
	total float64
	n     int
}

// Add counts one more case of an item.
func (m *Mean) Add(item int, x float64) {
	if m.items == nil {
		m.items = map[int]sum{}
	}
	s := m.items[item]
	m.items[item] = sum{s.total + x, s.n + 1}
}

// Value is the mean over all cases, NaN of none.
func (m Mean) Value() float64 { return meanOfSums(m.sums()) }

// sums has the sum of each item, in the order of the items.
func (m Mean) sums() []sum {
	var all []sum
	for _, item := range slices.Sorted(maps.Keys(m.items)) {
		all = append(all, m.items[item])
	}
	return all
}

func meanOfSums(sums []sum) float64 {
	total, n := 0.0, 0
	for _, s := range sums {
		total += s.total
		n += s.n
	}
	return total / float64(n)
}

// Resamples and seed of the bootstrap: the same cases give the same interval.
const (
	resamples = 2000
	bootSeed  = 0x626f6f74
)

// Interval is the 95 % percentile bootstrap interval (Efron 1979) of the mean: items are drawn again, with all of their
// cases, 2000 times. NaN of fewer than two items.
func (m Mean) Interval() (low, high float64) {
	sums := m.sums()
	if len(sums) < 2 {
		return math.NaN(), math.NaN()
	}
	rng := rand.New(rand.NewPCG(bootSeed, uint64(len(sums))))
	means, drawn := make([]float64, resamples), make([]sum, len(sums))
	for i := range means {
		for j := range drawn {
			drawn[j] = sums[rng.IntN(len(sums))]
		}
		means[i] = meanOfSums(drawn)
	}
	slices.Sort(means)
	return means[resamples/40], means[resamples-1-resamples/40]
}

// String prints the mean with its interval.
func (m Mean) String() string {
	switch len(m.items) {
	case 0:
		return "not available (0 cases)"
	case 1:
		return fmt.Sprintf("%.3f (of one item: no interval)", thousandths(m.Value()))
	}
	low, high := m.Interval()
	return fmt.Sprintf("%.3f (95%% interval %.3f to %.3f)", thousandths(m.Value()), thousandths(low), thousandths(high))
}

// thousandths rounds for printing: there is no -0.000.
func thousandths(x float64) float64 { return math.Round(1000*x)/1000 + 0 }

// MarshalJSON gives value, low and high, null where they are not to be had.
func (m Mean) MarshalJSON() ([]byte, error) {
	low, high := m.Interval()
	return json.Marshal(struct {
		Value *float64 `json:"value"`
		Low   *float64 `json:"low"`
		High  *float64 `json:"high"`
	}{Finite(m.Value()), Finite(low), Finite(high)})
}
