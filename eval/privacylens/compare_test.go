package privacylens

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// caseResults makes results of n cases: leaking and helpfulness as functions of the case; helpfulness below 0 is not
// judged.
func caseResults(n int, leaks func(i int) bool, score func(i int) int) []CaseResult {
	out := make([]CaseResult, n)
	for i := range out {
		s := score(i)
		out[i] = CaseResult{Name: fmt.Sprintf("case%d", i), Leaks: leaks(i), Helpfulness: &s,
			Items: []ItemResult{{Item: "x", Leaks: leaks(i), Parsed: true}}}
		if s < 0 {
			out[i].Helpfulness = nil
		}
	}
	return out
}

// A leaks in cases 0 to 49 of 100, B in 0 to 29 and in 50 to 54; B helps more.
func TestCompare(t *testing.T) {
	a := caseResults(100, func(i int) bool { return i < 50 }, func(i int) int { return i % 4 })
	b := caseResults(100, func(i int) bool { return i < 30 || i >= 50 && i < 55 },
		func(i int) int { return min(i%4+1, 3) })
	b[0], b[99] = b[99], b[0] // joined by name
	c, err := Compare(Compared{Name: "A", Results: a}, Compared{Name: "B", Results: b},
		Compared{Name: "A again", Results: a})
	if err != nil {
		t.Fatal(err)
	}
	if c.Cases != 100 || len(c.Runs) != 3 || len(c.Differences) != 2 || c.Runs[1].Leakage.Count != 35 {
		t.Fatalf("%+v", c)
	}
	d := c.Differences[0]
	if d.From != "A" || d.To != "B" || len(d.OnlyFrom) != 20 || len(d.OnlyTo) != 5 || d.Both != 30 || d.Neither != 45 ||
		d.OnlyTo[0] != "case50" {
		t.Errorf("%+v", d)
	}
	// ±1.96·√((20+5)/100 − 0.15²)/10 = ±0.0935
	if l := d.Leakage; math.Abs(*l.Value+0.15) > 1e-12 || math.Abs(*l.Low+0.2435) > 0.012 ||
		math.Abs(*l.High+0.0565) > 0.012 {
		t.Errorf("%+v: %v to %v", *l.Value, *l.Low, *l.High)
	}
	if math.Abs(d.P-0.004077) > 1e-6 { // 2·P(25 tosses, at most 5)
		t.Errorf("p %v", d.P)
	}
	if h := d.Helpfulness; math.Abs(*h.Value-0.75) > 1e-12 || *h.Low < 0.6 || *h.High > 0.9 {
		t.Errorf("%+v", h)
	}
	// of cases that are 2 or 3; 1, 2 or 3 mod 4
	if x := d.Adjusted; *x.From != 24.0/50 || *x.To != 26.0/75 || *x.Low >= *x.Value || *x.High <= *x.Value {
		t.Errorf("%v %v", *x.From, *x.To)
	}
	if text := d.Leakage.Points(); !strings.HasPrefix(text, "-15.0 points (95% interval -2") {
		t.Error(text)
	}
	same := c.Differences[1]
	if *same.Leakage.Low != 0 || *same.Leakage.High != 0 || same.P != 1 ||
		same.Helpfulness.Scores() != "+0.00 (95% interval +0.00 to +0.00)" {
		t.Errorf("%+v", same)
	}
}

func TestCompareWithoutHelpfulness(t *testing.T) {
	a := caseResults(10, func(i int) bool { return i < 5 }, func(int) int { return 3 })
	b := caseResults(10, func(i int) bool { return i < 3 }, func(int) int { return -1 })
	poor := caseResults(10, func(i int) bool { return i < 3 }, func(int) int { return 1 })
	c, err := Compare(Compared{Name: "a", Results: a}, Compared{Name: "b", Results: b},
		Compared{Name: "poor", Results: poor})
	if err != nil {
		t.Fatal(err)
	}
	for i, adjusted := range []string{"not available", "not available"} {
		if d := c.Differences[i]; d.Adjusted.Points() != adjusted || d.Leakage.Value == nil ||
			(d.Helpfulness.Value == nil) != (i == 0) {
			t.Errorf("%+v", d)
		}
	}
}

func TestCompareOtherCases(t *testing.T) {
	no := func(int) bool { return false }
	one := func(int) int { return 1 }
	a := Compared{Name: "a", Results: caseResults(3, no, one)}
	_, err := Compare(a)
	wantError(t, err, "1 run: want two or more")
	_, err = Compare(a, Compared{Name: "b", Results: caseResults(2, no, one)})
	wantError(t, err, "b has no case case2, which a has")
	_, err = Compare(a, Compared{Name: "b", Results: caseResults(4, no, one)})
	wantError(t, err, "b has 4 cases, a has 3")
	other := caseResults(3, no, one)
	other[1].Items[0].Item = "y"
	_, err = Compare(a, Compared{Name: "b", Results: other})
	wantError(t, err, "b: case1 has other sensitive items than in a")
	_, err = Compare(a, Compared{Name: "b", Results: append(caseResults(2, no, one), caseResults(1, no, one)...)})
	wantError(t, err, "b: a case is there twice")
}

func TestMcNemar(t *testing.T) {
	for _, c := range []struct {
		a, b int
		want float64
	}{{0, 0, 1}, {1, 1, 1}, {0, 1, 1}, {0, 5, 0.0625}, {5, 0, 0.0625}, {1, 5, 0.21875}, {300, 300, 1}} {
		if p := mcnemar(c.a, c.b); math.Abs(p-c.want) > 1e-12 {
			t.Errorf("%d, %d: %v, want %v", c.a, c.b, p, c.want)
		}
	}
}

func TestReadResults(t *testing.T) {
	for content, want := range map[string]string{"": "no cases: want a run that was judged",
		"{\"name\":\"a\"}": "cases.jsonl:1: name or items are missing", "{": "cases.jsonl:1: bad JSON"} {
		path := write(t, CasesName, content)
		_, err := readResults(path[:len(path)-len(CasesName)])
		wantError(t, err, want)
	}
	_, err := readResults(t.TempDir())
	wantError(t, err, "cases.jsonl: no such file")
}
