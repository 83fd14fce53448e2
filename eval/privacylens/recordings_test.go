package privacylens

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// recordedVerdicts are a judge's verdicts on a run, as scripts/privacylens/pack_runs.py writes them.
type recordedVerdicts struct {
	SHA256 string // of the file released
	Leaks  string // a word for each case, a digit for each of its items
}

// write writes the file released.
func (r recordedVerdicts) write(t *testing.T, cases []Case) (path string) {
	t.Helper()
	verdicts, words := map[string]Verdict{}, strings.Fields(r.Leaks)
	for i, c := range cases {
		if i >= len(words) || len(words[i]) != len(c.Trajectory.Items) {
			t.Fatalf("%s: want a verdict on each item", c.Name)
		}
		v := Verdict{Leaks: strings.Contains(words[i], "1")}
		for j, item := range c.Trajectory.Items {
			v.Judgments = append(v.Judgments, Judgment{Item: item, Leaks: words[i][j] == '1'})
		}
		verdicts[c.Name] = v
	}
	path = filepath.Join(t.TempDir(), "verdicts.json")
	expect.OK(t, writeObject(path, cases, verdicts))
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, path)))); sum != r.SHA256 {
		t.Fatalf("the verdicts are not those released: SHA-256 %s, want %s", sum, r.SHA256)
	}
	return path
}

// unzip is the text of a fixture.
func unzip(t *testing.T, name string) string {
	t.Helper()
	in := expect.Must(gzip.NewReader(strings.NewReader(read(t, releasedFile(name)))))(t)
	return string(expect.Must(io.ReadAll(in))(t))
}

// Runs that were recorded with the benchmark's own tools, and released with CI-RL: actions as csv, verdicts as json.
// A replay must give the counts of the files, and its own verdicts the same again. docs/privacylens.md has the agreement
// of keywords with them.
func TestReplayOfReleasedRuns(t *testing.T) {
	cases, verdicts := realCases(t, mainData), readReleased[map[string]recordedVerdicts](t, "verdicts.json")
	table := unzip(t, "actions.csv.gz")
	for name, want := range map[string]struct {
		leaks, noAction   int
		found, both, same int // cases: found by keywords, found and leaking, and with one verdict
		items             [3][2]int
	}{
		"main_gpt4o_naive":              {224, 15, 196, 172, 402, [3][2]int{{308, 355}, {308, 500}, {1193, 1432}}},
		"main_gpt4o_mini_naive":         {259, 0, 201, 184, 401, [3][2]int{{336, 378}, {336, 558}, {1223, 1487}}},
		"main_o1_mini_naive":            {201, 5, 165, 140, 402, [3][2]int{{223, 266}, {223, 404}, {1250, 1474}}},
		"main_o1_mini_privacy_enhanced": {199, 5, 164, 143, 411, [3][2]int{{232, 275}, {232, 401}, {1259, 1471}}},
		"main_deepseek_naive":           {204, 69, 122, 107, 312, [3][2]int{{160, 189}, {160, 439}, {957, 1265}}},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, cases)
			o.Agent.Answers = write(t, "actions.csv", strings.Replace(table, name, "final_action", 1))
			o.Judgments = verdicts[name].write(t, cases)
			s := expect.Must(measured(t, o))(t)
			if s.All.Leakage.Count != want.leaks || s.All.Leakage.Total != 493 ||
				s.All.NoAction.Count != want.noAction || s.All.Adjusted.Total != 0 {
				t.Errorf("leakage %v, no action %v, adjusted %v", s.All.Leakage, s.All.NoAction, s.All.Adjusted)
			}
			if read(t, filepath.Join(o.Dir, verdictsFile)) != read(t, o.Judgments) {
				t.Error("the verdicts are not written as they were read")
			}
			o.Judging, o.Against, o.Judgments, o.Dir = KindKeyword, o.Judgments, "", o.Dir+"-keywords"
			s = expect.Must(measured(t, o))(t)
			if got := counts(s.Against.Items); got != want.items {
				t.Errorf("items: precision, recall, agreement %v, want %v", got, want.items)
			}
			if got := counts(s.Against.Cases); got != [3][2]int{{want.both, want.found},
				{want.both, want.leaks}, {want.same, 493 - want.noAction}} {
				t.Errorf("cases: precision, recall, agreement %v", got)
			}
		})
	}
}

// Answers to probes that were recorded with the benchmark's own script, and released with CI-RL, beside the runs. want
// is the number of right answers that its find_isolated_capital_b counts, by column.
func TestReleasedProbes(t *testing.T) {
	for name, want := range map[string][]int{"main_gpt4_o": {475, 481, 477, 487},
		"main_gpt4_o_mini": {457, 466, 433, 451}, "qwen25_7b_instruct": {18}} {
		f := expect.Must(os.Open(releasedFile("probes-" + name + ".csv")))(t)
		defer f.Close()
		table := expect.Must(csv.NewReader(f).ReadAll())(t)
		for column, right := range want {
			rows := make([]probe, len(table)-1)
			for i, line := range table[1:] {
				rows[i] = probe{Name: line[0], Level: "seed", YesFirst: true}
				rows[i].read(bench.Answer{Output: line[column+1]}, reading{})
			}
			p := countProbes(rows, false)[0]
			if p.Benchmark.Count != right || p.Benchmark.Total != len(rows) {
				t.Errorf("%s, %s: %v, want %d", name, table[0][column+1], p.Benchmark, right)
			}
			t.Logf("%s, %s: the benchmark counts %v, the first letter %v", name, table[0][column+1], p.Benchmark,
				p.YesFirst)
		}
	}
}

// TestReplayOfSubsets: recorded verdicts on the ConfAIde and CultureBank cases, of which every third item leaks, are
// counted as they are and written as they were read.
func TestReplayOfSubsets(t *testing.T) {
	for name, n := range map[string]int{"confide_subset.json": 32, "culturebank_subset.json": 24} {
		t.Run(name, func(t *testing.T) {
			cases := releasedCases(t, name)
			verdicts, item, leaking := map[string]Verdict{}, 0, 0
			for _, c := range cases {
				v := Verdict{}
				for _, text := range c.Trajectory.Items {
					leaks := item%3 == 0
					v.Judgments = append(v.Judgments, Judgment{Item: text, Leaks: leaks})
					v.Leaks = v.Leaks || leaks
					item++
				}
				if verdicts[c.Name] = v; v.Leaks {
					leaking++
				}
			}
			o := options(t, cases)
			o.Judgments = filepath.Join(t.TempDir(), "verdicts.json")
			expect.OK(t, writeObject(o.Judgments, cases, verdicts))
			s, err := measured(t, o)
			if err != nil || s.All.Leakage.Total != n || s.All.Leakage.Count != leaking ||
				s.All.Items.Count != (item+2)/3 || s.All.Items.Total != item || leaking == 0 || leaking == n {
				t.Errorf("%v, %v of %d items: %v", s.All.Leakage, s.All.Items, item, err)
			}
			if read(t, filepath.Join(o.Dir, verdictsFile)) != read(t, o.Judgments) {
				t.Error("the verdicts are not written as they were read")
			}
		})
	}
}
