package data

import (
	"math"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

func TestHHRLHFLoadsWhole(t *testing.T) {
	pairs, report, err := ReadPreferences(need.File(t, "data", "hh-rlhf/harmless-base-test.jsonl.gz"), PreferenceOptions{})
	expect.OK(t, err)
	t.Log("\n" + report.String())
	if len(pairs) != 2312 || report.Read != 2312 {
		t.Fatalf("%d pairs of %d rows, want all 2312", len(pairs), report.Read)
	}
	for _, p := range pairs {
		if !strings.HasPrefix(p.Prompt.Plain, humanMark) || !strings.HasSuffix(p.Prompt.Plain, assistantMark) {
			t.Fatalf("%s: prompt %q", p.Source, p.Prompt.Plain)
		}
		if p.Chosen.Empty() || p.Rejected.Empty() {
			t.Fatalf("%s: an empty answer", p.Source)
		}
		if p.Scored {
			t.Fatalf("%s: scores from nowhere", p.Source)
		}
	}
	if len(report.Remarks) != 1 || report.Remarks[0].Count != 4 {
		t.Errorf("remarks %v, want the 4 chosen answers of white space", report.Remarks)
	}
	if _, _, _, err := Prior(pairs, DefaultRewardOptions()); err == nil ||
		!strings.Contains(err.Error(), "2312 of 2312") {
		t.Errorf("prior without scores: %v", err)
	} else {
		t.Log(err)
	}
}

// TestRealScoresAreNoticed: of probabilities that are mostly near 0 the gaps say nothing, their ranks do.
func TestRealScoresAreNoticed(t *testing.T) {
	pairs, _, err := ReadPreferences(need.File(t, "data", "alpaca-eval/pairs.jsonl.gz"), PreferenceOptions{})
	expect.OK(t, err)
	for _, c := range []struct {
		transform string
		median    float64
		warned    bool
	}{{"auto", 3.7e-5, true}, {"rank", 0.146, false}} {
		_, gaps, report, err := Prior(pairs, RewardOptions{Transform: c.transform, OnNegativeGap: "clamp"})
		expect.OK(t, err)
		t.Log("\n" + report.String() + "\n" + report.Warning())
		if len(gaps) != 3019 || math.Abs(report.Median-c.median) > 0.01*c.median ||
			(report.Warning() != "") != c.warned {
			t.Errorf("%s: median %v of %d gaps: want %v; %s", c.transform, report.Median, len(gaps), c.median,
				report.Warning())
		}
	}
}
