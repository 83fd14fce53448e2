package eval

import (
	"encoding/json"
	"math"
	"testing"
)

func correlationOf(pairs ...[2]float64) (c Correlation) {
	for _, p := range pairs {
		c.Add(p[0], p[1])
	}
	return c
}

// TestCorrelation: numbers by hand; the interval comes from a table of Fisher's z.
func TestCorrelation(t *testing.T) {
	c := correlationOf([2]float64{1, 2}, [2]float64{2, 1}, [2]float64{3, 4}, [2]float64{4, 3}, [2]float64{5, 5})
	low, high := c.Interval()
	for name, pair := range map[string][2]float64{
		"r": {c.Value(), 0.8}, "low": {low, -0.27964}, "high": {high, 0.98620},
	} {
		if math.Abs(pair[0]-pair[1]) > 1e-5 {
			t.Errorf("%s: %v: want %v", name, pair[0], pair[1])
		}
	}
	for want, c := range map[string]Correlation{
		"0.800 (95% interval -0.280 to 0.986)": c,
		"not available":                        correlationOf([2]float64{1, 2}, [2]float64{2, 2}, [2]float64{3, 2}),
		"-1.000 (of 2 pairs: no interval)":     correlationOf([2]float64{0.1, 2}, [2]float64{0.3, 1}),
	} {
		if c.String() != want {
			t.Errorf("%s: want %s", c, want)
		}
	}
	for want, c := range map[string]Correlation{
		`{"value":null,"low":null,"high":null,"pairs":0}`: {},
		`{"value":1,"low":1,"high":1,"pairs":4}`: correlationOf([2]float64{1, 1}, [2]float64{2, 2}, [2]float64{3, 3},
			[2]float64{4, 4}),
	} {
		if text, err := json.Marshal(c); err != nil || string(text) != want {
			t.Errorf("%s, %v: want %s", text, err, want)
		}
	}
}
