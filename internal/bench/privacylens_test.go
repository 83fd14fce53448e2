package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/eval/privacylens"
	"github.com/posttrain/posttrain/eval/stages"
	"github.com/posttrain/posttrain/rollout/metered"
)

// childVar makes the test binary play the command that is measured.
const childVar = "BENCH_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) == "" {
		os.Exit(m.Run())
	}
	if err := evalPrivacyLens(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// evalPrivacyLens judges recorded actions as the command does.
func evalPrivacyLens(args []string) error {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	path, actions, out := flags.String("data", "", ""), flags.String("actions", "", ""), flags.String("out", "", "")
	url, name := flags.String("judge-base-url", "", ""), flags.String("judge-model", "", "")
	parallel := flags.Int("judge-parallel", 0, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o := privacylens.Defaults()
	o.Data.Cases, o.Agent.Actions = *path, *actions
	o.Judge.BaseURL, o.Judge.Model, o.Judge.Parallel = *url, *name, *parallel
	_, err := privacylens.Run(context.Background(), o, stages.Place{Dir: *out}, nil)
	return err
}

func TestPrivacyLensAsksEveryQuestionOnce(t *testing.T) {
	t.Setenv(childVar, "1")
	o := lensOptions{binary: os.Args[0], delay: time.Millisecond, parallel: 4, rounds: 1, large: true}
	j, err := serveJudge()
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	var out strings.Builder
	cases := makeCases(6, 20)
	all, err := o.time(&out, t.TempDir(), j, cases)
	if err != nil {
		t.Fatal(err)
	}
	if all.requests != 26 || all.replies != 26 || all.twice != 0 || all.most > 4 || all.seconds < 0.007 {
		t.Errorf("%+v: want 26 requests, none of them twice, at most 4 at a time, in 7 ms or more", all)
	}
	if err := o.memory(&out, t.TempDir(), j, cases, all); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"ideal 0.01 s", "round 1: ", "26 requests, 0 asked twice", "asked for at most 1.15", "60 cases, 260 questions",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestMadeUpCasesAreRead(t *testing.T) {
	cases := makeCases(493, 1487)
	w, err := writeLensWorld(filepath.Join(t.TempDir(), "world"), cases)
	if err != nil {
		t.Fatal(err)
	}
	read, report, err := lens.Read(w.data)
	if err != nil || len(read) != 493 || w.questions != 1980 || len(report.Warts) > 0 {
		t.Fatalf("%d cases, %d questions, %v, %v: want 493 and 1980", len(read), w.questions, report, err)
	}
	actions, err := lens.ReadActions(w.actions, read)
	if err != nil || len(actions) != 493 {
		t.Fatalf("%d actions, %v: want 493", len(actions), err)
	}
}

func TestSlowJudgeCountsAndGivesVerdicts(t *testing.T) {
	j, err := serveJudge()
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	client, err := metered.Open(metered.Options{BaseURL: j.url, Model: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 2 {
		reply, err := client.Ask(t.Context(), "Does it leak?")
		if err != nil {
			t.Fatal(err)
		}
		_, parsed := privacylens.Leaks(reply)
		if score, rated := privacylens.Helpfulness(reply); !parsed || !rated || score != 2 {
			t.Errorf("%q: want a verdict and 2", reply)
		}
	}
	if n := j.end(); n.requests != 2 || n.twice != 1 || n.most != 1 {
		t.Errorf("%+v: want 2 requests, 1 of them twice", n)
	}
}
