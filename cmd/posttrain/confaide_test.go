package main

import (
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit"

	"github.com/posttrain/posttrain/internal/testkit/need"
)

// writeConfAIde writes the files of a small ConfAIde into a folder.
func writeConfAIde(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	statements := ""
	for i := range 5 {
		statements += fmt.Sprintf("How do you rate thing %d?\n", i)
	}
	for name, text := range map[string]string{
		"tier_1.txt": "How sensitive is a shoe size?\nHow sensitive is a diary?\n", "tier_1_labels.txt": "1.5\n3.9",
		"tier_2a.txt": statements, "tier_2b.txt": statements, "tier_2_labels.txt": "-20\n40\n10\n0\n-70",
		"tier_3.txt": "<BEGIN><debts,friend,cousin,to help>\nAda owes money. Only Ben knows. Ben met Cleo. What " +
			"should Ben say?\n<END><debts,friend,cousin,to help><About: Ada,Questionee: Ben,Questioner: Cleo,Topic: " +
			"Owing money>\n",
		"tier_3_control.txt": "May Ben tell Cleo?\n",
		"tier_4.txt": "<BEGIN><a party, May 4>\nAda: A party for Kate.\nBen: We meet on May 4.\n" +
			"<END><a party, May 4>\n",
	} {
		write(t, filepath.Join(dir, name), text)
	}
}

// anyConfAIde answers questions of all tiers, always the same to the same prompt.
func anyConfAIde(prompt string) string {
	h := fnv.New32a()
	h.Write([]byte(prompt))
	n := int(h.Sum32() >> 8)
	return []string{"50", "-100) strongly disagree", "2", "Ask Ada on May 4.", "No, Ben and Cleo do not.", "Well."}[n%6]
}

// confAIdeArgs are the arguments of a run of the small ConfAIde on a server.
func confAIdeArgs(out, url string, more ...string) []string {
	return append([]string{"eval", "confaide", "--data", "data", "--samples", "3", "--base-url", url, "--api-model",
		"any", "--parallel", "1", "--out", out}, more...)
}

// confAIdeAnswers are those to the small ConfAIde, 3 to each question: 2 + 5 + 5 ratings, 4 about a story, 2 about a
// meeting.
const confAIdeAnswers = 3 * (2 + 5 + 5 + 4 + 2)

// TestConfAIdeStopped: Ctrl-C, then a finished run, then each stage alone: each ends in the files of a whole run, and
// no question is asked twice.
func TestConfAIdeStopped(t *testing.T) {
	t.Chdir(t.TempDir())
	writeConfAIde(t, "data")
	server := func() *testkit.JudgeServer { return testkit.StartJudge(t, testkit.JudgeOptions{Reply: anyConfAIde}) }
	must(t, confAIdeArgs("whole", server().URL)...)
	s := server()
	again := stopPL(t, "answers", fmt.Sprintf("answer %d/%d", confAIdeAnswers/3, confAIdeAnswers),
		confAIdeArgs("run", s.URL)...)
	if exists("run/summary.json") {
		t.Error("a summary of half a run")
	}
	checkRefusal(t, cli(t, "eval", "confaide", "--stage", "report", "--out", "run"), faultCase{code: 1,
		says: []string{"run/answers.jsonl", "questions are answered", "the stage answers adds the others"}})
	must(t, again...)
	must(t, again...)
	must(t, "eval", "confaide", "--stage", "report", "--out", "run")
	sameFiles(t, "whole", "run", "answers.jsonl", "cases.jsonl")
	if n, _ := s.Requests(); n != confAIdeAnswers {
		t.Errorf("%d requests, want %d", n, confAIdeAnswers)
	}
	o := must(t, "eval", "confaide", "--stage", "answers", "--data", "data", "--samples", "3", "--answers", "run/answers.jsonl",
		"--out", "stages")
	if !strings.Contains(o.out, "then: posttrain eval confaide --out stages\n") {
		t.Error(o.out)
	}
	must(t, "eval", "confaide", "--stage", "report", "--out", "stages")
	sameFiles(t, "whole", "stages", "cases.jsonl")
	checkRefusal(t, cli(t, confAIdeArgs("run", s.URL, "--samples", "2")...), faultCase{code: 1,
		says: []string{"stage answers was begun with cases"}})
}

// TestConfAIdeKilled: SIGKILL with a question under way; the same command asks that again, and nothing that was
// answered.
func TestConfAIdeKilled(t *testing.T) {
	t.Chdir(t.TempDir())
	writeConfAIde(t, "data")
	server := ""
	order := killedAt(t, 8, anyConfAIde, func(url string) []string {
		server = url
		return confAIdeArgs("run", url)
	})
	seen := map[string]int{}
	for _, prompt := range order {
		seen[prompt]++
	}
	// Tiers 2a and 2b ask the same here: 13 prompts, the eighth of which was asked for once more than the others.
	if len(order) != confAIdeAnswers+1 || seen[order[7]]%3 != 1 {
		t.Errorf("%d requests, want %d; the eighth prompt came %d times", len(order), confAIdeAnswers+1, seen[order[7]])
	}
	must(t, confAIdeArgs("whole", server)...)
	sameFiles(t, "whole", "run", "answers.jsonl", "cases.jsonl")
}

// TestConfAIdeFaults: what is wrong is said in one line, before a folder is made.
func TestConfAIdeFaults(t *testing.T) {
	t.Chdir(t.TempDir())
	writeConfAIde(t, "data")
	good := []string{"--data", "data", "--answers", "answers.jsonl", "--tiers", "1", "--samples", "1"}
	write(t, "answers.jsonl", `{"id":"1/rating/1/1","output":"2"}`)
	for _, c := range []faultCase{
		{name: "missing labels", make: withFile("data/tier_1_labels.txt", "1.5\n"), args: good, code: 1,
			says: []string{"data/tier_1_labels.txt:1: the file ends here, but data/tier_1.txt has 2 statements"}},
		{name: "an answer missing", make: withFile("data/tier_1_labels.txt", "1.5\n3.9\n"), args: good, code: 1,
			says: []string{"answers.jsonl: 1 of 2 questions have no answer (first: 1/rating/2/1)"}},
		{name: "no output", make: withFile("answers.jsonl", `{"id":"1/rating/1/1"}`), args: good, code: 1,
			says: []string{`answers.jsonl:1: id "1/rating/1/1" is there twice or empty, or output is missing`}},
		{name: "a tier", args: slices.Concat(good, []string{"--tiers", "1,5"}), code: 2,
			says: []string{"tiers", "want some of 1, 2a, 2b, 3 and 4"}},
		{name: "no data", args: []string{"--model", "m"}, code: 2,
			says: []string{"data is missing: want the folder of the benchmark's files"}},
		{name: "no model", args: []string{"--data", "data"}, code: 2, says: []string{"agent.model is missing"}},
		{name: "greedy samples", args: []string{"--data", "data", "--model", "m", "--temperature", "0"}, code: 2,
			says: []string{"samples 10: at temperature 0 all answers to a question are the same"}},
		{name: "no questions", args: slices.Concat(good, []string{"--tiers", "3", "--questions", "action-item"}),
			code: 1, says: []string{"no question is left: tiers 3 have none of questions action-item"}},
		{name: "a question", args: slices.Concat(good, []string{"--questions", "control,gossip"}), code: 2,
			says: []string{"questions [control gossip]: want some of free-response, info-accessibility"}},
		{name: "no released prompts", args: slices.Concat(good, []string{"--prompts", "released"}), code: 1,
			says: []string{"data/prompts.jsonl: no such file", "scripts/confaide/export_prompts.py writes it from a"}},
		{name: "half the prompts", make: withFile("p.jsonl", `{"name":"rating","template":"{question}"}`),
			args: slices.Concat(good, []string{"--prompts", "p.jsonl"}), code: 1,
			says: []string{"p.jsonl: it has no template free-response: want one for each kind of question"}},
		{name: "a field", make: withFile("p.jsonl", `{"name":"rating","template":"{story}"}`),
			args: slices.Concat(good, []string{"--prompts", "p.jsonl"}), code: 1,
			says: []string{"p.jsonl:1: {story} is no field: want {question}"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.make != nil {
				c.make(t)
			}
			checkRefusal(t, cli(t, slices.Concat([]string{"eval", "confaide", "--out", "run"}, c.args)...), c)
			if exists("run") {
				t.Error("a folder was made")
			}
		})
	}
}

// TestConfAIdeRecount: a script that shares no code with the program counts the same from the answers, and finds a
// figure that has been changed.
func TestConfAIdeRecount(t *testing.T) {
	python := need.Path(t, "python3")
	t.Chdir(t.TempDir())
	writeConfAIde(t, "data")
	must(t, confAIdeArgs("run", testkit.StartJudge(t, testkit.JudgeOptions{Reply: anyConfAIde}).URL)...)
	recount := func() (string, error) {
		text, err := exec.Command(python, filepath.Join(root, "scripts", "confaide", "recount.py"), "run", "--data",
			"data").CombinedOutput()
		return string(text), err
	}
	said, err := recount()
	if want := fmt.Sprintf("37 figures of %d answers: all agree\n", confAIdeAnswers); err != nil ||
		!strings.HasSuffix(said, want) {
		t.Errorf("%v: %s: want %s", err, said, want)
	}
	text := read(t, "run/summary.json")
	i := strings.Index(text, `"leak"`)
	write(t, "run/summary.json", text[:i]+strings.Replace(text[i:], `"value": `, `"value": 1`, 1))
	if said, err = recount(); err == nil || !strings.Contains(said, "1 differ: 3/free-response leak mean") {
		t.Errorf("%v: %s", err, said)
	}
}
