package privacylens

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// realCases are the cases of a real data file; without the data the test is skipped.
func realCases(t testing.TB, name string) []Case {
	t.Helper()
	path := need.File(t, "data", "privacylens/"+name)
	cases, _, err := readCases(nil, path)
	expect.OK(t, err)
	return cases
}

// wantError checks that an error is one line that holds every one of the parts.
var wantError = expect.Error

func write(t testing.TB, name, content string) string {
	t.Helper()
	return expect.File(t, name, content)
}

func read(t *testing.T, path string) string {
	t.Helper()
	return expect.Read(t, path)
}

// options are the options of a run of cases in a folder of its own.
func options(t *testing.T, cases []Case) Options {
	t.Helper()
	o, dir := Benchmark.Defaults(), t.TempDir()
	o.Data, o.Dir = filepath.Join(dir, "cases.json"), filepath.Join(dir, "run")
	expect.OK(t, writeCases(o.Data, cases))
	return o
}

// recorded are options with recorded actions.
func recorded(t *testing.T, cases []Case, actions map[string]string) Options {
	t.Helper()
	o := options(t, cases)
	o.Agent.Answers = filepath.Join(t.TempDir(), "actions.csv")
	expect.OK(t, writeActions(o.Agent.Answers, cases, actions))
	return o
}

// measured runs an evaluation.
func measured(t *testing.T, o Options) (*Summary, error) {
	t.Helper()
	s, _, err := Benchmark.Run(t.Context(), o, nil)
	return s, err
}

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

// resultsOf are the cases of a run that was reported.
func resultsOf(t *testing.T, dir string) (all []CaseResult) {
	t.Helper()
	err := data.ReadLines(filepath.Join(dir, bench.CasesName), func(_ int, r CaseResult) error {
		all = append(all, r)
		return nil
	})
	expect.OK(t, err)
	return all
}

// privacyCases are n small cases.
func privacyCases(n int) (cases []Case) {
	if err := json.Unmarshal(testkit.PrivacyCases(n), &cases); err != nil {
		panic(err)
	}
	return cases
}

func writeCases(path string, cases []Case) error { return data.WriteJSON(path, cases) }
