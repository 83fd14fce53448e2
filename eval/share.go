package eval

import (
	"encoding/json"
	"fmt"
	"math"
)

// Share is a counted proportion.
type Share struct{ Count, Total int }

// Add counts one more case.
func (s *Share) Add(yes bool) {
	s.Total++
	if yes {
		s.Count++
	}
}

// Value is the proportion, NaN of no case at all.
func (s Share) Value() float64 { return float64(s.Count) / float64(s.Total) }

// Wilson is the 95 % score interval of the proportion (Wilson 1927); 0 to 1 where nothing was counted.
func (s Share) Wilson() (low, high float64) {
	if s.Total == 0 {
		return 0, 1
	}
	return wilson(s.Value(), float64(s.Total))
}

// wilson is the interval of a proportion p of n cases; n may be a fraction of what was counted where cases depend on
// each other.
func wilson(p, n float64) (low, high float64) {
	const z = 1.959963984540054
	middle := p + z*z/(2*n)
	spread := z * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return math.Max(0, (middle-spread)/(1+z*z/n)), math.Min(1, (middle+spread)/(1+z*z/n))
}

// String prints the proportion with numerator, denominator and interval.
func (s Share) String() string {
	if s.Total == 0 {
		return "not available (0 cases)"
	}
	low, high := s.Wilson()
	return s.words(low, high)
}

// Short prints the proportion with count and interval, for a table.
func (s Share) Short() string {
	if s.Total == 0 {
		return "not available"
	}
	low, high := s.Wilson()
	return fmt.Sprintf("%.1f%% %d/%d (%.1f-%.1f)", 100*s.Value(), s.Count, s.Total, 100*low, 100*high)
}

func (s Share) words(low, high float64) string {
	return fmt.Sprintf("%5.1f%% (%d/%d, 95%% interval %.1f to %.1f)", 100*s.Value(), s.Count, s.Total, 100*low,
		100*high)
}

// MarshalJSON gives value, count, total and the Wilson interval low to high; without any case value, low and high are
// null.
func (s Share) MarshalJSON() ([]byte, error) {
	low, high := s.Wilson()
	return s.json(low, high)
}

// UnmarshalJSON reads count and total: the others follow from them.
func (s *Share) UnmarshalJSON(text []byte) error {
	var counts struct{ Count, Total int }
	err := json.Unmarshal(text, &counts)
	s.Count, s.Total = counts.Count, counts.Total
	return err
}

func (s Share) json(low, high float64) ([]byte, error) {
	out := struct {
		Value *float64 `json:"value"`
		Count int      `json:"count"`
		Total int      `json:"total"`
		Low   *float64 `json:"low"`
		High  *float64 `json:"high"`
	}{Count: s.Count, Total: s.Total}
	if s.Total > 0 {
		out.Value, out.Low, out.High = Finite(s.Value()), Finite(low), Finite(high)
	}
	return json.Marshal(out)
}

// Finite is a number as JSON has it: null instead of NaN or an infinity.
func Finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// Indicator is 1 of what holds, else 0.
func Indicator(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
