package privacylens

import (
	"strings"
	"testing"
)

// Tables have every rate with numerator, denominator and interval.
func TestSummaryWrite(t *testing.T) {
	s := summarize(caseResults(4, func(i int) bool { return i < 1 }, func(i int) int { return i }))
	for i, source := range []string{"law", "book"} {
		part := caseResults(2, func(k int) bool { return k == i }, func(int) int { return 1 })
		s.Sources[source] = Count(part)
	}
	s.Warnings = []string{"mind this"}
	var b strings.Builder
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"leakage rate (LR)            25.0% (1/4, 95% interval 4.6 to 69.9)\n",
		"adjusted leakage rate (ALR)  0.0% (0/2, 95% interval",
		"helpfulness (0 to 3)         1.50 (6/4, 95% interval",
		"law        50.0% 1/2 (9.5–90.5)  not available        1.00 2/2 (1.00–1.00)\n",
		"warning: mind this\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "cut by length") || strings.Contains(b.String(), "by tool") {
		t.Errorf("lines that say nothing:\n%s", b.String())
	}
}
