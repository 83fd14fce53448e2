package train

import (
	"maps"
	"testing"

	"github.com/posttrain/posttrain/losses"
)

// TestRewardMetrics: numbers by hand; the extremes are over all microbatches of a step, and steps have their mean.
func TestRewardMetrics(t *testing.T) {
	m := &Reward{Options: losses.BradleyTerry{}}
	step := NewMetrics()
	for gap, scores := range map[float64][]float32{2: {3, 1, 0, 0}, 0: {-1, 4, 9, -9}} {
		if err := m.Observe([]Example{{Gap: gap}}, nil, [][]float32{scores}, step); err != nil { // behind a pair there is padding
			t.Fatal(err)
		}
	}
	want := map[string]float64{"accuracy": 0.5, "margin": -1.5, "mean_reward": 1.75, "min_reward": -1, "max_reward": 4,
		"loss": (losses.BradleyTerry{}.Host(3, 1, 2) + losses.BradleyTerry{}.Host(-1, 4, 0)) / 2}
	if got := step.Means(""); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	window, other := NewMetrics(), NewMetrics()
	other.Least(MetricMinReward, -3)
	window.Join(step)
	window.Join(other)
	again := unpackMetrics(window.pack()) // as a checkpoint keeps it
	if got := again.Means("")[MetricMinReward]; got != -2 {
		t.Errorf("the least of two steps is %v in the mean, want -2", got)
	}
}
