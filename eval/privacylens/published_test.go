package privacylens

import (
	"strings"
	"testing"
)

// TestPublished: the table has the published figures below those of the benchmark's 493 cases, and not below others.
func TestPublished(t *testing.T) {
	for cases, want := range map[int]bool{publishedCases: true, 12: false} {
		s := Summary{All: Count(make([]CaseResult, cases))}
		var b strings.Builder
		if err := s.Write(&b); err != nil {
			t.Fatal(err)
		}
		lines := strings.Join(strings.Fields(b.String()), " ")
		for _, row := range []string{"published: naive / CI-CoT / CI-RL LR, % ALR, % helpfulness",
			"Claude 3.7 Sonnet Thinking 32.0 / 20.1 34.6 / 22.6 2.75 / 2.63",
			"Qwen2.5-7B 50.3 / 44.8 / 33.7 52.4 / 45.7 / 33.9 1.99 / 2.13 / 2.08", "2506.04245"} {
			if strings.Contains(lines, row) != want {
				t.Errorf("%d cases: %q in\n%s", cases, row, b.String())
			}
		}
	}
	for _, p := range PublishedRows {
		if n := len(p.Leakage); n != len(p.Adjusted) || n != len(p.Helpfulness) {
			t.Errorf("%+v", p)
		}
	}
}
