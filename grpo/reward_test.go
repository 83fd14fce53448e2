package grpo_test

import "testing"

// TestRewardOfOnesOwnRises: exact match of a sum, from about one in ten to almost always.
func TestRewardOfOnesOwnRises(t *testing.T) {
	rewards, err := learnSums(60)
	if err != nil {
		t.Fatal(err)
	}
	first, last := rewards[0], rewards[len(rewards)-1]
	t.Logf("mean reward %.3f at first, %.3f at last", first, last)
	if len(rewards) != 60 || first > 0.3 || last < 0.6 {
		t.Errorf("the mean reward went from %.3f to %.3f in %d steps: want it to rise to 0.6", first, last,
			len(rewards))
	}
}
