package pairs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// scoreLines is the program of a user that scores an answer by the length of its line, and fails from the line on that
// has the limit.
func scoreLines(limit string) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if strings.Contains(in.Text(), limit) {
			os.Exit(1)
		}
		fmt.Println(len(in.Text()))
	}
	os.Exit(0)
}

// writePairs writes n pairs, whose chosen answers are longer.
func writePairs(t *testing.T, n int) string {
	t.Helper()
	var pairs []data.Preference
	for i := range n {
		chosen, rejected := fmt.Sprintf("yes %03d", i), fmt.Sprintf("n%03d", i)
		pairs = append(pairs, data.Preference{Prompt: data.Text{Plain: "Q"}, Chosen: data.Text{Plain: chosen},
			Rejected: data.Text{Plain: rejected}})
	}
	path := filepath.Join(t.TempDir(), "pairs.jsonl")
	if err := data.WriteAll(path, pairs); err != nil {
		t.Fatal(err)
	}
	return path
}

func byCommand(path string) ScoreOptions {
	o := ScoreOptions{Data: path, Out: filepath.Join(filepath.Dir(path), "scored.jsonl"), Reward: scorer.Defaults()}
	o.Reward.Kind, o.Reward.Command = scorer.Command, []string{os.Args[0]}
	return o
}

// TestScoresSurviveACrash: a program that dies loses its batch alone, and the result is an undisturbed run's.
func TestScoresSurviveACrash(t *testing.T) {
	o := byCommand(writePairs(t, 300))
	t.Setenv("SCORE_TEST_FAIL", "n200") // in the second batch of 128 pairs
	_, err := Score(t.Context(), o, nil)
	if err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Fatal(err)
	}
	if _, err := os.Stat(o.Out); err == nil {
		t.Error("there is a result of half a run")
	}
	other := o
	other.Data = writePairs(t, 299)
	if _, err := Score(t.Context(), other, nil); err == nil ||
		!strings.Contains(err.Error(), "with other answers or another reward: remove it") {
		t.Errorf("scores of other pairs are taken: %v", err)
	}
	t.Setenv("SCORE_TEST_FAIL", "n100") // in the first, which is not scored again
	result, err := Score(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(result.Summary, o.Out+": 300 pairs, 300 scored: chosen scores higher in 300, the same in 0, "+
		"lower in 0\nprior: 300 of 300 pairs") {
		t.Error(result.Summary)
	}
	pairs, report, err := data.ReadPreferences(o.Out, data.PreferenceOptions{})
	if err != nil || report.Scored != 300 {
		t.Fatal(err, report)
	}
	for _, p := range pairs {
		if p.ChosenScore != p.RejectedScore+3 {
			t.Fatalf("%+v", p)
		}
	}
	if left, _ := filepath.Glob(o.Out + ".scores"); len(left) > 0 {
		t.Error("the kept scores are still there")
	}
}

func TestScoreInterrupted(t *testing.T) {
	t.Setenv("SCORE_TEST_FAIL", "never")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Score(ctx, byCommand(writePairs(t, 3)), nil)
	if !errors.Is(err, recipe.ErrInterrupted) ||
		err.Error() != "interrupted: 0 of 6 answers are scored; the same command continues" {
		t.Error(err)
	}
}

// TestJudgedPairs: faults of the server cost nothing, and an answer without a score leaves its pair without scores.
func TestJudgedPairs(t *testing.T) {
	var asked atomic.Int32
	server := testkit.StartJudge(t, testkit.JudgeOptions{Faults: 0.1, Seed: 3, Reply: func(prompt string) string {
		asked.Add(1)
		if strings.Contains(prompt, "n007") {
			return "no idea"
		}
		return fmt.Sprintf("Score: %d", 1+strings.Count(prompt, "yes"))
	}})
	t.Setenv("OPENAI_API_KEY", "")
	o := byCommand(writePairs(t, 20))
	o.Reward.Kind, o.Reward.Command, o.Reward.Judge.BaseURL, o.Reward.Judge.Model = scorer.Judge, nil, server.URL, "m"
	result, err := Score(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(result.Summary, o.Out+": 20 pairs, 19 scored: chosen scores higher in 19, the same in 0, "+
		"lower in 0\n1 answers have no score; the last: the judge's last line is \"no idea\": want \"Score: \" and a "+
		"number\n") {
		t.Error(result.Summary)
	}
	once := asked.Load()
	if _, err := Score(t.Context(), o, nil); err != nil || asked.Load() != once {
		t.Errorf("%v, and %d questions more", err, asked.Load()-once)
	}
}

// TestScoresReadTheRow: a reward gets the other columns of a pair's row, as in grpo.
func TestScoresReadTheRow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pairs.jsonl")
	const rows = `{"question":"2 + 2?","chosen":"#### 4","rejected":"#### 5","answer":"4"}
{"question":"3 + 3?","chosen":"#### 6","rejected":"#### 5","answer":6}
`
	expect.Write(t, path, rows)
	o := byCommand(path)
	o.Columns, o.Reward.Kind, o.Reward.Command = []string{"prompt=question"}, scorer.Exact, nil
	result, err := Score(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	const chats = `{"chosen":[{"role":"user","content":"Q"},{"role":"assistant","content":"4"}],` +
		`"rejected":[{"role":"user","content":"Q"},{"role":"assistant","content":"5"}],"answer":"4"}`
	o.Data, o.Columns, o.Out = filepath.Join(filepath.Dir(path), "chats.jsonl"), nil, o.Out+".jsonl"
	expect.Write(t, o.Data, chats)
	implicit, err := Score(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(result.Pairs, implicit.Pairs...) {
		if p.ChosenScore != 1 || p.RejectedScore != 0 || !p.Scored {
			t.Errorf("%+v", p)
		}
	}
}

// TestAUselessJudge ends the run after its first batch.
func TestAUselessJudge(t *testing.T) {
	server := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(string) string { return "no idea" }})
	t.Setenv("OPENAI_API_KEY", "")
	o := byCommand(writePairs(t, 80))
	o.Reward.Kind, o.Reward.Command, o.Reward.Judge.BaseURL, o.Reward.Judge.Model = scorer.Judge, nil, server.URL, "m"
	_, err := Score(t.Context(), o, nil)
	const want = "64 of the first 64 answers have no score: the judge's last line is"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Error(err)
	}
}
