//go:build unix

package main

import (
	"strings"
	"testing"
)

// TestLaunchFaults: what the environment lacks is one line with exit code 2, and flags win over it.
func TestLaunchFaults(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"JAX_PROCESS_ID", "PROCESS_ID", "SLURM_PROCID", "RANK", "JOB_COMPLETION_INDEX"} {
		t.Setenv(name, "") // where this test itself was launched
	}
	for _, c := range []struct {
		env  map[string]string
		args []string
		says []string
	}{
		{nil, []string{"serve", "--launch", "auto"}, []string{"launch auto: found none of the variables"}},
		{nil, []string{"serve", "--launch", "mpi"}, []string{`launch "mpi"`, "want auto, kubeflow, slurm"}},
		{map[string]string{"RANK": "1"}, []string{"serve", "--launch", "torchrun"},
			[]string{`found RANK="1" and WORLD_SIZE="", want both`}},
		{map[string]string{"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"},
			[]string{"serve", "--launch", "torchrun", "--addr", "127.0.0.1:65535"},
			[]string{"addr 127.0.0.1:65535", "local rank 1"}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			checkRefusal(t, cli(t, c.args...), faultCase{code: 2, says: c.says})
		})
	}
	for addr, want := range map[string]string{"127.0.0.1:8000": "127.0.0.1:8003", "[::1]:0": "[::1]:0"} {
		if got, err := addToPort(addr, 3); err != nil || got != want {
			t.Errorf("%s, %v: want %s", got, err, want)
		}
	}
}

// TestTrainingIsOneProcess: training among several processes says that it trains alone.
func TestTrainingIsOneProcess(t *testing.T) {
	work(t, "qwen2-newer")
	t.Setenv("RANK", "1")
	t.Setenv("WORLD_SIZE", "4")
	o := must(t, tinyMappo(1)...)
	if !strings.Contains(o.err, "rank 1 of 4 (torchrun: RANK=1, WORLD_SIZE=4): processes do not train together") {
		t.Error(o.err)
	}
}
