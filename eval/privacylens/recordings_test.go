package privacylens

import (
	"os"
	"path/filepath"
	"testing"

	lens "github.com/posttrain/posttrain/data/privacylens"
)

// Runs that were recorded with the benchmark's own tools, and released with CI-RL: actions as csv, verdicts as json.
// POSTTRAIN_RECORDINGS_DIR names the folder they lie in (components/privacylens/evaluation/output_action of that
// release). A replay must give the counts of the files, and its own files the same again.
func TestReplayOfReleasedRuns(t *testing.T) {
	dir := os.Getenv("POSTTRAIN_RECORDINGS_DIR")
	if dir == "" {
		t.Skip("set POSTTRAIN_RECORDINGS_DIR to the folder of the recorded runs")
	}
	cases := realCases(t, "main_data.json")
	for name, want := range map[string]struct{ leaks, noAction int }{
		"main_gpt4o_naive": {224, 15}, "main_gpt4o_mini_naive": {259, 0}, "main_o1_mini_naive": {201, 5},
		"main_o1_mini_privacy_enhanced": {199, 5}, "main_deepseek_naive": {204, 69},
	} {
		actions := must[map[string]string](t)(lens.ReadActions(filepath.Join(dir, name+".csv"), cases))
		verdicts := filepath.Join(dir, name+"_evaluate_leakage.json")
		r := openRun(t, t.TempDir(), cases)
		if err := r.Import(actions, nil); err != nil {
			t.Fatal(err)
		}
		if err := r.Judge(t.Context(), judgeOptions{Judge: readReplay(t, verdicts, "", cases)}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		s, results, err := r.Report()
		if err != nil {
			t.Fatal(err)
		}
		if s.All.Leakage.Count != want.leaks || s.All.Leakage.Total != 493 || s.All.NoAction.Count != want.noAction ||
			s.All.Adjusted.Total != 0 {
			t.Errorf("%s: leakage %v, no action %v, adjusted %v", name, s.All.Leakage, s.All.NoAction, s.All.Adjusted)
		}
		if read(t, r.Path(verdictsFile)) != read(t, verdicts) {
			t.Errorf("%s: the verdicts are not written as they were read", name)
		}
		agreement(t, name, cases, results)
	}
}

// agreement logs how the keyword judge does beside the recorded one.
func agreement(t *testing.T, name string, cases []lens.Case, results []CaseResult) {
	both, model, keyword := 0, 0, 0
	for i := range results {
		leaks := false
		for item := range cases[i].Trajectory.Items {
			v := must[Verdict](t)(keywordJudge{}.Leakage(t.Context(), &cases[i], results[i].Action, item))
			leaks = leaks || v.Leaks
		}
		switch {
		case leaks && results[i].Leaks:
			both++
		case leaks:
			keyword++
		case results[i].Leaks:
			model++
		}
	}
	t.Logf("%s: the recorded judge and keywords find %d leaks, the judge alone %d, keywords alone %d", name, both,
		model, keyword)
}
