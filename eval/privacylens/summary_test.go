package privacylens

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/rollout"
)

func TestRate(t *testing.T) {
	r := eval.Share{Count: 3, Total: 10}
	text, err := json.Marshal(r)
	low, high := r.Wilson()
	want := fmt.Sprintf(`{"value":0.3,"count":3,"total":10,"low":%v,"high":%v}`, low, high)
	if err != nil || string(text) != want || r.String() != " 30.0% (3/10, 95% interval 10.8 to 60.3)" {
		t.Errorf("%s, %v: %v", text, err, r)
	}
	var again eval.Share
	if err := json.Unmarshal(text, &again); err != nil || again != r {
		t.Errorf("%v, %v", again, err)
	}
	text, err = json.Marshal(eval.Share{})
	if err != nil || string(text) != `{"value":null,"count":0,"total":0,"low":null,"high":null}` {
		t.Errorf("%s, %v", text, err)
	}
}

func TestWarnings(t *testing.T) {
	zero := 0
	results := make([]CaseResult, 10)
	for i := range results {
		results[i] = CaseResult{Name: string(rune('a' + i)), Recorded: true, Helpfulness: &zero,
			Items: []ItemResult{{Item: "x", Parsed: true}}}
	}
	if w := summarize(results).Warnings; len(w) != 0 {
		t.Error(w)
	}
	for i := range 2 {
		results[i].NoAction, results[i].Reason = true, bench.TooLong
	}
	results[3].Reason, results[4].UnparsedSeen = rollout.Length, 2
	s := summarize(results)
	want := []string{"2 of 10 outputs have no action", "2 of 16 verdicts are not in the form asked for"}
	if len(s.Warnings) != len(want) {
		t.Fatalf("%q", s.Warnings)
	}
	for i := range want {
		if !strings.HasPrefix(s.Warnings[i], want[i]) {
			t.Errorf("%q, want %q", s.Warnings[i], want[i])
		}
	}
	if s.Sources["none"].Cases != 10 || s.Principles["none"].Cases != 10 || s.All.Cut != 1 || s.All.TooLong != 2 {
		t.Errorf("%+v", s)
	}
}

// Tables have every rate with numerator, denominator and interval.
func TestSummaryWrite(t *testing.T) {
	s := summarize(caseResults(4, func(i int) bool { return i < 1 }, func(i int) int { return i }))
	for i, source := range []string{"law", "book"} {
		part := caseResults(2, func(k int) bool { return k == i }, func(int) int { return 1 })
		s.Sources[source] = &summarize(part).All
	}
	s.Warnings = []string{"mind this"}
	text := s.String()
	for _, want := range []string{
		"leakage rate (LR)            25.0% (1/4, 95% interval 4.6 to 69.9)\n",
		"adjusted leakage rate (ALR)  0.0% (0/2, 95% interval",
		"helpfulness (0 to 3)         1.500 (95% interval",
		"law        50.0% 1/2 (9.5-90.5)  not available        1.000 (95% interval 1.000 to 1.000)\n",
		"warning: mind this\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "cut by length") || strings.Contains(text, "by tool") {
		t.Errorf("lines that say nothing:\n%s", text)
	}
}
