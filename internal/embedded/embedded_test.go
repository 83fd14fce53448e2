package embedded_test

import (
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/embedded"
)

// TestPairs: distinct scored pairs for one pass of the quick start (400) and for a held-out accuracy of narrow interval
// (100), in few bytes: every clone and every binary carries them.
func TestPairs(t *testing.T) {
	pairs, report, err := data.StreamPreferences(embedded.Files, embedded.Pairs, data.PreferenceOptions{}).Collect()
	if err != nil || len(pairs) != 500 {
		t.Fatalf("%d pairs, want 500 (%v, %v)", len(pairs), report, err)
	}
	prompts := map[string]bool{}
	for _, p := range pairs {
		prompts[p.Prompt.Messages[0].Content] = true
		if !p.Scored || p.ChosenScore <= p.RejectedScore || p.ChosenScore > 1 || p.RejectedScore < 0 {
			t.Errorf("%s: scores %v and %v: want 0 to 1, the chosen one higher", p.Source, p.ChosenScore,
				p.RejectedScore)
		}
	}
	text, err := embedded.Files.ReadFile(embedded.Pairs)
	if err != nil || len(prompts) != len(pairs) || len(text) > 500_000 {
		t.Errorf("%d distinct prompts of %d pairs in %d bytes, %v", len(prompts), len(pairs), len(text), err)
	}
}
