package eval

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// TestPublishedCI: the counts are the published percentages (the paper rounds 43.75 to 43.7), and the denominators of
// Llama and Mistral the only ones up to 64 that fit.
func TestPublishedCI(t *testing.T) {
	percent := [][3]float64{
		{37.5, 35.9, 4.7}, {59.4, 43.7, 26.6}, {31.2, 53.1, 12.5}, {57.8, 51.6, 28.1}, {46.9, 62.5, 29.7},
		{75.0, 67.2, 48.4}, {51.6, 67.2, 37.5}, {78.1, 64.1, 50.0}, {61.9, 64.3, 38.1}, {79.7, 79.7, 62.5},
		{38.8, 67.3, 24.5}, {89.1, 82.8, 73.4},
	}
	fits := func(p [3]float64, n int) bool {
		return !slices.ContainsFunc(p[:], func(x float64) bool {
			return math.Abs(100*math.Round(x*float64(n)/100)/float64(n)-x) > 0.0501
		})
	}
	rows := PublishedCI()
	if len(rows) != len(percent) {
		t.Fatalf("%d rows", len(rows))
	}
	for i, r := range rows {
		n := r.Integrity.Total
		for k, s := range []Share{r.Integrity, r.Utility, r.Complete} {
			if math.Abs(100*s.Value()-percent[i][k]) > 0.0501 || s.Total != n {
				t.Errorf("%s, %s: %v, published %v", r.Model, r.Method, s, percent[i][k])
			}
		}
		for other := 40; other <= 64; other++ {
			if fits(percent[i], other) != (other == n) {
				t.Errorf("%s, %s: %d fits, the row has %d", r.Model, r.Method, other, n)
			}
		}
		if (r.Over == OverAll) != (n == 64) {
			t.Errorf("%s, %s: of %d over %s", r.Model, r.Method, n, r.Over)
		}
	}
}

func TestWriteBesidePublished(t *testing.T) {
	var b strings.Builder
	if err := testReport().All.WriteBesidePublished(&b, "mine"); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"mine          measured   all      50.0% 2/4 (15.0-85.0)    50.0% 2/4 (15.0-85.0)    25.0% 1/4 (4.6-69.9)",
		"mine          measured   answers  33.3% 1/3 (6.1-79.2)     66.7% 2/3 (20.8-93.9)    33.3% 1/3 (6.1-79.2)",
		"Mistral-7B    untrained  answers  38.8% 19/49 (26.4-52.8)",
		"Qwen2.5-1.5B  CI-RL      all      59.4% 38/64 (47.1-70.5)",
		"published: arXiv:2506.04245",
	} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("lacks %q:\n%s", line, b.String())
		}
	}
	b.Reset()
	none := &Tally{}
	none.WriteBesidePublished(&b, "m")
	if !strings.Contains(b.String(), "m             measured   all      -  ") {
		t.Error(b.String())
	}
}
