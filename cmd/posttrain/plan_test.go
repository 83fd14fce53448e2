package main

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/recipe/plan"
)

// TestPlanChoosesARun: the command line that a plan prints keeps what its own command line sets, and runs.
func TestPlanChoosesARun(t *testing.T) {
	t.Chdir(t.TempDir())
	long := strings.Repeat("the plan of a run ", 40)
	write(t, "pairs.jsonl", strings.Repeat(`{"prompt":"Hi","chosen":"a `+long+`","rejected":"b `+long+`"}`+"\n", 4))
	write(t, "mine.yaml", "command: mappo\nmodel: embedded\nbackend: go\ndata: {train: pairs.jsonl}\n"+
		"train: {max_steps: 1, batch_size: 4, micro_batch_size: 4, warmup_steps: 0, learning_rate: 1e-3}\n")
	flags := []string{"--config", "mine.yaml", "--prior", "none", "--set", "lora.rank=", "--set", "seed=3",
		"--tensorboard"}
	whole := planOf(t, append([]string{"plan", "--json"}, flags...)...)
	limit := whole.Memory.Most() - whole.Shapes[0].Alive/4
	p := planOf(t, append([]string{"plan", "--json", "--memory", fmt.Sprintf("%dB", limit)}, flags...)...)
	x := p.Choice
	if x == nil || !x.Fits || len(x.Changed) == 0 || x.Changed["lora.rank"] != "" || len(x.LeftOut) == 0 ||
		p.Memory.Most() > limit {
		t.Fatalf("%+v of at most %d bytes takes %d, not %d", x, limit, p.Memory.Peak, whole.Memory.Peak)
	}
	for _, want := range []string{"posttrain mappo ", "--config mine.yaml", "--prior none", "--set lora.rank=",
		"--set seed=3", "--set train.", "--tensorboard=true"} {
		if !strings.Contains(x.Command, want) {
			t.Errorf("%q is not in %s", want, x.Command)
		}
	}
	must(t, append(strings.Fields(x.Command)[1:], "--out", "out")...)
	for key, value := range x.Changed {
		if _, last, _ := strings.Cut(key, "."); !strings.Contains(read(t, "out/config.yaml"), last+": "+value) {
			t.Errorf("%s is not %s in\n%s", key, value, read(t, "out/config.yaml"))
		}
	}
}

// planOf plans in this process. What other tests left in its memory would count as the program's.
func planOf(t *testing.T, args ...string) (p plan.Plan) {
	t.Helper()
	debug.FreeOSMemory()
	if err := json.Unmarshal([]byte(must(t, args...).out), &p); err != nil {
		t.Fatal(err)
	}
	return p
}
