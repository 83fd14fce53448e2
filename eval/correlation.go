package eval

import (
	"encoding/json"
	"fmt"
	"math"
)

// Correlation is Pearson's of pairs of numbers. The zero value is ready for use.
type Correlation struct{ x, y []float64 }

// Add counts one more pair.
func (c *Correlation) Add(x, y float64) { c.x, c.y = append(c.x, x), append(c.y, y) }

// Pairs is their number.
func (c Correlation) Pairs() int { return len(c.x) }

// Value is the correlation, NaN of fewer than two pairs and where one of the two never changes.
func (c Correlation) Value() float64 {
	xy, xx, yy := 0.0, 0.0, 0.0
	mx, my := meanOf(c.x), meanOf(c.y)
	for i := range c.x {
		dx, dy := c.x[i]-mx, c.y[i]-my
		xy, xx, yy = xy+dx*dy, xx+dx*dx, yy+dy*dy
	}
	if constant(c.x) || constant(c.y) {
		return math.NaN()
	}
	return max(-1, min(1, xy/math.Sqrt(xx*yy)))
}

func meanOf(all []float64) float64 {
	total := 0.0
	for _, x := range all {
		total += x
	}
	return total / float64(len(all))
}

func constant(all []float64) bool {
	for _, x := range all {
		if x != all[0] {
			return false
		}
	}
	return true
}

// Interval is the 95 % interval by Fisher's z (1921), NaN of fewer than four pairs.
func (c Correlation) Interval() (low, high float64) {
	const z = 1.959963984540054
	r, n := c.Value(), float64(len(c.x))
	if math.IsNaN(r) || n < 4 {
		return math.NaN(), math.NaN()
	}
	spread := z / math.Sqrt(n-3)
	return math.Tanh(math.Atanh(r) - spread), math.Tanh(math.Atanh(r) + spread)
}

// String prints the correlation with its interval.
func (c Correlation) String() string {
	r := c.Value()
	if math.IsNaN(r) {
		return "not available"
	}
	low, high := c.Interval()
	if math.IsNaN(low) {
		return fmt.Sprintf("%.3f (of %d pairs: no interval)", thousandths(r), len(c.x))
	}
	return fmt.Sprintf("%.3f (95%% interval %.3f to %.3f)", thousandths(r), thousandths(low), thousandths(high))
}

// MarshalJSON gives value, low, high and pairs; a number that is not to be had is null.
func (c Correlation) MarshalJSON() ([]byte, error) {
	low, high := c.Interval()
	return json.Marshal(struct {
		Value *float64 `json:"value"`
		Low   *float64 `json:"low"`
		High  *float64 `json:"high"`
		Pairs int      `json:"pairs"`
	}{Finite(c.Value()), Finite(low), Finite(high), len(c.x)})
}
