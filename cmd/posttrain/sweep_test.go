package main

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/hub/hubtest"
	"github.com/posttrain/posttrain/internal/testkit"
)

// TestSweep: a run for each value, each the same as that run by itself. Interrupted in both runs and continued, it ends
// in the same bits, and does the first run no second time.
func TestSweep(t *testing.T) {
	workCI(t)
	args := tinyCIRL(2, "--max-new-tokens", "24", "--set", "train.checkpoint_every=1", "--out", "whole", "--sweep",
		"reward.restricted_weight=0.5,2")
	whole := must(t, args...)
	for _, want := range []string{"reward.restricted_weight  integrity", "\n0.5  ", "\n2  ", "/2 (",
		"Table: whole/table.jsonl\n"} {
		if !strings.Contains(whole.out, want) {
			t.Errorf("lacks %q:\n%s", want, whole.out)
		}
	}
	const second = "reward.restricted_weight=2"
	must(t, tinyCIRL(2, "--max-new-tokens", "24", "--set", "train.checkpoint_every=1", "--out", "alone", "--set",
		second)...)
	sameCIRLRun(t, "alone", "whole/"+second)

	o := cliUntil(t, "step 1/2  reward", append(args, "--out", "stopped")...)
	_, again, _ := strings.Cut(o.last(), "continue with posttrain ")
	if o.code != exitInterrupted || !strings.Contains(o.last(), "in run 1 of 2, reward.restricted_weight=0.5, ") {
		t.Fatalf("exit code %d: %s", o.code, o.last())
	}
	o = cliUntil(t, "run 2 of 2", words(t, again)...)
	before := stamps(t, []string{"stopped/reward.restricted_weight=0.5/summary.txt"})
	if o.code != exitInterrupted || !strings.Contains(o.last(), "in run 2 of 2, "+second) ||
		!strings.HasSuffix(o.last(), "continue with posttrain "+again) {
		t.Fatalf("exit code %d: %s", o.code, o.last())
	}
	o = must(t, words(t, again)...)
	if !strings.Contains(o.err, "run 1 of 2, reward.restricted_weight=0.5: finished before\n") ||
		before != stamps(t, []string{"stopped/reward.restricted_weight=0.5/summary.txt"}) {
		t.Errorf("the first run was run again:\n%s", o.err)
	}
	sameCIRLRun(t, "whole/reward.restricted_weight=0.5", "stopped/reward.restricted_weight=0.5")
	sameCIRLRun(t, "whole/"+second, "stopped/"+second)
}

// TestSweepsOfExamples: mappo and sft compare what they hold out, as their runs by themselves do.
func TestSweepsOfExamples(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "demos.jsonl", demoLines(12, textRow))
	for command, c := range map[string]struct{ data, key, columns string }{
		"mappo": {"pairs.jsonl", "loss.beta", "loss  rewards/accuracies  rewards/margins  logps/chosen  logps/rejected"},
		"sft":   {"demos.jsonl", "train.weight_decay", "loss"},
	} {
		args := tiny(command, 2, "--data", c.data, "--set", "train.eval_every=2")
		o := must(t, append(args, "--out", command, "--sweep", c.key+"=0.01,0.2")...)
		want := strings.Join(append([]string{c.key}, strings.Fields(c.columns+" steps time")...), " ")
		if head, _, _ := strings.Cut(o.out, "\n"); strings.Join(strings.Fields(head), " ") != want {
			t.Errorf("%s: the table begins with %q, want %q", command, head, want)
		}
		must(t, append(args, "--out", command+"-alone", "--set", c.key+"=0.2")...)
		swept, alone := tested(t, command+"/"+c.key+"=0.2"), tested(t, command+"-alone")
		if loss := fmt.Sprintf("%.3f", alone.Test.After.All["loss"].Value); !reflect.DeepEqual(swept, alone) ||
			!strings.Contains(o.out, "\n0.2 ") || !strings.Contains(o.out, loss) {
			t.Errorf("%s: %+v, alone %+v:\n%s", command, swept, alone, o.out)
		}
	}
}

// TestSweepOfTheHub: all runs have the commit that the branch was at when the sweep began.
func TestSweepOfTheHub(t *testing.T) {
	workCI(t)
	s := hubtest.New(t, map[string]hubtest.Repo{"org/tiny": hubtest.Folder(t, testkit.CIModel())})
	args := tinyCIRL(1, "--max-new-tokens", "4", "--model", "org/tiny", "--sweep", "reward.restricted_weight=0.5,2")
	o := cliUntil(t, "run 2 of 2", args...)
	if o.code != exitInterrupted {
		t.Fatal(o)
	}
	moved := s.Repos["org/tiny"]
	moved.Commit = strings.Repeat("f", 40)
	s.Repos["org/tiny"] = moved
	must(t, "ci-rl", "--resume", "out")
	for _, value := range []string{"0.5", "2"} {
		path := "out/reward.restricted_weight=" + value
		for _, file := range []string{path + ".yaml", path + "/config.yaml"} {
			if text := read(t, file); !strings.Contains(text, "\nmodel: org/tiny@"+hubtest.Commit+"\n") {
				t.Errorf("%s: %s", file, text)
			}
		}
	}
}

// TestSweepFaults: one line for every bad sweep, and nothing made.
func TestSweepFaults(t *testing.T) {
	ciRL := func(more ...string) []string { return append([]string{"ci-rl", "--backend", "go"}, more...) }
	const values = "reward.restricted_weight=0.5,1"
	folder := func(text string) func(t *testing.T) {
		return func(t *testing.T) {
			if err := os.Mkdir("s", 0o777); err != nil {
				t.Fatal(err)
			}
			write(t, "s/config.yaml", text)
		}
	}
	sweepFolder := folder("command: ci-rl --sweep\nsweep: [seed=1]\n")
	aRun := folder("command: ci-rl\nmodel: embedded\ndata: {train: embedded}\n")
	refuseAll(t, workCI, []faultCase{
		{"unknown key", nil, ciRL("--sweep", "reward.restricted_wieght=1"), 2, []string{"--sweep: unknown key",
			"did you mean reward.restricted_weight?"}, nil},
		{"a text", nil, ciRL("--sweep", "data.prompt=1"), 2, []string{"--sweep data.prompt=1", "is not a number"}, nil},
		{"a list", nil, ciRL("--sweep", "sampling.stop=1"), 2, []string{"is not a number (its type is strings)"}, nil},
		{"out of range", nil, ciRL("--sweep", "reward.restricted_weight=1,-1"), 2,
			[]string{"--sweep: reward.restricted_weight -1: want a number, 0 or more"}, nil},
		{"values that do not fit another key", nil, ciRL("--sweep", "reward.restricted_weight=0,1", "--set",
			"reward.required_weight=0"), 2, []string{"reward.required_weight 0: restricted_weight is 0 too"}, nil},
		{"no values", nil, ciRL("--sweep", "seed="), 2, []string{"--sweep seed=: there are no values"}, nil},
		{"nothing", nil, ciRL("--sweep", ""), 2, []string{"--sweep", "want a key and its numbers"}, nil},
		{"twice", nil, ciRL("--sweep", "reward.restricted_weight=1,1.0"), 2, []string{"1.0 is there twice (1)"}, nil},
		{"a key twice", nil, ciRL("--sweep", "seed=1", "--sweep", "seed=2"), 2, []string{"another --sweep"}, nil},
		{"a key that a flag sets", nil, ciRL("--sweep", "seed=1,2", "--seed", "3"), 2, []string{"--sweep seed=1,2",
			"--seed sets seed, too"}, nil},
		{"another run in the folder", aRun, ciRL("--sweep", values, "--out", "s"), 1, []string{"run folder s exists",
			"--out DIR"}, nil},
		{"another sweep in the folder", sweepFolder, ciRL("--sweep", values, "--out", "s"), 1,
			[]string{"run folder s exists", "--resume s"}, nil},
		{"a run in the folder of a sweep", sweepFolder, ciRL("--out", "s"), 1, []string{"run folder s exists"}, nil},
		{"a single run to continue", aRun, []string{"ci-rl", "--sweep", values, "--resume", "s"}, 2,
			[]string{"--sweep: --resume s is a single run", "remove one of the two"}, nil},
		{"a sweep with other values", sweepFolder, []string{"ci-rl", "--sweep", values, "--resume", "s"}, 2,
			[]string{"--resume s: a sweep continues with the values"}, nil},
		{"a sweep with another key", sweepFolder, []string{"ci-rl", "--seed", "3", "--resume", "s"}, 2,
			[]string{"--resume s: a sweep continues with the values"}, nil},
		{"a sweep for another command", sweepFolder, []string{"sft", "--resume", "s"}, 1,
			[]string{"s/config.yaml:1: is a config for `posttrain ci-rl --sweep`, not sft"}, nil},
		{"no test", nil, ciRL("--sweep", values, "--set", "data.test_fraction=0"), 2,
			[]string{"data.test_fraction 0: runs are compared by their tests"}, nil},
		{"no held-out pairs", nil, []string{"mappo", "--sweep", "loss.beta=1", "--set", "data.eval_fraction=0", "--set",
			"train.eval_every=0", "--set", "train.eval_metric="}, 2,
			[]string{"data.eval_fraction 0: runs are compared by their tests: want a number above 0, or data.eval"}, nil},
		{"no data", nil, ciRL("--model", "embedded", "--data", "no.json", "--sweep", values, "--out", "s"), 1,
			[]string{"no.json: no such file"}, nil},
	})
}
