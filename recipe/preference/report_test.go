package preference

import (
	"strings"
	"testing"

	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/recipe"
)

// TestVerdict reads the two curves in words.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		chosen, rejected float64 // at the end; both began at -10
		prior            string
		says             string
	}{
		{-12, -15, losses.None, "only by making both unlikely; the MaPPO prior is made against this."},
		{-12, -15, losses.MaPPO, "Both sank: the squeezing effect. The model prefers the chosen answers only by making both unlikely."},
		{-9, -15, losses.MaPPO, "more likely and the rejected ones less"},
		{-9, -8, losses.MaPPO, "Both rose"},
		{-10, -10, losses.MaPPO, "Neither moved by 0.01"},
		{-9.995, -10.009, losses.MaPPO, "Neither moved by 0.01"},
		{-9.995, -10.02, losses.MaPPO, "more likely and the rejected ones less"},
		{-12, -8, losses.MaPPO, "sank while the rejected rose"},
	} {
		got := verdict(recipe.Change{First: -10, Last: c.chosen}, recipe.Change{First: -10, Last: c.rejected}, c.prior)
		if !strings.Contains(got, c.says) {
			t.Errorf("chosen to %v, rejected to %v: %q, want %q", c.chosen, c.rejected, got, c.says)
		}
	}
}
