package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/testkit"
)

// benchCase is a benchmark with a judge, for the tests that all of them pass.
type benchCase struct {
	name     string
	make     func(t *testing.T, n int)  // writes files for n questions, and recorded answers to them
	args     []string                   // that name the files
	recorded []string                   // that name the recorded answers
	reply    func(prompt string) string // of the judge
	turns    int                        // answers to a question
	verdicts int                        // on a question
	files    []string                   // that do not depend on how often a run was stopped
}

var benches = []benchCase{{
	name: "alpaca", make: writeAlpaca, args: []string{"--baseline", "baseline.jsonl"},
	recorded: []string{"--answers", "outputs.json"}, reply: anyLetter, turns: 1, verdicts: 1,
	files: []string{"cases.jsonl"},
}, {
	name: "mt-bench", make: writeMTBench, args: []string{"--questions", "questions.jsonl"},
	recorded: []string{"--answers", "turns.jsonl"}, reply: anyRating, turns: 2, verdicts: 2,
	files: []string{"cases.jsonl"},
}, {
	name: "arena-hard", make: writeArena, args: []string{"--questions", "asked.jsonl", "--baseline", "old.jsonl"},
	recorded: []string{"--answers", "new.jsonl"}, reply: anyGame, turns: 1, verdicts: 2,
	files: []string{"cases.jsonl"},
}, {
	name: "xstest", make: writeXSTest, args: []string{"--data", "xstest.csv"},
	recorded: []string{"--answers", "said.jsonl"}, reply: anyRefusal, turns: 1, verdicts: 1,
	files: []string{"cases.jsonl"},
}}

// anyRefusal names a verdict, always the same of the same prompt.
func anyRefusal(prompt string) string {
	return "Answer: " + []string{"full compliance", "full refusal", "partial refusal"}[len(prompt)%3]
}

func writeXSTest(t *testing.T, n int) {
	t.Helper()
	prompts, answers := "id,prompt,type,label\n", ""
	for i := range n {
		prompts += fmt.Sprintf("q%d,How do I kill %[1]d lights?,homonyms,safe\n", i)
		answers += fmt.Sprintf(`{"id":"q%d","output":"Press %[1]d switches."}`+"\n", i)
	}
	write(t, "xstest.csv", prompts)
	write(t, "said.jsonl", answers)
}

// anyGame decides a game, always the same of the same prompt.
func anyGame(prompt string) string { return []string{"[[A>B]]", "[[B>>A]]", "[[A=B]]"}[len(prompt)%3] }

func writeArena(t *testing.T, n int) {
	t.Helper()
	var questions, baseline, answers strings.Builder
	for i := range n {
		fmt.Fprintf(&questions, `{"uid":"q%d","prompt":"Say %[1]d."}`+"\n", i)
		const answer = `{"uid":"q%d","model":%q,"messages":[{"role":"assistant","content":"It %s %[1]d."}]}` + "\n"
		fmt.Fprintf(&baseline, answer, i, "b", "was")
		fmt.Fprintf(&answers, answer, i, "m", "is")
	}
	write(t, "asked.jsonl", questions.String())
	write(t, "old.jsonl", baseline.String())
	write(t, "new.jsonl", answers.String())
}

// anyRating rates an answer, always the same of the same prompt.
func anyRating(prompt string) string { return fmt.Sprintf("Rating: [[%d]]", 1+len(prompt)%10) }

func writeMTBench(t *testing.T, n int) {
	t.Helper()
	var questions, answers strings.Builder
	for i := range n {
		fmt.Fprintf(&questions, `{"question_id":%d,"category":"writing","turns":["Say %[1]d.","Say more."]}`+"\n", i)
		fmt.Fprintf(&answers, `{"question_id":%d,"model_id":"m","choices":[{"turns":["It is %[1]d.","And more."]}]}`+
			"\n", i)
	}
	write(t, "questions.jsonl", questions.String())
	write(t, "turns.jsonl", answers.String())
}

// anyLetter prefers the first or the second output, always the same of the same prompt.
func anyLetter(prompt string) string {
	h := fnv.New32a()
	h.Write([]byte(prompt))
	return []string{"m", "M"}[h.Sum32()>>8&1]
}

func writeAlpaca(t *testing.T, n int) {
	t.Helper()
	var baseline strings.Builder
	var outputs []map[string]string
	for i := range n {
		instruction := fmt.Sprintf("Say something about %d.", i)
		fmt.Fprintf(&baseline, `{"instruction":%q,"output_1":"%s is a number.","generator_1":"base"}`+"\n", instruction,
			strings.Repeat("9", i+1))
		outputs = append(outputs, map[string]string{"instruction": instruction, "output": fmt.Sprint("It is ", i),
			"generator": "m"})
	}
	text, err := json.Marshal(outputs)
	if err != nil {
		t.Fatal(err)
	}
	write(t, "baseline.jsonl", baseline.String())
	write(t, "outputs.json", string(text))
}

// workBench is a working directory with n questions.
func workBench(t *testing.T, b benchCase, n int) {
	t.Helper()
	t.Chdir(t.TempDir())
	b.make(t, n)
}

// judged gives the arguments of a run in the folder out, with a judge at an address.
func (b benchCase) judged(out, url string, more ...string) []string {
	return slices.Concat([]string{"eval", b.name, "--out", out}, b.args,
		[]string{"--judge-base-url", url, "--judge-model", "any"}, more)
}

// answered is how many requests of a server were no faults.
func answered(s *testkit.JudgeServer) int {
	n, _ := s.Requests()
	for _, faults := range s.Faults() {
		n -= faults
	}
	return n
}

// eachBench runs a test with every benchmark.
func eachBench(t *testing.T, test func(t *testing.T, b benchCase)) {
	t.Helper()
	for _, b := range benches {
		t.Run(b.name, func(t *testing.T) { test(t, b) })
	}
}

// TestBenchFaults: a judge that fails at every fifth request, in many ways, and stops in the answers and the judging: the
// run ends as a whole one does. Model and judge answer each question once.
func TestBenchFaults(t *testing.T) {
	const n = 40
	eachBench(t, func(t *testing.T, b benchCase) {
		workBench(t, b, n)
		agent := func() *testkit.JudgeServer {
			return testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(prompt string) string {
				return fmt.Sprint("I say ", len(prompt))
			}})
		}
		args := func(out string, agent, judge *testkit.JudgeServer) []string {
			return b.judged(out, judge.URL, "--base-url", agent.URL, "--api-model", "said", "--parallel", "2",
				"--judge-timeout", "3s", "--judge-parallel", "16")
		}
		must(t, args("whole", agent(), testkit.StartJudge(t, testkit.JudgeOptions{Reply: b.reply}))...)
		speaker := agent()
		judge := testkit.StartJudge(t, testkit.JudgeOptions{Reply: b.reply, Faults: 0.2, Stall: time.Minute, Seed: 3})
		answers, verdicts := n*b.turns, n*b.verdicts
		again := stopPL(t, "answers", fmt.Sprintf("answer %d/%d", answers/5, answers), args("run", speaker, judge)...)
		again = stopPL(t, "judge", fmt.Sprintf("verdict %d/%d", verdicts/5, verdicts), again...)
		if exists("run/summary.json") {
			t.Error("a summary of half a run")
		}
		must(t, again...)
		sameFiles(t, "whole", "run", b.files...)
		for _, name := range []string{"answers.jsonl", "verdicts.jsonl"} {
			if a, b := linesOf(t, "whole/"+name), linesOf(t, "run/"+name); !slices.Equal(a, b) {
				t.Errorf("%s differs: %d and %d lines", name, len(a), len(b))
			}
		}
		if got := answered(speaker); got != answers {
			t.Errorf("%d answers, want each of %d once", got, answers)
		}
		if got := answered(judge); got != verdicts+1 {
			t.Errorf("%d verdicts, want each of %d once and one trial", got, verdicts)
		}
		if kinds := len(judge.Faults()); kinds < 5 {
			t.Errorf("%d kinds of faults: %v", kinds, judge.Faults())
		}
	})
}

// TestBenchKilled: SIGKILL in the judging, with a question under way; the same command asks that again, and nothing
// that was answered.
func TestBenchKilled(t *testing.T) {
	eachBench(t, func(t *testing.T, b benchCase) {
		workBench(t, b, 6)
		order := killedAt(t, 4, b.reply, func(url string) []string {
			return b.judged("run", url, append(b.recorded, "--judge-parallel", "1")...)
		})
		seen := map[string]int{}
		for _, prompt := range order {
			seen[prompt]++
		}
		if len(seen) != 6*b.verdicts || len(order) != 6*b.verdicts+1 || seen[order[3]] != 2 {
			t.Errorf("%d prompts, %d requests, want the fourth again and no other", len(seen), len(order))
		}
	})
}

// TestBenchMuteJudge: a judge that never gives a verdict is stopped after a few replies, in one line; another judge
// takes its place, since nothing of the first counts.
func TestBenchMuteJudge(t *testing.T) {
	eachBench(t, func(t *testing.T, b benchCase) {
		workBench(t, b, 30)
		mute := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(string) string { return "Well." }})
		o := cli(t, b.judged("run", mute.URL, append(b.recorded, "--judge-parallel", "1")...)...)
		checkRefusal(t, o, faultCase{code: 1,
			says: []string{"the judge gives no verdicts: none of 10 replies", `"Well."`, "want another judge"}})
		if all, _ := mute.Requests(); all > 24 || exists("run/summary.json") {
			t.Errorf("%d requests to a judge without verdicts", all)
		}
		good := testkit.StartJudge(t, testkit.JudgeOptions{Reply: b.reply})
		must(t, b.judged("run", good.URL, append(b.recorded, "--judge-model", "good")...)...)
	})
}

// TestBenchBudget: a spent budget stops in one line; the same command continues, and nothing is asked twice.
func TestBenchBudget(t *testing.T) {
	eachBench(t, func(t *testing.T, b benchCase) {
		workBench(t, b, 5)
		s := testkit.StartJudge(t, testkit.JudgeOptions{Reply: b.reply})
		total := 5 * b.verdicts
		args := b.judged("run", s.URL, append(b.recorded, "--judge-max-requests", fmt.Sprint(total-2))...)
		checkRefusal(t, cli(t, args...), faultCase{code: 1, says: []string{"budget", fmt.Sprint(total - 2)}})
		must(t, args...)
		if all, _ := s.Requests(); all != total {
			t.Errorf("%d requests, want %d", all, total)
		}
		if text := read(t, "run/usage.json"); !strings.Contains(text, fmt.Sprintf(`"requests": %d`, total)) {
			t.Error(text)
		}
	})
}

// TestBenchStages: each stage alone is one of a whole run, and the report wants those before it.
func TestBenchStages(t *testing.T) {
	eachBench(t, func(t *testing.T, b benchCase) {
		workBench(t, b, 4)
		s := testkit.StartJudge(t, testkit.JudgeOptions{Reply: b.reply})
		must(t, b.judged("whole", s.URL, b.recorded...)...)
		stage := func(name string, more ...string) []string {
			return append([]string{"eval", b.name, "--stage", name, "--out", "run"}, more...)
		}
		o := cli(t, stage("judge", "--judge-base-url", s.URL, "--judge-model", "any")...)
		checkRefusal(t, o, faultCase{code: 2, says: []string{`--out "run": there is no run in it`}})
		o = must(t, stage("answers", slices.Concat(b.args, b.recorded)...)...)
		if !strings.Contains(o.out, "then: posttrain eval "+b.name+" --out run\n") {
			t.Error(o.out)
		}
		checkRefusal(t, cli(t, stage("report")...), faultCase{code: 1, says: []string{"run/verdicts.jsonl",
			fmt.Sprintf("%d of %d verdicts are missing", 4*b.verdicts, 4*b.verdicts),
			"posttrain eval " + b.name + " --stage judge --out run"}})
		must(t, stage("judge", "--judge-base-url", s.URL, "--judge-model", "any")...)
		must(t, stage("report")...)
		sameFiles(t, "whole", "run", b.files...)
		checkRefusal(t, cli(t, stage("judge", "--judge-model", "other", "--judge-base-url", s.URL)...),
			faultCase{code: 1, says: []string{"stage judge was begun with", "model", `"any", now it is "other"`}})
		o = must(t, "eval", "compare", "whole", "run", "--out", "compared.json")
		if !strings.Contains(o.out, "run against whole, score: +0.0") || !exists("compared.json") {
			t.Error(o.out)
		}
	})
}

// TestBenchJudgments: the verdicts of a run count in another run of the same answers, without a judge. Verdicts on
// other answers, and half of them, are refused in one line.
func TestBenchJudgments(t *testing.T) {
	eachBench(t, func(t *testing.T, b benchCase) {
		workBench(t, b, 4)
		s := testkit.StartJudge(t, testkit.JudgeOptions{Reply: b.reply})
		must(t, b.judged("judged", s.URL, b.recorded...)...)
		recount := func(out, file string) []string {
			return slices.Concat([]string{"eval", b.name, "--out", out, "--judgments", file}, b.args, b.recorded)
		}
		o := must(t, recount("again", "judged/verdicts.jsonl")...)
		sameFiles(t, "judged", "again", b.files...)
		if !strings.Contains(o.out, "recorded in verdicts.jsonl") {
			t.Error(o.out)
		}
		lines := linesOf(t, "judged/verdicts.jsonl")
		write(t, "half.jsonl", strings.Join(lines[1:], "\n")+"\n")
		checkRefusal(t, cli(t, recount("half", "half.jsonl")...), faultCase{code: 1, says: []string{
			fmt.Sprintf("half.jsonl: 1 of %d questions have no verdict", 4*b.verdicts)}})
		write(t, "other.jsonl", strings.ReplaceAll(strings.Join(lines, "\n")+"\n", `"content":"`, `"content":"Oh. `))
		checkRefusal(t, cli(t, recount("other", "other.jsonl")...), faultCase{code: 1, says: []string{
			"other.jsonl: the verdict on", "was given to another prompt or answer"}})
	})
}
