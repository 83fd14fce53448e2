package floors

import (
	"slices"
	"strings"
	"testing"
)

func TestHouse(t *testing.T) {
	sources := sourcesOf(t)
	for _, f := range append(Check(sources), Stale(sources)...) {
		t.Error(f)
	}
}

// TestFaults proves that every rule bites: one import each, and words of the reason that the fault must give.
func TestFaults(t *testing.T) {
	cases := []struct {
		file, path string
		want       string // empty: allowed
	}{
		{"losses/dpo.go", Module + "/model", "never: losses are pure"},
		{"reward/ci.go", Module + "/model", "never: a reward"},
		{"data/read.go", gomlx + "/core/graph", "never: data are records"},
		{"data/read_test.go", compute + "/dtypes", "never: data are records"},
		{"model/config.go", Module + "/losses", "never: a model"},
		{"eval/ci.go", Module + "/train", "never: what measures"},
		{"eval/ci.go", Module + "/grpo", "never: what measures"},
		{"train/step.go", onnx, "only internal/backend links an engine"},
		{"train/step_test.go", xla + "/compute/xla", "only internal/backend links an engine"},
		{"losses/graph_test.go", goEngine, ""},
		{"cmd/posttrain/main.go", goEngine, "only internal/backend links an engine"},
		{"model/graph.go", gomlx + "/backends/default", "only internal/backend links an engine"},
		{"internal/backend/onnx.go", onnx, ""},
		{"tokenizer/bpe.go", gomlx + "/core/graph", "the text floor has no tensors"},
		{"internal/batch/pack.go", Module + "/model", "internal/batch is on the text floor"},
		{"internal/batch/encode.go", Module + "/data", ""},
		{"data/read.go", Module + "/tokenizer", "data is on the text floor"},
		{"train/loop.go", Module + "/grpo", "train is on the behaviour floor"},
		{"train/loop.go", Module + "/rollout", "train is on the behaviour floor"},
		{"train/loop.go", Module + "/internal/run", ""},
		{"train/loop_test.go", Module + "/internal/testkit", ""},
		{"train/loop.go", Module + "/internal/testkit", "for tests only"},
		{"cmd/posttrain/mappo.go", Module + "/internal/backend/backendtest", "for tests only"},
		{"cmd/posttrain/mappo.go", Module + "/internal/config", ""},
		{"internal/config/spec.go", Module + "/train", "internal/config is on the ground"},
		{"recipe/sft/run.go", Module + "/cmd/posttrain", "recipe is on the recipe floor"},
		{"train/loop.go", Module + "/internal/config/fault", ""},
		{"losses/dpo.go", "github.com/spf13/cobra", "of other modules losses may import"},
		{"losses/dpo.go", "math", ""},
		{"tokenizer/bpe.go", Module + "/tokenizer/jinja", ""},
		{"internal/files/replace_unix.go", rename, ""},
		{"internal/files/replace_unix.go", rename + "x", "of other modules internal/files may import"},
		{"federated/link/broker.go", nats + "/nats-server/v2/server", ""},
		{"federated/protocol/agent.go", nats + "/nats.go", "never: federated/link alone"},
		{"recipe/federated/serve.go", nats + "/nats.go", "never: federated/link alone"},
		{"federated/cg.go", Module + "/internal/run", "never: federated is pure"},
		{"federated/protocol/agent.go", Module + "/federated/link", "federated/link on the method floor"},
		{"train/loop.go", Module + "/attic", "no place in the house"},
	}
	for _, c := range cases {
		got := Check([]Source{{Path: c.file, Imports: []Import{{c.path, 7}}}})
		place := c.file + ":7: imports " + c.path
		switch {
		case c.want == "" && len(got) > 0:
			t.Errorf("%s imports %s: %s, want it allowed", c.file, c.path, got[0])
		case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want) || !strings.HasPrefix(got[0], place)):
			t.Errorf("%s imports %s: %q, want %q", c.file, c.path, got, c.want)
		}
	}
	for _, file := range []string{"attic/box.go", "main.go"} {
		if got := Check([]Source{{Path: file}}); len(got) != 1 || !strings.Contains(got[0], "no place in the house") {
			t.Errorf("%s, in a package without a row: %q", file, got)
		}
	}
}

// TestStale: an allowance that only a test needs is stale.
func TestStale(t *testing.T) {
	imports := []Import{{Path: rename}}
	if got := Stale([]Source{{Path: "internal/files/a.go", Imports: imports}}); slices.ContainsFunc(got, func(f string) bool {
		return strings.Contains(f, "internal/files imports "+rename)
	}) {
		t.Errorf("an allowance that is needed: %q", got)
	}
	if got := Stale([]Source{{Path: "internal/files/a_test.go", Imports: imports}}); !slices.ContainsFunc(got, func(f string) bool {
		return strings.Contains(f, "internal/files imports "+rename+" no longer")
	}) {
		t.Errorf("an allowance that only a test needs: %q", got)
	}
}
