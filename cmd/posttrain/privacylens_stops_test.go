package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/eval/privacylens"
)

var plGoOn = regexp.MustCompile(`^posttrain: interrupted in stage (\w+): continue with posttrain (.*)$`)

// stopPL runs a command, interrupts it at a text, and returns the words of the command that its last line names.
func stopPL(t *testing.T, stage, until string, args ...string) []string {
	t.Helper()
	o := cliUntil(t, until, args...)
	m := plGoOn.FindStringSubmatch(o.last())
	if o.code != exitInterrupted || m == nil || m[1] != stage || strings.Count(o.err, "posttrain: ") != 1 {
		t.Fatalf("exit code %d, want %d and a command to continue stage %s:\n%s", o.code, exitInterrupted, stage, o.err)
	}
	return words(t, m[2])
}

// linesOf are the lines of a file, in order of the alphabet.
func linesOf(t *testing.T, path string) []string {
	t.Helper()
	return slices.Sorted(strings.Lines(read(t, path)))
}

// once wants every prompt to have arrived once.
func (s *plServer) once(t *testing.T, want int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) != want {
		t.Errorf("%d prompts, want %d", len(s.seen), want)
	}
	for prompt, n := range s.seen {
		if n != 1 {
			t.Errorf("asked %d times: %q", n, prompt)
		}
	}
}

// TestPLInterruptedAtServers: Ctrl-C in the actions, then in the judging; the command that the message names ends in
// what a whole run ends in, and the judge is asked nothing twice.
func TestPLInterruptedAtServers(t *testing.T) {
	workPL(t)
	args := func(agent, judge *plServer) []string {
		return []string{"--base-url", agent.URL, "--api-model", "leaky", "--parallel", "2", "--judge-base-url",
			judge.URL, "--judge-model", "flu", "--judge-parallel", "2",
			"--set", "agent.max_new_tokens=50", "--set", "judge.retries=3"}
	}
	must(t, ofData("whole", args(agentServer(t), judgeServer(t))...)...)
	agent, judge := agentServer(t), judgeServer(t)
	again := stopPL(t, "answers", "answer 2/6", ofData("it's stopped", args(agent, judge)...)...)
	if n := strings.Count(read(t, "it's stopped/answers.jsonl"), "\n"); n < 2 || n > 4 {
		t.Errorf("%d actions at the stop, want 2 and those under way", n)
	}
	if exists("it's stopped/verdicts.jsonl") || judge.requests() != 1 {
		t.Errorf("%d requests to the judge before there are actions", judge.requests())
	}
	again = stopPL(t, "judge", "verdict 8/15", again...)
	if exists("it's stopped/summary.json") {
		t.Error("a summary of half a run")
	}
	o := must(t, again...)
	checkTable(t, o, "it's stopped")
	sameFiles(t, "whole", "it's stopped", "cases.jsonl", "verdicts.json", "helpfulness.json", "actions.csv")
	if a, b := linesOf(t, "whole/verdicts.jsonl"), linesOf(t, "it's stopped/verdicts.jsonl"); !slices.Equal(a, b) {
		t.Errorf("%s\n%s", a, b)
	}
	judge.once(t, 16)
	agent.once(t, 6) // what is under way at the stop is waited for
}

// TestPLInterruptedStages: each stage alone continues, too; with as many stops as there are cases.
func TestPLInterruptedStages(t *testing.T) {
	workPL(t)
	agent, judge := agentServer(t), judgeServer(t)
	stages := map[string][]string{
		"answers": {"--data", "cases.json", "--base-url", agent.URL, "--api-model", "leaky", "--parallel", "1"},
		"judge":   {"--judge-base-url", judge.URL, "--judge-model", "flu", "--judge-parallel", "1"},
	}
	for _, stage := range []string{"answers", "judge"} {
		args := append([]string{"eval", "privacylens", "--stage", stage, "--out", "run"}, stages[stage]...)
		unit := map[string]string{"answers": "answer %d/6", "judge": "verdict %d/15"}[stage]
		for i := 1; i < 6; i++ {
			args = stopPL(t, stage, fmt.Sprintf(unit, i), args...)
			if !strings.Contains(strings.Join(args, " "), "--stage "+stage) {
				t.Fatalf("%q is another command", args)
			}
		}
		must(t, args...)
	}
	must(t, "eval", "privacylens", "--stage", "report", "--out", "run")
	checkCounts(t, "run", 3, 6, 3, 3, 9)
	judge.once(t, 15)
}

// TestPLInterruptedEarly: a stop ahead of the first answer, or in the wait for a server that is not there, is still a
// stop; the run folder that the command chose by itself is named.
func TestPLInterruptedEarly(t *testing.T) {
	workPL(t)
	again := stopPL(t, "answers", "rows read", "eval", "privacylens")
	runs, err := filepath.Glob("runs/privacylens-*")
	if err != nil || len(runs) != 1 || again[len(again)-1] != runs[0] {
		t.Fatalf("%v, %v, continue with %q", runs, err, again)
	}
	again = stopPL(t, "judge", "verdict 4/", again...)
	must(t, again...)
	must(t, pl("whole")...)
	sameFiles(t, "whole", runs[0], "summary.json", "cases.jsonl", "verdicts.json", "config.yaml")

	absent := withServers(t, []string{"NOBODY"})[0]
	again = stopPL(t, "answers", "answer 0/6", ofData("absent", "--base-url", absent, "--api-model", "leaky", "--judge",
		"keyword")...)
	must(t, append(again, "--base-url", agentServer(t).URL)...)
	checkCounts(t, "absent", 3, 6, 0, 0, 0)
}

// TestPLBudget: a spent budget stops in one line; the same command continues, until all is judged, and nothing is asked
// twice.
func TestPLBudget(t *testing.T) {
	workPL(t)
	s := judgeServer(t)
	args := ofData("run", "--answers", "actions.csv", "--judge-base-url", s.URL, "--judge-model", "flu",
		"--judge-max-requests", "6")
	for _, want := range []int{6, 12} {
		checkRefusal(t, cli(t, args...), faultCase{code: 1, says: []string{"budget", "6"}})
		if s.requests() != want || exists("run/summary.json") {
			t.Errorf("%d requests, want %d", s.requests(), want)
		}
	}
	must(t, args...)
	s.once(t, 15)
	checkCounts(t, "run", 3, 6, 3, 3, 9)

	rich := judgeServer(t)
	args = ofData("cost", "--answers", "actions.csv", "--judge-base-url", rich.URL, "--judge-model", "flu",
		"--judge-prompt-price", "1e6", "--judge-completion-price", "1e6")
	checkRefusal(t, cli(t, append(args, "--judge-max-cost", "5000")...), faultCase{code: 1, says: []string{"budget", "5000"}})
	spent := rich.requests()
	if spent == 0 || spent > 14 {
		t.Errorf("%d requests for 5000 at a price of 1 a token", spent)
	}
	must(t, append(args, "--judge-max-cost", "0")...) // the folder's config keeps the budget of its first command
	rich.once(t, 15)
}

// workLocal is workPL with a tiny model, and prompts that are short enough for it, but for the last case's.
func workLocal(t *testing.T) []privacylens.Case {
	t.Helper()
	cases := workPL(t)
	copyModel(t, fixture("qwen2-newer"), "model")
	cases[5].Trajectory.Instruction += strings.Repeat(" And then some.", 30)
	writeCases(t, "cases.json", cases, leakyAction)
	writeShortPrompts(t)
	return cases
}

// writeShortPrompts makes the folder short, with prompts that fit a tiny model.
func writeShortPrompts(t *testing.T) {
	t.Helper()
	for _, kind := range privacylens.Kinds {
		write(t, "short/agent-"+kind+".tmpl", "{{.Instruction}} {{.Past}} {{.FinalAction}}")
	}
	write(t, "short/guard-airgap.tmpl", "{{.Instruction}} {{.Past}}")
}

// local are the flags of the tiny model.
func localRun(more ...string) []string {
	return append([]string{"--model", "model", "--backend", "go", "--prompts", "short", "--max-new-tokens", "6",
		"--batch", "2"}, more...)
}

// actionsOf reads answers.jsonl by name.
func actionsOf(t *testing.T, dir string) map[string]bench.Answer {
	t.Helper()
	rows := map[string]bench.Answer{}
	for line := range strings.Lines(read(t, dir+"/answers.jsonl")) {
		var r bench.Answer
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		rows[r.ID] = r
	}
	return rows
}

// TestPLLocalModel: a model of this process acts, as its seed says; a prompt that it has no room for is no action, and
// counted.
func TestPLLocalModel(t *testing.T) {
	cases := workLocal(t)
	o := must(t, ofData("run", localRun("--judge", "keyword")...)...)
	checkTable(t, o, "run")
	rows := actionsOf(t, "run")
	for i, c := range cases {
		r := rows[c.Name]
		if long := i == 5; (r.Reason == bench.TooLong) != long || (r.Output == "") != long ||
			len(r.Prompt) != 64 {
			t.Errorf("%+v", r)
		}
	}
	a := plSummary(t, "run").All
	if a.TooLong != 1 || a.NoAction.Count != 6 || a.Leakage.Count != 0 ||
		!strings.Contains(o.out, "model, prompt naive; judge: keyword") ||
		!regexp.MustCompile(`(?m)^.*too long.*1`).MatchString(o.out) {
		t.Errorf("%+v\n%s", a, o.out)
	}
	must(t, ofData("same", localRun("--judge", "keyword")...)...)
	must(t, ofData("other", localRun("--judge", "keyword", "--seed", "1")...)...)
	sameFiles(t, "run", "same", "answers.jsonl", "cases.jsonl", "summary.json")
	if read(t, "run/answers.jsonl") == read(t, "other/answers.jsonl") {
		t.Error("another seed, the same actions")
	}
}

// TestPLLocalModelInterrupted: a stopped run has the rows of a whole one, whatever the batch in which it was stopped,
// of both passes of a guard.
func TestPLLocalModelInterrupted(t *testing.T) {
	workLocal(t)
	args := localRun("--judge", "keyword", "--prompt", "cot", "--guard", "airgap")
	must(t, ofData("whole", args...)...)
	again := stopPL(t, "answers", "answer 1/12", ofData("run", args...)...)
	if n := len(actionsOf(t, "run")); n == 0 || n == 6 {
		t.Errorf("%d cases at the stop", n)
	}
	again = stopPL(t, "answers", "answer 8/12", again...)
	must(t, again...)
	sameFiles(t, "whole", "run", append(plReport[:3:3], "answers.jsonl", "settings.json", "config.yaml")...)
}

// TestPLTakenAwayFolder: a run whose folder is renamed says so and fails, and continues under its new name.
func TestPLTakenAwayFolder(t *testing.T) {
	workLocal(t)
	args := localRun("--judge", "keyword")
	must(t, ofData("whole", args...)...)
	err := &watched{until: "answer 1/6", act: func() {
		if err := os.Rename("run", "moved"); err != nil {
			t.Error(err)
		}
	}}
	code := execute(t.Context(), streams{in: strings.NewReader(""), out: io.Discard, err: err}, ofData("run", args...))
	if o := (outcome{code: code, err: err.String()}); code != exitFailed || exists("run") ||
		!strings.HasPrefix(o.last(), "posttrain: run folder run was deleted, renamed or replaced") {
		t.Errorf("exit code %d: %s", code, o.err)
	}
	must(t, "eval", "privacylens", "--out", "moved")
	sameFiles(t, "whole", "moved", plReport[:3]...)
}

// TestPLLocalProbe: a model of this process is probed, and a stopped probe ends as a whole one does. It names no
// letter, which is shown.
func TestPLLocalProbe(t *testing.T) {
	workLocal(t)
	write(t, "model/config.json", strings.Replace(read(t, "model/config.json"), `"max_position_embeddings": 256`,
		`"max_position_embeddings": 4000`, 1))
	args := []string{"eval", "privacylens", "--form", "probe", "--data", "cases.json", "--model", "model", "--backend",
		"go", "--first", "3", "--levels", "seed,vignette", "--max-new-tokens", "2"}
	must(t, append(args, "--out", "whole")...)
	must(t, stopPL(t, "answers", "answer 1/12", append(args, "--batch", "1", "--out", "run")...)...)
	if a, b := linesOf(t, "whole/answers.jsonl"), linesOf(t, "run/answers.jsonl"); !slices.Equal(a, b) || len(a) != 12 {
		t.Errorf("%s\n%s", a, b)
	}
	if p := plSummary(t, "run").Probing; len(p) != 2 || p[0].Unparsed != 6 || p[0].Shuffled.Total != 3 {
		t.Errorf("%+v", p)
	}
}

// TestPLNothingFits: one line, and nothing is left behind.
func TestPLNothingFits(t *testing.T) {
	workLocal(t)
	before := tree(t)
	for _, args := range [][]string{
		ofData("run", "--model", "model", "--backend", "go", "--judge", "keyword"),
		{"eval", "privacylens", "--stage", "answers", "--data", "cases.json", "--out", "run", "--model", "model", "--backend",
			"go"},
	} {
		checkRefusal(t, cli(t, args...), faultCase{code: 1,
			says: []string{"no prompt fits the model", "model has 256 positions", "the shortest prompt has "}})
		if after := tree(t); !slices.Equal(before, after) {
			t.Errorf("left behind: %q", after)
		}
	}
}

// TestPLKilled: SIGKILL in the middle of the judging, with a question on its way; going on asks that again, and nothing
// that was answered, but for the last reply, which may not have reached the disk.
func TestPLKilled(t *testing.T) {
	workPL(t)
	order := killedAt(t, 7, fluJudge, func(url string) []string {
		return ofData("run", "--answers", "actions.csv", "--judge-base-url", url, "--judge-model", "flu",
			"--judge-parallel", "1")
	})
	seen := map[string]int{}
	for _, prompt := range order {
		seen[prompt]++
	}
	checkCounts(t, "run", 3, 6, 3, 3, 9)
	if again := len(order) - len(seen); len(seen) != 15 || seen[order[6]] != 2 || again != seen[order[5]] {
		t.Errorf("%d prompts, %d requests, want the seventh again, and perhaps the sixth: %v", len(seen), len(order),
			seen)
	}
}

// TestPLUsage: usage.json has what all calls of the command have asked the judge for, also that which came after the
// stop.
func TestPLUsage(t *testing.T) {
	workPL(t)
	judge := judgeServer(t)
	args := ofData("out", "--answers", "actions.csv", "--judge-base-url", judge.URL, "--judge-model", "flu",
		"--judge-prompt-price", "1", "--judge-completion-price", "1", "--judge-max-requests", "6")
	for range 2 {
		if o := cli(t, args...); o.code != 1 || !strings.Contains(o.err, "judge: ") ||
			strings.Contains(o.err, " 0 tokens of prompts") {
			t.Fatalf("exit code %d: %s", o.code, o.err)
		}
	}
	o := must(t, args...)
	var usage map[string]struct {
		Requests int
		Cost     float64
	}
	if err := json.Unmarshal([]byte(read(t, "out/usage.json")), &usage); err != nil {
		t.Fatal(err)
	}
	if u := usage["flu"]; u.Requests != 15 || u.Cost <= 0 || !strings.Contains(o.err, "judge, with earlier calls: ") ||
		judge.requests() != 15 {
		t.Errorf("%+v after %d requests: %s", u, judge.requests(), o.err)
	}
}

// TestPLStopsWhereNothingIsUnderWay: a stop does not wait for the next try of a server that fails, and counts what the
// judge was asked ahead of the actions.
func TestPLStopsWhereNothingIsUnderWay(t *testing.T) {
	workPL(t)
	judge := judgeServer(t)
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "100")
		http.Error(w, "", http.StatusServiceUnavailable)
	}))
	t.Cleanup(failing.Close)
	begun := time.Now()
	stopPL(t, "answers", "answer 0/6", ofData("out", "--base-url", failing.URL+"/v1", "--api-model", "leaky",
		"--judge-base-url", judge.URL, "--judge-model", "flu")...)
	if spent := time.Since(begun); spent > 20*time.Second {
		t.Errorf("it took %v to stop", spent)
	}
	if !strings.Contains(read(t, "out/usage.json"), `"requests": 1`) || judge.requests() != 1 {
		t.Errorf("%d requests; %s", judge.requests(), read(t, "out/usage.json"))
	}
}

// TestPLDamagedUsage: counts that cannot be read begin anew, and hold nothing up.
func TestPLDamagedUsage(t *testing.T) {
	for _, damage := range []string{"null", `{"flu": 3}`, "{"} {
		workPL(t)
		judge := judgeServer(t)
		must(t, "eval", "privacylens", "--stage", "answers", "--out", "out", "--data", "cases.json", "--answers", "actions.csv")
		write(t, "out/usage.json", damage)
		must(t, "eval", "privacylens", "--stage", "judge", "--out", "out", "--judge-base-url", judge.URL, "--judge-model", "flu")
		if text := read(t, "out/usage.json"); !strings.Contains(text, `"requests": 15`) {
			t.Errorf("%s: %s", damage, text)
		}
	}
}
