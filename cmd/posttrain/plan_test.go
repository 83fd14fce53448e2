package main

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/need"
	"github.com/posttrain/posttrain/recipe/plan"
)

// TestPlanRehearses: a plan in JSON has what a rehearsal found; a fault is exit code 1, and a command without answers
// to learn is one line.
func TestPlanRehearses(t *testing.T) {
	work(t, "qwen2-newer")
	o := cli(t, "plan", "--rehearse", "--json", "--backend", "go", "--model", "model", "--data", "pairs.jsonl", "--set",
		"data.max_completion_tokens=2", "--set", "data.truncate=completion")
	var p plan.Plan
	if err := json.Unmarshal([]byte(o.out), &p); err != nil || o.code != exitFailed || p.Steps == 0 ||
		p.Rehearsal == nil || len(p.Rehearsal.Findings) == 0 ||
		!strings.Contains(o.err, "posttrain: the rehearsal found 1 fault") {
		t.Errorf("%v, %+v", err, o)
	}
	o = cli(t, "plan", "--rehearse", "--config", root+"/configs/ci-rl.yaml")
	if o.code == 0 || !strings.Contains(o.err, "which cannot be rehearsed: want one for mappo or sft") ||
		strings.Count(o.err, "\n") != 1 {
		t.Errorf("%+v", o)
	}
}

// TestDeviceKeepsPrograms: a folder gets each program of a run, whole files that nobody else may read.
func TestDeviceKeepsPrograms(t *testing.T) {
	need.Ask(t, "xla")
	need.Ask(t, "cuda-compiler")
	t.Chdir(t.TempDir())
	o := cli(t, "plan", "--device", "h100", "--compile-into", "programs")
	files, err := filepath.Glob("programs/*.program")
	if err != nil || o.code != 0 || len(files) != 4 || !strings.Contains(o.out, "POSTTRAIN_XLA_CACHE=") {
		t.Errorf("%d files, %v, %+v: want four programs, and how to use them", len(files), err, o)
	}
	if o := cli(t, "plan", "--compile-into", "programs"); o.code == 0 || !strings.Contains(o.err, "want --device CHIP, too") {
		t.Errorf("without a device: %+v", o)
	}
}

// TestDevicePrograms: every program of the commands that train compiles for an H100 that is not there; kernels, bytes of
// results in the memory of arguments and temporary bytes of all programs together stay within a tenth of these.
func TestDevicePrograms(t *testing.T) {
	need.Ask(t, "xla")
	need.Ask(t, "cuda-compiler")
	grpo := "command: grpo\nmodel: embedded\ndata: {train: prompts.jsonl, validation_fraction: 0.2, test_fraction: 0.2}\n" +
		"reward: {kind: pattern, pattern: x}\ngrpo: {prompts_per_step: 4, group_size: 8}\n" +
		"sampling: {max_new_tokens: 32}\ntrain: {max_steps: 10}\n"
	var prompts strings.Builder
	for i := range 20 {
		fmt.Fprintf(&prompts, "{\"prompt\": \"What is two and %d, and what is three and four?\"}\n", 10+i)
	}
	for _, tc := range []struct {
		name               string
		args               []string
		programs           int
		kernels            float64
		aliased, temporary float64 // MB
	}{
		{"mappo", []string{"--device", "h100"}, 4, 464, 13.42, 152.2},
		{"mappo in bfloat16", []string{"--device", "h100", "--set", "train.dtype=bfloat16"}, 4, 554, 13.42, 124.2},
		{"mappo with an adapter", []string{"--device", "h100", "--lora-rank", "8"}, 4, 728, 1.196, 155.5},
		{"mappo with an adapter over four bits", []string{"--device", "h100", "--lora-rank", "8", "--quantize", "nf4"}, 4, 793, 1.196, 155.9},
		{"mappo on two hosts", []string{"--device", "h100:2x4", "--set", "engine.shard=moments"}, 4, 483, 5.033, 80.61},
		{"sft", []string{"--device", "h100", "--config", root + "/configs/sft.yaml"}, 4, 462, 13.42, 152.1},
		{"reward-model", []string{"--device", "h100", "--config", root + "/configs/reward-model.yaml"}, 4, 499, 13.42, 151.0},
		{"grpo", []string{"--device", "h100", "--config", "grpo.yaml"}, 9, 664, 15.58, 325.8},
		{"ci-rl", []string{"--device", "h100", "--config", root + "/configs/ci-rl-quickstart.yaml"}, 8, 679, 47.5, 393.0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			write(t, "grpo.yaml", grpo)
			write(t, "prompts.jsonl", prompts.String())
			var p plan.Plan
			o := cli(t, append([]string{"plan", "--json"}, tc.args...)...)
			if err := json.Unmarshal([]byte(o.out), &p); err != nil || o.code != 0 || p.Device == nil {
				t.Fatalf("%v, %+v", err, o)
			}
			var kernels, aliased, temporary float64
			for _, c := range p.Device.Programs {
				kernels, aliased, temporary = kernels+c.Kernels, aliased+float64(c.Aliased)/1e6, temporary+float64(c.Temporary)/1e6
			}
			near := func(got, want float64) bool { return math.Abs(got-want) <= want/10 }
			if len(p.Device.Programs) != tc.programs || !near(kernels, tc.kernels) || !near(aliased, tc.aliased) ||
				!near(temporary, tc.temporary) {
				t.Errorf("%d programs, %g kernels, %g MB of results in arguments, %g MB of temporary values: want %d, %g, %g, %g",
					len(p.Device.Programs), kernels, aliased, temporary, tc.programs, tc.kernels, tc.aliased, tc.temporary)
			}
			if p.Device.Step <= 0 || p.Device.MFU <= 0 || p.Device.MFU > 1 || p.Device.Peak > p.Memory.Available {
				t.Errorf("%+v", p.Device)
			}
		})
	}
}
