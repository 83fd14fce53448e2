package train

import (
	"math"
	"testing"
)

func TestSchedule(t *testing.T) {
	root := math.Sqrt(0.5)
	cases := []struct {
		name  string
		s     Schedule
		rates map[int]float64 // by update, counted from 0
	}{
		{"constant, no warm-up", Schedule{"constant", 2, 0, 10}, map[int]float64{0: 2, 5: 2, 9: 2, 10: 2, 99: 2}},
		{"constant", Schedule{"constant", 2, 4, 10}, map[int]float64{0: 0, 1: 0.5, 2: 1, 3: 1.5, 4: 2, 9: 2}},
		{"linear, no warm-up", Schedule{"linear", 2, 0, 10}, map[int]float64{0: 2, 1: 1.8, 5: 1, 9: 0.2, 10: 0, 11: 0}},
		{"linear", Schedule{"linear", 3, 2, 8}, map[int]float64{0: 0, 1: 1.5, 2: 3, 3: 2.5, 5: 1.5, 7: 0.5, 8: 0}},
		{"cosine", Schedule{"cosine", 2, 2, 10}, map[int]float64{0: 0, 1: 1, 2: 2, 4: 1 + root, 6: 1, 8: 1 - root,
			10: 0, 12: 0}},
		{"warm-up is the whole run", Schedule{"linear", 1, 4, 4}, map[int]float64{0: 0, 2: 0.5, 3: 0.75, 4: 0}},
		{"warm-up outlasts the run", Schedule{"cosine", 1, 8, 4}, map[int]float64{0: 0, 3: 0.375}},
	}
	for _, c := range cases {
		for k, want := range c.rates {
			if got := c.s.At(k); math.Abs(got-want) > 1e-15*8 {
				t.Errorf("%s: update %d: %v, want %v", c.name, k, got, want)
			}
		}
	}
}

func TestScheduleOfOptions(t *testing.T) {
	o := Options{Schedule: "linear", LearningRate: 4, WarmupSteps: 2}
	for k, want := range []float64{0, 2, 4, 3, 2, 1} {
		if got := o.RateAt(k, 6); got != want {
			t.Errorf("update %d: %v, want %v", k, got, want)
		}
	}
}
