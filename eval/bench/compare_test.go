package bench

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// reported writes a reported run of n cases with a leak or none, and a helpfulness from 0 to 3, which counts the
// adjusted rate from 2 on; helpfulness below 0 is not judged.
func reported(t *testing.T, name, judge string, n int, leaks func(i int) bool, score func(i int) int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i := range n {
		leak, adjusted, help := 0, "null", "null"
		if leaks(i) {
			leak = 1
		}
		if score(i) >= 0 {
			help = fmt.Sprint(score(i))
		}
		if score(i) >= 2 {
			adjusted = fmt.Sprint(leak)
		}
		fmt.Fprintf(&b, `{"id":"case%d","scores":{"leakage":%d,"adjusted":%s,"helpfulness":%s}}`+"\n", i, leak, adjusted,
			help)
	}
	for file, text := range map[string]string{"config.yaml": "command: eval privacylens\n", CasesName: b.String(),
		SettingsName: fmt.Sprintf(`{"judge":{"kind":"model","model":%q}}`, judge)} {
		expect.Write(t, filepath.Join(dir, file), text)
	}
	return dir
}

// A leaks in cases 0 to 49 of 100, B in 0 to 29 and in 50 to 54; B helps more.
func TestCompare(t *testing.T) {
	a := reported(t, "A", "x", 100, func(i int) bool { return i < 50 }, func(i int) int { return i % 4 })
	b := reported(t, "B", "y", 100, func(i int) bool { return i < 30 || i >= 50 && i < 55 },
		func(i int) int { return min(i%4+1, 3) })
	c, err := Compare(a, b, a)
	if err != nil || c.Cases != 100 || len(c.Runs) != 3 || len(c.Differences) != 6 || *c.Runs[1].Means["leakage"] != 0.35 {
		t.Fatalf("%+v, %v", c, err)
	}
	adjusted, help, leak := c.Differences[0], c.Differences[1], c.Differences[2]
	if y := leak.YesNo; len(y.OnlyFrom) != 20 || len(y.OnlyTo) != 5 || y.Both != 30 || y.Neither != 45 ||
		y.OnlyTo[0] != "case50" || math.Abs(y.P-0.004077) > 1e-6 { // 2·P(25 tosses, at most 5)
		t.Errorf("%+v", y)
	}
	// ±1.96·√((20+5)/100 − 0.15²)/10 = ±0.0935
	if math.Abs(*leak.Change.Value+0.15) > 1e-12 || math.Abs(*leak.Change.Low+0.2435) > 0.012 || math.Abs(*leak.Change.High+0.0565) > 0.012 {
		t.Errorf("%+v: %v to %v", *leak.Change.Value, *leak.Change.Low, *leak.Change.High)
	}
	if math.Abs(*help.Change.Value-0.75) > 1e-12 || *help.Change.Low < 0.6 || *help.Change.High > 0.9 || help.YesNo != nil {
		t.Errorf("%+v", help)
	}
	// of cases that are 2 or 3; 1, 2 or 3 mod 4
	if *adjusted.Change.From != 24.0/50 || *adjusted.Change.To != 26.0/75 || *adjusted.Change.Low >= *adjusted.Change.Value ||
		*adjusted.Change.High <= *adjusted.Change.Value {
		t.Errorf("%v %v", *adjusted.Change.From, *adjusted.Change.To)
	}
	if same := c.Differences[5]; *same.Change.Low != 0 || *same.Change.High != 0 || same.YesNo.P != 1 {
		t.Errorf("%+v", same)
	}
	var text strings.Builder
	if err := c.Write(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"leakage: -15.0 points (95% interval -2", "30 in both, 20 only in ",
		`was judged with model "y", `, "helpfulness: +0.75 (95% interval", "higher in 75 cases, lower in 0, equal in 25"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

// TestCompareSamples: the samples of an item are one case, which the bootstrap draws and McNemar counts. B is better in
// all 8 samples of 3 items of 10, C in 4 of each of them.
func TestCompareSamples(t *testing.T) {
	run := func(name string, right func(item, sample int) bool) string {
		dir := reported(t, name, "", 0, nil, nil)
		err := data.WriteLines(filepath.Join(dir, CasesName), 80, func(i int) any {
			item, score := fmt.Sprint("item ", i/8), map[bool]int{true: 1}[right(i/8, i%8)]
			return map[string]any{"id": fmt.Sprintf("%s/%d", item, i%8+1), "item": item,
				"scores": map[string]int{"x": score}}
		})
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	a := run("A", func(item, _ int) bool { return item < 5 })
	b := run("B", func(item, _ int) bool { return item < 8 })
	c, err := Compare(a, b, run("C", func(item, k int) bool { return item < 5 || item < 8 && k < 4 }))
	if err != nil || c.Cases != 10 || *c.Runs[1].Means["x"] != 0.8 {
		t.Fatalf("%+v, %v", c, err)
	}
	d := c.Differences[0]
	if d.YesNo == nil || math.Abs(d.YesNo.P-0.25) > 1e-12 || d.Better != 3 || d.YesNo.Both != 5 ||
		math.Abs(*d.Change.Value-0.3) > 1e-12 || *d.Change.Low > 0.1 ||
		*d.Change.High < 0.5 { // ±1.96·√(0.3·0.7/10) = ±0.28; of 80 cases ±0.1
		t.Errorf("%+v, %v to %v", d, *d.Change.Low, *d.Change.High)
	}
	if d = c.Differences[1]; d.YesNo != nil || d.Better != 3 || d.Equal != 7 ||
		math.Abs(*d.Change.Value-0.15) > 1e-12 {
		t.Errorf("%+v", d)
	}
}

// TestCompareCosts: A asks twice for each of two cases, one prompt is too long, and seconds of three answers are known, of
// two of B's none; C has recorded answers.
func TestCompareCosts(t *testing.T) {
	run := func(name string, rows []Answer, time string) string {
		dir := reported(t, name, "", 2, func(int) bool { return false }, func(int) int { return 1 })
		err := data.WriteLines(filepath.Join(dir, AnswersName), len(rows), func(i int) any { return rows[i] })
		if err != nil {
			t.Fatal(err)
		}
		expect.Write(t, filepath.Join(dir, timeName), time)
		return dir
	}
	a := run("A", []Answer{{ID: "case0", Prompt: "x", Asked: 10, Tokens: 1}, {ID: "case1", Prompt: "x", Asked: 30, Tokens: 2},
		{ID: "case0", Prompt: "x", Asked: 20, Tokens: 4}, {ID: "case1", Prompt: "x", Reason: TooLong}},
		`{"answers": 3, "time/answers": 1.5}`)
	b := run("B", []Answer{{ID: "case0", Prompt: "x"}, {ID: "case1", Prompt: "x", Tokens: 3}}, `{"answers": `)
	c, err := Compare(a, b, run("C", []Answer{{ID: "case0", Output: "x"}, {ID: "case1"}}, ""))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := c.Write(&text); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(text.String(), "\n")
	for i, want := range []string{"requests prompt tokens tokens seconds", "1.5 30.0 3.5 0.8", "1.0 - 1.5 -", "- - - -"} {
		if line := strings.Join(strings.Fields(got[i]), " "); !strings.HasSuffix(line, " "+want) {
			t.Errorf("%q, want %q", line, want)
		}
	}
}

func TestCompareOthers(t *testing.T) {
	no, one := func(int) bool { return false }, func(int) int { return 1 }
	a, few := reported(t, "a", "", 3, no, one), reported(t, "few", "", 2, no, one)
	other, none := reported(t, "other", "", 3, no, one), t.TempDir()
	expect.Write(t, filepath.Join(other, "config.yaml"), "command: eval gate\n")
	unreported := reported(t, "unreported", "", 3, no, one)
	if err := os.Remove(filepath.Join(unreported, CasesName)); err != nil {
		t.Fatal(err)
	}
	for want, dirs := range map[string][]string{
		"1 run: want two or more":                {a},
		"few has no case case2, which ":          {a, few},
		"a has 3 cases, ":                        {few, a},
		"is of eval gate, ":                      {a, other},
		"there is no run in it (no config.yaml)": {a, none},
		"no such file: want a run that was reported (posttrain eval privacy": {a, unreported},
	} {
		_, err := Compare(dirs...)
		expect.Error(t, err, want)
	}
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
