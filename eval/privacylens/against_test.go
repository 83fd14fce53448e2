package privacylens

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// counts are the counts and totals of precision, recall and agreement.
func counts(a Agreement) (all [3][2]int) {
	for i, r := range []eval.Rate{a.Precision, a.Recall, a.Agreement} {
		all[i] = [2]int{r.Share().Count, r.Share().Total}
	}
	return all
}

// TestAgainst: of four cases with two items each, whose first the judge of keywords finds in cases 0 and 2, the first
// leaks in case 0 and both in case 1. Case 3 has no action, and does not count.
func TestAgainst(t *testing.T) {
	cases, actions, verdicts := privacyCases(4), map[string]string{}, map[string]Verdict{}
	for i := range cases {
		c := &cases[i]
		actions[c.Name] = strings.ReplaceAll(leakyReply(c.Trajectory.Instruction), "\nObservation: {}", "")
		v := Verdict{Leaks: i < 2}
		for k, item := range c.Trajectory.Items {
			v.Judgments = append(v.Judgments, Judgment{Item: item, Leaks: i == 0 && k == 0 || i == 1})
		}
		verdicts[c.Name] = v
	}
	o := recorded(t, cases, actions)
	o.Judging, o.Against = KindKeyword, filepath.Join(t.TempDir(), "verdicts.json")
	save := func() {
		expect.OK(t, writeObject(o.Against, cases, verdicts))
	}
	save()
	s := expect.Must(measured(t, o))(t)
	if got, want := counts(s.Against.Items), [3][2]int{{1, 2}, {1, 3},
		{3, 6}}; got != want {
		t.Errorf("items %v, want %v", got, want)
	}
	if got, want := counts(s.Against.Cases), [3][2]int{{1, 2}, {1, 2},
		{1, 3}}; got != want {
		t.Errorf("cases %v, want %v", got, want)
	}
	wantParts(t, "the report", s.String(), "\nbeside recorded verdicts\nitems, precision ", " 50.0% (1/2, 95% interval 9.5 to 90.5)\nitems, recall ")
	wantParts(t, "summary.json", read(t, filepath.Join(o.Dir, "summary.json")), `"against": {`, `"recall": {`)
	o.Judgments, o.Dir = o.Against, o.Dir+"-same" // a judge agrees with itself
	if s, err := measured(t, o); err != nil || counts(s.Against.Items)[2] != [2]int{6, 6} {
		t.Errorf("%v, %v", s, err)
	}
	verdicts["case3"] = verdicts["case1"]
	v := verdicts["case3"]
	v.Judgments = []Judgment{{Item: cases[3].Trajectory.Items[0], Leaks: true}, {Item: cases[3].Trajectory.Items[1]}}
	verdicts["case3"] = v
	save()
	o.Judgments, o.Dir = "", o.Dir+"-other"
	_, err := measured(t, o)
	wantError(t, err, `verdicts.json: case3: its output has no "Action:", but the recorded verdicts say that it leaks`)
	delete(verdicts, "case2")
	save()
	_, err = measured(t, o)
	wantError(t, err, "recorded verdicts: 1 of 4 cases have no verdict (first: case2)")
}

// TestAgainstExample: of the seven items that leak, keywords find the five that are quoted, in four of five cases; one of
// the twelve cases, with three of the 33 items, has no action.
func TestAgainstExample(t *testing.T) {
	o := Benchmark.Defaults()
	o.Data, o.Agent.Answers, o.Judging, o.Against = embedded.Name, embedded.Name, KindKeyword, embedded.Name
	o.Dir = filepath.Join(t.TempDir(), "run")
	s := expect.Must(measured(t, o))(t)
	if got, want := counts(s.Against.Items), [3][2]int{{5, 5}, {5, 7},
		{28, 30}}; got != want {
		t.Errorf("items %v, want %v", got, want)
	}
	if got, want := counts(s.Against.Cases), [3][2]int{{4, 4}, {4, 5},
		{10, 11}}; got != want {
		t.Errorf("cases %v, want %v", got, want)
	}
}
