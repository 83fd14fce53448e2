package launch

import (
	"slices"
	"strings"
	"testing"
)

// env is an environment of NAME=value words.
func env(words string) func(string) string {
	return func(name string) string {
		for _, w := range strings.Fields(words) {
			if key, value, _ := strings.Cut(w, "="); key == name {
				return value
			}
		}
		return ""
	}
}

func TestFind(t *testing.T) {
	for words, want := range map[string]Process{
		"JAX_PROCESS_ID=3 JAX_NUM_PROCESSES=4 JAX_COORDINATOR_ADDRESS=t-node-0-0.t:6666 JAX_COORDINATOR_PORT=6666 " +
			"JOB_COMPLETION_INDEX=3": {"kubeflow", 3, 4, 0, "t-node-0-0.t", ""},
		"PROCESS_ID=0 NUM_PROCESSES=2 COORDINATOR_ADDRESS=j-worker-0 COORDINATOR_PORT=6666": {"kubeflow", 0, 2, 0,
			"j-worker-0", ""},
		"JOB_COMPLETION_INDEX=2": {"kubernetes", 2, 0, 0, "", ""},
		"SLURM_JOB_ID=7 SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1 SLURM_STEP_NODELIST=gpu[03-05,9]": {"slurm",
			5, 8, 1, "gpu03", ""},
		"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=fd00::1 MASTER_PORT=29500": {"torchrun", 1, 2, 1, "fd00::1", ""},
		// what torchrun starts in a pod of a Job, once for each of two devices
		"RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 JOB_COMPLETION_INDEX=1": {"torchrun", 3, 4, 1, "", ""},
		// two launchers that agree
		"SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=a,b RANK=1 WORLD_SIZE=2": {"slurm", 1, 2, 0, "a", ""},
	} {
		got, err := Find(Auto, env(words))
		if err != nil {
			t.Errorf("%s: %v", words, err)
			continue
		}
		if got.from = ""; *got != want {
			t.Errorf("%s: %+v, want %+v", words, *got, want)
		}
	}
}

func TestFaults(t *testing.T) {
	both := "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 RANK=3 WORLD_SIZE=4"
	for _, c := range []struct{ name, words, want string }{
		{"auto", "", "found none of the variables JAX_PROCESS_ID, PROCESS_ID, SLURM_PROCID, RANK, JOB_COMPLETION_INDEX"},
		{"slurm", "RANK=0 WORLD_SIZE=1", "launch slurm: found none of the variables SLURM_PROCID"},
		{"auto", "RANK=0", `found RANK="0" and WORLD_SIZE="", want both`},
		{"auto", "WORLD_SIZE=2", `found RANK="" and WORLD_SIZE="2", want both`},
		{"auto", "RANK=2 WORLD_SIZE=2", "found RANK=2, WORLD_SIZE=2, want a rank from 0 below the number"},
		{"auto", "RANK=-1 WORLD_SIZE=2", "found RANK=-1, WORLD_SIZE=2, want a rank"},
		{"auto", "RANK=0 WORLD_SIZE=two", `found WORLD_SIZE="two", want a whole number`},
		{"auto", "RANK=0 WORLD_SIZE=2 LOCAL_RANK=x", `found LOCAL_RANK="x", want a whole number`},
		{"auto", "JOB_COMPLETION_INDEX=a", "found JOB_COMPLETION_INDEX=a, want a rank"},
		{"auto", both, "rank 1 of 2 (slurm: SLURM_PROCID=1, SLURM_STEP_NUM_TASKS=2) and rank 3 of 4 (torchrun: RANK=3, " +
			"WORLD_SIZE=4): want one of them: name it, such as --launch torchrun"},
		{"mpi", "", `launch "mpi": want auto, kubeflow, slurm, torchrun, kubernetes`},
	} {
		if p, err := Find(c.name, env(c.words)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, want %s", c.words, p, err, c.want)
		}
	}
	if p, err := Find("torchrun", env(both)); err != nil || p.Rank != 3 {
		t.Error(p, err)
	}
	if p := Several(env(both)); p == nil || p.Size != 4 {
		t.Errorf("%v, want the larger number of processes", p)
	}
	// a batch script of Slurm has a rank without a number of processes
	script := env("SLURM_PROCID=0 RANK=3 WORLD_SIZE=4")
	if p, err := Find("auto", script); err != nil || p.Rank != 3 || Several(script) == nil {
		t.Error(p, err)
	}
	if p := Several(env("SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2")); p == nil || p.Rank != 1 {
		t.Error(p)
	}
}

func TestFirstHost(t *testing.T) {
	lists := []string{"a", "a,b", "gpu[03-05,9]", "gpu[7]", "n[1-2]-ib,x", "login1,gpu[03-05]", ""}
	want := []string{"a", "a", "gpu03", "gpu7", "n1-ib", "login1", ""}
	var got []string
	for _, l := range lists {
		got = append(got, firstHost(l))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
