package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/recipe/federated"
	"github.com/posttrain/posttrain/recipe/preference"
)

// tinyProblem is a world of a two-layer model and a random batch, whose reference is far from the model.
func tinyProblem(t *testing.T) string {
	t.Helper()
	dir, r := t.TempDir(), rand.New(rand.NewPCG(2, 2))
	p := problem{Prompt: 5, Beta: 0.1, MaxGradNorm: 1, LearningRate: 1e-3, Tokens: make([][]int32, 8),
		Reference: make([]float32, 8)}
	for i := range p.Tokens {
		for range 12 {
			p.Tokens[i] = append(p.Tokens[i], r.Int32N(testkit.Vocab))
		}
		if i >= 4 {
			copy(p.Tokens[i][:p.Prompt], p.Tokens[i-4])
		}
	}
	err := errors.Join(testkit.Model(t, "llama").Save(dir, "float32"),
		data.WriteJSON(filepath.Join(dir, problemFile), p))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// query runs one of posttrain's sides on some lines and returns its answers, without the line that says it is ready.
func query(t *testing.T, kind, dir string, s setup, lines string) (all []did) {
	t.Helper()
	var out strings.Builder
	s.Backend = "go"
	if err := serve(kind, dir, s, strings.NewReader(lines+"\nquit\nnever read"), &out); err != nil {
		t.Fatal(err)
	}
	answers := strings.Split(strings.TrimSpace(out.String()), "\n")
	var r ready
	if err := json.Unmarshal([]byte(answers[0]), &r); err != nil || !r.Ready || r.Engine != "go" || r.Parameters == 0 {
		t.Fatalf("first line %s (%v): want ready, the engine go and the number of parameters", answers[0], err)
	}
	for _, a := range answers[1:] {
		var d did
		if err := json.Unmarshal([]byte(a), &d); err != nil || d.Seconds <= 0 || d.PeakRSSMB <= 0 {
			t.Fatalf("%s: %v", a, err)
		}
		all = append(all, d)
	}
	return all
}

func TestSteps(t *testing.T) {
	dir := tinyProblem(t)
	if all := query(t, "step", dir, setup{}, "step\nstep"); len(all) != 2 || all[1].Loss >= all[0].Loss {
		t.Errorf("answers %+v: a step should lower the loss", all)
	}
}

func tinyPrompts(t *testing.T) string {
	t.Helper()
	dir, err := promptWorld("tiny", 3, 9, 5)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestSampling(t *testing.T) {
	dir := tinyPrompts(t)
	first := query(t, "sample", dir, setup{}, "greedy 3\nsample 2")
	if first[0].Tokens != 3*5 || first[1].Tokens != 2*5 || first[1].IDs != nil {
		t.Errorf("answers %+v", first)
	}
	again := query(t, "sample", dir, setup{Slots: 2}, "greedy 3")
	if same, worst := compareTokens(first[0], again[0]); same != 3 || worst > 1e-4 {
		t.Errorf("%d of 3 rows the same, log-probs within %.1e", same, worst)
	}
}

func TestGRPOSteps(t *testing.T) {
	for i, d := range query(t, "grpo", tinyPrompts(t), setup{Samples: 4}, "step\nstep") {
		if d.Tokens < 3*4 || d.Tokens > 3*4*5 || d.Reward <= 0 || d.Reward >= 1 || d.Norm <= 0 || d.Entropy <= 0 ||
			math.Abs(d.Rollout+d.Scoring+d.Training-d.Seconds) > 0.1*d.Seconds+1e-3 {
			t.Errorf("step %d: %+v", i, d)
		}
	}
	if got := (words{}).Decode([]int32{5, 0, 7}, true); got != "t5 t7" {
		t.Errorf("decoded %q", got)
	}
	if got := even([]int32{2, 3, 4, 8}); got != 0.75 {
		t.Errorf("reward %v", got)
	}
}

func TestSidesThatDisagreeStopTheComparison(t *testing.T) {
	a := &series{side: &side{name: "a"}, losses: []float64{0.6931, 0.65}}
	b := &series{side: &side{name: "b"}, losses: []float64{0.6931, 0.66}}
	if err := agree([]*series{a, b}, 0, 1e-4); err != nil {
		t.Error(err)
	}
	expect.Error(t, agree([]*series{a, b}, 1, 1e-4), "round 2")
	if b.losses[1] = math.NaN(); agree([]*series{a, b}, 1, 1e-4) == nil {
		t.Error("a loss of NaN agrees")
	}
	o := &groupOptions{options: options{setup: setup{Samples: 16}}, groups: 8, fresh: 64}
	a.answers, b.answers = []did{{Tokens: 100, Reward: 0.5}}, []did{{Tokens: 100, Reward: 0.6}}
	expect.Error(t, o.compareMeans([]*series{a, b}), "reward: 0.5 on one side and 0.6")
}

func TestReport(t *testing.T) {
	var out strings.Builder
	s := func(name string, x ...float64) *series {
		return &series{side: &side{name: name, ready: ready{Engine: "go"}}, seconds: x, answers: make([]did, len(x))}
	}
	report(&out, "title", []*series{s("a", 1, 2, 3), s("b", 2, 2, 2)})
	if lines := strings.Split(out.String(), "\n"); !slices.Equal(strings.Fields(lines[4]), []string{"b", "(go)", "2.0000",
		"2.0000", "0.00", "0", "1.000", "0.833", "1.500"}) {
		t.Errorf("%s", out.String())
	}
}

func TestFirstPairsOfAPackedFile(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "pairs.jsonl.gz"), filepath.Join(t.TempDir(), "pairs.jsonl")
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	fmt.Fprint(w, "{\"chosen\":\"a\"}\n{\"chosen\":\"b\"}\n")
	if err := errors.Join(w.Close(), os.WriteFile(from, packed.Bytes(), 0o644), firstPairs(from, to, 1)); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(to); string(raw) != "{\"chosen\":\"a\"}\n" {
		t.Errorf("%q, %v", raw, err)
	}
	expect.Error(t, firstPairs(from, to, 3), "2 pairs, want 3")
}

// TestTables: every arm of every table is a run that posttrain takes.
func TestTables(t *testing.T) {
	t.Chdir("../..")
	for _, name := range []string{"cartpole", "rounds", "selection", "async", "ci-rl", "prior", "claims", "fedppo-rates",
		"selected"} {
		table, err := tableOf(name)
		if o := (&seedsOptions{task: "humanoid"}); err == nil {
			err = o.fill(&table)
		}
		if err != nil || len(table.arms) == 0 {
			t.Fatal(name, err)
		}
		for _, arm := range table.arms {
			if arm[1] == "minus" {
				continue
			}
			in := config.Input{Overrides: testkit.Overrides(t, slices.Concat(table.sets, arm[1:])...)}
			if i := slices.Index(table.command, "--config"); i >= 0 {
				in.Path = table.command[i+1]
			}
			if name == "prior" {
				_, err = preference.Spec.Load(in)
			} else {
				_, err = federated.Spec.Load(in)
			}
			if err != nil {
				t.Errorf("%s, %s: %v", name, arm[0], err)
			}
		}
	}
	if _, err := tableOf("none"); err == nil {
		t.Error("a table none")
	}
}

// TestSeeds: the table has the mean of the seeds with Student's interval, and pairs the runs of a seed for a difference.
// With two values Student's t is 12.706, and half the interval 12.706 times half their distance.
func TestSeeds(t *testing.T) {
	o, out := &seedsOptions{binary: "none", dir: t.TempDir(), seeds: 2, first: 1}, new(strings.Builder)
	for name, x := range map[string][3]float64{"none-1": {-1, -4, 0.5}, "none-2": {-3, -4, 0.7},
		"mappo-1": {1, -1, 0.6}, "mappo-2": {-1, -2, 0.6}} {
		f, err := run.Create(filepath.Join(o.dir, name), "test")
		if err != nil {
			t.Fatal(err)
		}
		for step := range 3 {
			part := float64(step) / 2
			err = errors.Join(err, f.Log(run.Record{Step: step, Values: map[string]float64{
				"eval_logps/chosen": -10 + part*x[0], "eval_logps/rejected": -20 + part*x[1],
				"eval_rewards/accuracies": x[2], "eval_rewards/margins": part * x[2]}}))
		}
		if err := errors.Join(err, f.WriteSummary("done"), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	table := seedsTable{command: []string{"mappo"}, arms: [][]string{{"none", "a=1"}, {"mappo", "a=1"},
		{"mappo", "minus", "none"}}}
	if err := o.run(table, out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{ // the accuracies' difference is 0 but for rounding
		"| none | -2.00 ± 12.71 | -4.00 | +2.00 ± 12.71 | +0.600 ± 1.271 | 60.00 ± 127.06 |\n",
		"| mappo | +0.00 ± 12.71 | -1.50 ± 6.35 | +1.50 ± 6.35 | +0.600 | 60.00 |\n",
		"| mappo minus none | +2.00 | +2.50 ± 6.35 | -0.50 ± 6.35 | ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, out)
		}
	}
}

// TestFinalReturn: of rounds the last ten count, of updates ten for each agent; records without an episode count not.
func TestFinalReturn(t *testing.T) {
	var all []run.Record
	for i := range 40 {
		all = append(all, run.Record{Step: i, Values: map[string]float64{"return": float64(i), "present": 2, "bytes_up/0": 1e3,
			"bytes_up/1": 3e3}})
	}
	delete(all[39].Values, "return")
	final, up := federatedMeasures[0].of, federatedMeasures[3].of
	a, c := final(all), up(all)
	delete(all[0].Values, "present") // an update
	if b := final(all); a != 34 || b != 29 || c != 2 {
		t.Errorf("%v, %v and %v kB", a, b, c)
	}
	if got := iterations(all); len(got) != 20 || got[0] != 0.5 || got[19] != 38 {
		t.Errorf("%v", got)
	}
}

// TestAFolderHasOneRun: a run with other keys does not get the numbers that a folder has from other ones.
func TestAFolderHasOneRun(t *testing.T) {
	o := &seedsOptions{binary: "none", dir: t.TempDir(), seeds: 1, first: 1}
	f, err := run.Create(filepath.Join(o.dir, "arm-1"), "test")
	if err != nil {
		t.Fatal(err)
	}
	record := run.Record{Values: map[string]float64{"return": 1, "present": 1, "bytes_up/0": 1}}
	if err := errors.Join(f.Log(record), f.WriteSummary("ended"), f.Close()); err != nil {
		t.Fatal(err)
	}
	table := seedsTable{command: []string{"federated", "simulate"}, arms: [][]string{{"arm", "rounds=10"}}}
	if _, err := o.result(table, table.arms[0], 1); err != nil {
		t.Fatal(err)
	}
	_, err = o.result(table, []string{"arm", "rounds=1000"}, 1)
	expect.Error(t, err, "has the run of federated simulate rounds=10, want that of federated simulate rounds=1000")
}

// TestDocs: what the documents run by go run ./internal/speed is a comparison, with flags that it has.
func TestDocs(t *testing.T) {
	documents, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	// between backquotes, or a line of a block with those that it continues on
	command := regexp.MustCompile("`go run ./internal/speed ([^`]+)`|(?m)^go run ./internal/speed ((?:.*\\\\\n)*.*)$")
	for _, path := range documents {
		text := expect.Read(t, path)
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			cmd, rest, err := newRoot().Find(strings.Fields(strings.ReplaceAll(m[1]+m[2], "\\\n", "")))
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if found++; err != nil {
				t.Errorf("%s: %s: %v", path, m[0], err)
			}
		}
	}
	if found < 5 {
		t.Errorf("found %d: want more", found)
	}
}
