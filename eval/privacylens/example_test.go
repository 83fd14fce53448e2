package privacylens

import (
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/embedded"
)

// exampleCases are those of the embedded example.
func exampleCases(t testing.TB) []data.PLCase {
	t.Helper()
	cases, report, err := data.ReadPrivacyLensFS(embedded.Files, embedded.PrivacyLensCases)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Warts) > 0 || report.Kept != report.Read {
		t.Errorf("%+v", report)
	}
	return cases
}

func TestExampleReads(t *testing.T) {
	cases := exampleCases(t)
	actions := must[map[string]string](t)(data.ReadActionsFS(embedded.Files, embedded.PrivacyLensActions, cases))
	verdicts := must[map[string]data.PLVerdict](t)(data.ReadVerdictsFS(embedded.Files, embedded.PrivacyLensVerdicts, cases))
	scores := must[map[string]int](t)(data.ReadScoresFS(embedded.Files, embedded.PrivacyLensHelpfulness, cases))
	if len(actions) != len(cases) || len(verdicts) != len(cases) || len(scores) != len(cases) {
		t.Errorf("%d cases, %d actions, %d verdicts, %d scores", len(cases), len(actions), len(verdicts), len(scores))
	}
}
