package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/need"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe/rl"
)

// workCI makes an empty folder with items.json, 24 scenarios, the working directory.
func workCI(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	workItems(t)
}

func workItems(t *testing.T) {
	t.Helper()
	if err := data.WriteAll("items.json", ci.Synthesize(24, 5)); err != nil {
		t.Fatal(err)
	}
}

// tinyCIRL are the flags of a quick run of testkit.CIModel on items.json: n steps of 2 prompts with 4 completions, an
// update for each prompt; 2 items for validation, 2 for the test.
func tinyCIRL(n int, more ...string) []string {
	args := []string{"ci-rl", "--model", testkit.CIModel(), "--prompt", "compact", "--data", "items.json", "--backend",
		"go", "--max-steps", fmt.Sprint(n), "--prompts", "2", "--group-size", "4", "--max-new-tokens", "32", "--set",
		"grpo.updates_per_rollout=2", "--set", "validation.every=2", "--set", "validation.samples=1", "--set",
		"train.learning_rate=1e-3", "--out", "out"}
	return append(args, more...)
}

// TestCIRLLeavesAWholeRun looks at everything that a run leaves.
func TestCIRLLeavesAWholeRun(t *testing.T) {
	workCI(t)
	o := must(t, tinyCIRL(3)...)
	for _, name := range []string{"config.yaml", "metrics.jsonl", "samples.jsonl", "curves.png", "summary.txt",
		"summary.json", "best.json", "test-before.jsonl", "test-after.jsonl",
		"model/config.json", "model/model.safetensors", "model/tokenizer.json",
		"checkpoints/step-00000003/manifest.json"} {
		if !exists("out/" + name) {
			t.Errorf("%s is missing", name)
		}
	}
	c, err := rl.CISpec.Load(config.Input{Path: "out/config.yaml"})
	if err != nil || c.Train.MaxSteps != 3 || c.GRPO.Updates != 2 || c.Data.Prompt != "compact" ||
		string(c.Resolved()) != read(t, "out/config.yaml") {
		t.Errorf("config.yaml: %v\n%s", err, read(t, "out/config.yaml"))
	}
	checkCIRLMetrics(t)
	checkCurves(t)
	checkBestModel(t)
	checkCIRLSummary(t, o)
	for _, want := range []string{"items.json: 24 rows read, 24 kept\n",
		"items.json: 20 items to train on, 2 for validation, 2 for the test\n",
		"test of 2 prompts before training\n", "step 0: eval_reward ", "step 1/3  reward "} {
		if !strings.Contains(o.err, want) {
			t.Errorf("standard error lacks %q:\n%s", want, o.err)
		}
	}
	if lines := strings.Count(read(t, "out/samples.jsonl"), "\n"); lines != 3 {
		t.Errorf("%d samples, want one of each validation, 3", lines)
	}
}

// checkCIRLMetrics: lines in order, the field's names, ratio 1 and KL 0 at the start, rewards that differ.
func checkCIRLMetrics(t *testing.T) {
	t.Helper()
	var order []string
	for _, r := range metrics(t, "out") {
		kind := "train"
		if _, ok := r.Values["eval_reward"]; ok {
			kind = "eval"
		}
		order = append(order, fmt.Sprintf("%s%d", kind, r.Step))
		names := slices.Sorted(maps.Keys(r.Values))
		want := []string{"eval_complete", "eval_integrity", "eval_utility", "eval_format"}
		if kind == "train" {
			want = []string{"loss", "grad_norm", "learning_rate", "num_tokens", "reward", "reward_std",
				"frac_reward_zero_std", "rewards/format/mean", "rewards/required/mean", "rewards/restricted/mean",
				"completions/mean_length", "completions/min_length", "completions/max_length",
				"completions/clipped_ratio", "kl", "entropy", "clip_ratio/low_mean", "clip_ratio/high_mean",
				"clip_ratio/region_mean",
				"sampling/sampling_logp_difference/mean", "sampling/sampling_logp_difference/max"}
			if r.Values["reward_std"] == 0 || r.Values["grad_norm"] == 0 {
				t.Errorf("step %d has nothing to learn: %v", r.Step, r.Values)
			}
			if d := r.Values["sampling/sampling_logp_difference/max"]; !(d < 1e-3) {
				t.Errorf("step %d: sampler and trainer are %v apart", r.Step, d)
			}
		}
		for _, name := range want {
			if !slices.Contains(names, name) {
				t.Errorf("step %d lacks %s: %v", r.Step, name, names)
			}
		}
	}
	if got, want := strings.Join(order, " "), "eval0 train1 train2 eval2 train3 eval3"; got != want {
		t.Errorf("lines %s, want %s", got, want)
	}
}

// checkBestModel: the trained model is the best checkpoint's, and best.json names the highest validation reward.
func checkBestModel(t *testing.T) {
	t.Helper()
	var best run.Best
	if err := json.Unmarshal([]byte(read(t, "out/best.json")), &best); err != nil {
		t.Fatal(err)
	}
	most, at := math.Inf(-1), 0
	for _, r := range metrics(t, "out") {
		if v, ok := r.Values["eval_reward"]; ok && v > most {
			most, at = v, r.Step
		}
	}
	if best.Metric != "eval_reward" || best.Value != most || best.Step != at {
		t.Errorf("best.json %+v, want eval_reward %v of step %d", best, most, at)
	}
	saved, err := model.Load(filepath.Join("out", best.Checkpoint, "model"))
	if err != nil {
		t.Fatal(err)
	}
	if d := distance(saved.Params, weights(t, "out/model")); d > 1e-2 { // the model is stored as the embedded one was
		t.Errorf("the model is %v from the best checkpoint", d)
	}
}

// checkCIRLSummary: the table says what summary.json says, and that follows from the completions in the folder.
func checkCIRLSummary(t *testing.T, o outcome) {
	t.Helper()
	if o.out != read(t, "out/summary.txt") {
		t.Errorf("printed %q, summary.txt holds %q", o.out, read(t, "out/summary.txt"))
	}
	for _, part := range []string{"CI-RL: 3 steps of 2 prompts with 4 completions each, from 20 training prompts, " +
		"engine go.\n", "Test of 2 prompts, one completion each at temperature 0.7",
		"\nintegrity ", "\nutility ", "\ncomplete ", "\nformat kept ", "\nmean reward ", "/2 ", "model/ is ",
		"the best by eval_reward (", "Model: out/model\n", "Samples: out/samples.jsonl\n"} {
		if !strings.Contains(o.out, part) {
			t.Errorf("summary lacks %q:\n%s", part, o.out)
		}
	}
	type rate struct {
		Count, Total int
		Low, High    float64
	}
	var s struct {
		Steps int
		Best  run.Best
		Test  map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(read(t, "out/summary.json")), &s); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"before", "after"} {
		var m struct{ All map[string]json.RawMessage }
		if err := json.Unmarshal(s.Test[when], &m); err != nil {
			t.Fatal(err)
		}
		var integrity rate
		if err := json.Unmarshal(m.All["integrity"], &integrity); err != nil {
			t.Fatal(err)
		}
		kept := strings.Count(read(t, "out/test-"+when+".jsonl"), `"integrity":true`)
		if integrity.Count != kept || integrity.Total != 2 || !(integrity.Low < integrity.High) {
			t.Errorf("%s: integrity %+v in summary.json, %d of 2 in the lines", when, integrity, kept)
		}
	}
	if s.Steps != 3 || s.Best.Metric != "eval_reward" {
		t.Errorf("summary.json: %+v", s)
	}
}

// TestCIRLSameSeedSameRun: seed and inputs fix every bit, on every engine.
func TestCIRLSameSeedSameRun(t *testing.T) {
	for _, e := range backendtest.Engines(t) {
		t.Run(e.Name, func(t *testing.T) {
			workCI(t)
			args := tinyCIRL(2, "--backend", e.Name)
			for _, out := range []string{"a", "b"} {
				must(t, append(args, "--out", out)...)
			}
			must(t, append(args, "--out", "c", "--seed", "2")...)
			sameCIRLRun(t, "a", "b")
			if read(t, "a/model/model.safetensors") == read(t, "c/model/model.safetensors") && read(t,
				"a/test-before.jsonl") == read(t, "c/test-before.jsonl") {
				t.Error("another seed gives the same run")
			}
		})
	}
}

// sameCIRLRun compares what two runs ended in, the completions that they show among it.
func sameCIRLRun(t *testing.T, a, b string) {
	t.Helper()
	sameRun(t, a, b)
	for _, name := range []string{"samples.jsonl", "test-before.jsonl", "test-after.jsonl", "summary.json"} {
		if read(t, filepath.Join(a, name)) != read(t, filepath.Join(b, name)) {
			t.Errorf("%s differs between %s and %s", name, a, b)
		}
	}
}

// TestCIRLTakesEveryForm: the released form as JSON and as lines, packed too, give the same run; so does the order in
// the file. Parquet is read in package ci's tests.
func TestCIRLTakesEveryForm(t *testing.T) {
	workCI(t)
	items, _, err := ci.Read("items.json")
	if err != nil {
		t.Fatal(err)
	}
	var first string
	for _, name := range []string{"items.json", "items.jsonl", "items.jsonl.gz"} {
		if err := data.WriteAll(name, items); err != nil {
			t.Fatal(err)
		}
		must(t, tinyCIRL(1, "--data", name, "--out", name+".run", "--max-new-tokens", "24")...)
		weights := read(t, name+".run/model/model.safetensors") + fmt.Sprint(metrics(t, name+".run"))
		if first == "" {
			first = weights
		} else if weights != first {
			t.Errorf("%s gives another run than items.json", name)
		}
	}
}

// TestCIRLWithoutTest: a test fraction of 0 leaves the test out.
func TestCIRLWithoutTest(t *testing.T) {
	workCI(t)
	o := must(t, tinyCIRL(1, "--set", "data.test_fraction=0", "--kl", "none", "--quiet")...)
	if exists("out/test-before.jsonl") || strings.Contains(o.out, "Test of") || !strings.Contains(o.out,
		"the best by eval_reward (") || o.err != "" {
		t.Errorf("%s%s", o.err, o.out)
	}
	if s := read(t, "out/summary.json"); !strings.Contains(s, `"before": null`) {
		t.Errorf("summary.json: %s", s)
	}
	if _, has := metrics(t, "out")[1].Values["kl"]; has {
		t.Error("kl is measured without a reference")
	}
}

// TestCIRLDropsLongPrompts and says how many.
func TestCIRLDropsLongPrompts(t *testing.T) {
	workCI(t)
	long := strings.Repeat("and on it goes ", 60)
	items := ci.Synthesize(24, 5)
	for i := range 3 {
		items[i*7].DatasetItem.UserTask += long
	}
	if err := data.WriteAll("items.json", items); err != nil {
		t.Fatal(err)
	}
	o := must(t, tinyCIRL(1, "--set", "data.max_prompt_tokens=200")...)
	if !strings.Contains(o.err, "items.json: 3 of 24 prompts left out: they have no token, or more than 200 tokens "+
		"(the longest has ") {
		t.Errorf("%s", o.err)
	}
}

// TestCIRLOfTheReleasedData encodes the released items with the CI-CoT prompt, whose numbers are known; it is skipped
// where the data is not at hand.
func TestCIRLOfTheReleasedData(t *testing.T) {
	path := need.File(t, "data", "contextual-integrity/dataset.json")
	t.Chdir(t.TempDir())
	o := cli(t, "ci-rl", "--model", "embedded", "--data", path, "--prompt", "cot", "--max-new-tokens", "8",
		"--max-steps", "1", "--prompts", "4", "--group-size", "2",
		"--kl", "none", "--set", "validation.every=0", "--set", "data.max_prompt_tokens=0", "--out", "out")
	if !strings.Contains(o.err, path+": 590 items to train on, 66 for validation, 73 for the test\n") {
		t.Errorf("%s", o.err)
	}
	// The embedded model has too few positions for most of these prompts: they are counted, not cut.
	if !strings.Contains(o.err, "prompts left out: they have no token, or more than") {
		t.Errorf("%s", o.err)
	}
}
