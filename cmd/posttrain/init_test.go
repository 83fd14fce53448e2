package main

import (
	"regexp"
	"strings"
	"testing"
)

// TestInit: the config of each command is the one in force without a file, with a comment behind each key, and the line
// that it names runs it; an existing file stays.
func TestInit(t *testing.T) {
	work(t, "qwen2-newer")
	reward := []string{"--set", "reward.kind=command", "--set", "reward.command=python3 score.py"}
	for _, command := range trainers {
		of := []string{"--model", "model", "--data", "pairs.jsonl"}
		o := must(t, append([]string{"init", command, "--set", "seed=7"}, of...)...)
		_, next, _ := strings.Cut(o.out, "Next:\nposttrain ")
		text, line := read(t, command+".yaml"), strings.Fields(next)
		direct := append([]string{command, "--seed", "7", "--explain"}, of...)
		if command == "grpo" {
			direct = append(direct, reward...)
		}
		if got, want := must(t, append(line, "--explain")...).out, must(t, direct...).out; got != want {
			t.Errorf("%v: %s\nwant %s", line, got, want)
		}
		for line := range strings.Lines(text) {
			if m := regexp.MustCompile(`^ *([a-z_]+): \S+( |$)`).FindStringSubmatch(line); m != nil &&
				!strings.Contains(line, " # ") && m[1] != "command" {
				t.Errorf("%s: no comment behind %s", command, line)
			}
		}
		if o := cli(t, "init", command, "--out", command+".yaml"); o.code == 0 || read(t, command+".yaml") != text {
			t.Errorf("written over: %s", o.last())
		}
	}
	must(t, "init", "mappo", "--out", "quick.yaml")
	got, want := must(t, "mappo", "--config", "quick.yaml", "--explain").out, must(t, "mappo", "--explain").out
	if got != want {
		t.Errorf("the quick start: %s\nwant %s", got, want)
	}
}

// TestInitFaults: one line for every bad input, and no file.
func TestInitFaults(t *testing.T) {
	t.Chdir(t.TempDir())
	for want, args := range map[string][]string{
		"init dpo: want mappo, sft, grpo, ci-rl or reward-model": {"dpo"},
		"posttrain init wants one command, found 0":              {},
		"--data: data.train is missing":                          {"grpo", "--model", "embedded"},
		"--set seed: want key=value":                             {"sft", "--set", "seed"},
		`--set: unknown key "sed"`:                               {"sft", "--set", "sed=3"},
		"nowhere/a.yaml: no such file or directory":              {"sft", "--out", "nowhere/a.yaml"},
	} {
		o := cli(t, append([]string{"init"}, args...)...)
		if o.code == 0 || !strings.Contains(o.err, want) || len(tree(t)) != 1 {
			t.Errorf("%v: %d %s, want %s; %v", args, o.code, o.err, want, tree(t))
		}
	}
}
