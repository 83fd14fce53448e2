package main

import (
	"encoding/json"
	"strings"
	"testing"

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
