package rl

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// counted answers every request alike, and is interrupted at a call.
type counted struct {
	calls, answered int
	stop            int // 0: never
	end             context.CancelFunc
}

func (c *counted) Sample(ctx context.Context, requests []rollout.Request) ([]rollout.Completion, error) {
	if c.calls++; c.calls == c.stop {
		c.end()
		return nil, context.Cause(ctx)
	}
	all := make([]rollout.Completion, len(requests))
	for i, r := range requests {
		all[i] = rollout.Completion{Text: "<think></think><answer></answer>", Tokens: r.Prompt[:1], Reason: rollout.EOS}
	}
	c.answered += len(requests)
	return all, nil
}

// TestTriedByOtherNames: the trial ahead of a run reads columns as the run does.
func TestTriedByOtherNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "asked.jsonl")
	if err := os.WriteFile(path, []byte(`{"ask":"Q"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	o := &Options{Reward: scorer.Defaults()}
	o.Data.TrainFiles, o.Data.Columns = config.Names{path}, []string{"prompt=ask"}
	o.Reward.Kind, o.Reward.Command = scorer.Command, []string{filepath.Join(t.TempDir(), "nowhere")}
	if err := o.try(t.Context()); err == nil || !strings.Contains(err.Error(), "tried with one answer") {
		t.Error(err)
	}
}

// TestTestContinues: an interrupted test keeps what is answered, and asks for the rest alone; answers of other weights are
// dropped.
func TestTestContinues(t *testing.T) {
	o, err := CISpec.Load(config.Input{Overrides: testkit.Overrides(t, "model=embedded", "data.train=embedded",
		"data.scenarios=400", "data.test_fraction=0.75", "backend=go")})
	if err != nil {
		t.Fatal(err)
	}
	l, err := open(t.Context(), o, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.loadQuestions(); err != nil {
		t.Fatal(err)
	}
	if l.Folder, err = run.Create(filepath.Join(t.TempDir(), "run"), "test"); err != nil {
		t.Fatal(err)
	}
	l.judge = ask.Keywords(o.Reward)
	test := func(weights string, stop int) (*counted, error) {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		c := &counted{stop: stop, end: end}
		l.rolloutSampler = c
		_, err := l.test(ctx, run.TestAfterName, "after", weights, "")
		return c, err
	}
	path := l.Folder.Path(run.TestAfterName)
	if c, err := test("a", 3); err == nil || !strings.Contains(err.Error(), "during the test after training") || c.answered != 256 {
		t.Fatalf("%d answered, %v: want 256 of 300, and an interruption", c.answered, err)
	}
	if c, err := test("a", 0); err != nil || c.answered != 44 {
		t.Errorf("%d answered, %v: want the other 44", c.answered, err)
	}
	whole, err := os.ReadFile(path)
	if err != nil || strings.Count(string(whole), "\n") != 300 {
		t.Fatalf("%d lines, %v", strings.Count(string(whole), "\n"), err)
	}
	if _, err := test("a", 2); err == nil {
		t.Error("the interruption is not said")
	}
	if c, err := test("b", 0); err != nil || c.answered != 300 {
		t.Errorf("%d answered, %v: want all 300 with other weights", c.answered, err)
	}
	if again, _ := os.ReadFile(path); string(again) != string(whole) {
		t.Error("the rows of an interrupted test differ from a whole one's")
	}
}
