package preference

import (
	"strings"
	"testing"

	"github.com/posttrain/posttrain/recipe"
)

// TestVerdict reads the two curves in words.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		chosen, rejected float64 // at the end; both began at -10
		says             string
	}{
		{-12, -15, "Both sank: the squeezing effect."},
		{-9, -15, "more likely and the rejected ones less"},
		{-9, -8, "Both rose"},
		{-10, -10, "Neither moved by 0.01"},
		{-9.995, -10.009, "Neither moved by 0.01"},
		{-9.995, -10.02, "more likely and the rejected ones less"},
		{-12, -8, "sank while the rejected rose"},
	} {
		got := verdict(recipe.Change{First: -10, Last: c.chosen}, recipe.Change{First: -10, Last: c.rejected})
		if !strings.Contains(got, c.says) {
			t.Errorf("chosen to %v, rejected to %v: %q, want %q", c.chosen, c.rejected, got, c.says)
		}
	}
}
