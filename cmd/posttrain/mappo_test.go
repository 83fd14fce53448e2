package main

import (
	"encoding/json"
	"fmt"
	"image/png"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/preference"
	"github.com/posttrain/posttrain/tokenizer"
)

// The names that dashboards of the field know.
var (
	loopMetrics       = []string{"grad_norm", "learning_rate", "loss", "num_tokens", "step_time", "tokens_per_second"}
	preferenceMetrics = []string{"logps/chosen", "logps/rejected", "loss", "prior/reward_gap", "rewards/accuracies",
		"rewards/chosen", "rewards/margins", "rewards/rejected"}
)

// TestMappoLeavesAWholeRun looks at everything that a run leaves.
func TestMappoLeavesAWholeRun(t *testing.T) {
	for _, name := range []string{"qwen2-newer", "llama-older", "mistral-older", "qwen3-older"} {
		t.Run(name, func(t *testing.T) {
			work(t, name)
			o := must(t, tiny("mappo", 4, "--data", "pairs.jsonl", "--set", "train.eval_every=2")...)
			checkFiles(t)
			checkConfig(t)
			checkMappoMetrics(t)
			checkCurves(t)
			checkModel(t)
			checkBest(t)
			checkSummary(t, o)
		})
	}
}

func checkFiles(t *testing.T) {
	t.Helper()
	for _, name := range []string{"config.yaml", "metrics.jsonl", "curves.png", "summary.txt", "summary.json", "best.json",
		"reference.safetensors", "reference-eval.safetensors",
		"model/config.json", "model/model.safetensors", "model/tokenizer.json",
		"checkpoints/step-00000004/manifest.json"} {
		if !exists("out/" + name) {
			t.Errorf("%s is missing", name)
		}
	}
}

// checkConfig: the stored config is complete, and in force.
func checkConfig(t *testing.T) {
	t.Helper()
	c, err := preference.Spec.Load(config.Input{Path: "out/config.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Train.MaxSteps != 4 || c.Train.LearningRate != 1e-3 || c.Model != "model" || c.Loss.Prior != "mappo" ||
		string(c.Resolved()) != read(t, "out/config.yaml") {
		t.Errorf("config.yaml holds %s", read(t, "out/config.yaml"))
	}
}

// checkMappoMetrics: the names, the first loss (ln 2: policy and reference are one), the gaps of the file.
func checkMappoMetrics(t *testing.T) {
	t.Helper()
	records, err := run.ReadMetrics("out/metrics.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	wantTrain := slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(loopMetrics), preferenceMetrics...))))
	var wantEval, order []string
	for _, name := range slices.Sorted(slices.Values(append(slices.Clone(preferenceMetrics), "runtime"))) {
		wantEval = append(wantEval, "eval_"+name)
	}
	for _, r := range records {
		names, want, kind := slices.Sorted(maps.Keys(r.Values)), wantTrain, "train"
		if strings.HasPrefix(names[0], "eval_") {
			want, kind = wantEval, "eval"
		}
		if order = append(order, fmt.Sprintf("%s%d", kind, r.Step)); !slices.Equal(names, want) {
			t.Errorf("step %d has %v, want %v", r.Step, names, want)
		}
	}
	if got, want := strings.Join(order, " "), "eval0 train1 train2 eval2 train3 train4 eval4"; got != want {
		t.Errorf("lines %s, want %s", got, want)
	}
	for _, v := range []float64{records[0].Values["eval_loss"], records[1].Values["loss"]} {
		if math.Abs(v-math.Ln2) > 1e-6 {
			t.Errorf("loss %v before any update, want ln 2", v)
		}
	}
	first, last := records[1].Values, records[len(records)-2].Values
	if math.Abs(first["rewards/chosen"]) > 1e-5 || math.Abs(first["rewards/margins"]) > 1e-5 ||
		last["rewards/margins"] <= 0.01 {
		t.Errorf("margins %v at the start and %v at the end: want 0, and a rise", first["rewards/margins"],
			last["rewards/margins"])
	}
	if gap := first["prior/reward_gap"]; gap < 0.2 || gap > 0.7 {
		t.Errorf("prior/reward_gap %v: the file's gaps are 0.205 to 0.7", gap)
	}
	if first["learning_rate"] != 1e-3 || first["num_tokens"] <= 0 || last["num_tokens"] <= first["num_tokens"] ||
		first["tokens_per_second"] <= 0 || first["step_time"] <= 0 {
		t.Errorf("step 1 has %v", first)
	}
}

func checkCurves(t *testing.T) {
	t.Helper()
	f, err := os.Open("out/curves.png")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil || img.Bounds().Dx() < 300 || img.Bounds().Dy() < 200 {
		t.Errorf("curves.png: %v", err)
	}
}

// checkModel: the trained model loads with its tokenizer, has moved, and is as the last checkpoint has it.
func checkModel(t *testing.T) {
	t.Helper()
	before, err := model.Load("model")
	if err != nil {
		t.Fatal(err)
	}
	after, err := model.Load("out/model")
	if err != nil {
		t.Fatal(err)
	}
	if same(before, after) {
		t.Error("training changed no weight")
	}
	saved, err := model.Load("out/checkpoints/step-00000004/model")
	if err != nil || before.Config.DType == "float32" && !same(after, saved) {
		t.Errorf("the model is not the last checkpoint's (%v)", err)
	}
	if tok, err := tokenizer.Load("out/model"); err != nil || !tok.HasTemplate() {
		t.Error("the chat template is lost")
	}
	must(t, "model", "info", "out/model")
}

func same(a, b *model.Model) bool {
	return slices.EqualFunc(a.Params, b.Params, func(p,
		q *model.Param) bool {
		return p.Name == q.Name && slices.Equal(p.Data, q.Data)
	})
}

// checkBest: best.json names a checkpoint that is there, with the least evaluation loss of those measured.
func checkBest(t *testing.T) {
	t.Helper()
	var best run.Best
	if err := json.Unmarshal([]byte(read(t, "out/best.json")), &best); err != nil {
		t.Fatal(err)
	}
	least, at := math.Inf(1), 0
	for _, r := range metrics(t, "out") {
		if v, ok := r.Values["eval_loss"]; ok && v < least {
			least, at = v, r.Step
		}
	}
	if best.Metric != "eval_loss" || best.Value != least || best.Step != at ||
		!exists("out/"+best.Checkpoint+"/model/model.safetensors") {
		t.Errorf("best.json %+v, want eval_loss %v of step %d", best, least, at)
	}
}

func checkSummary(t *testing.T, o outcome) {
	t.Helper()
	if o.out != read(t, "out/summary.txt") {
		t.Errorf("printed %q, summary.txt holds %q", o.out, read(t, "out/summary.txt"))
	}
	for _, part := range []string{"MaPPO-DPO: 4 steps on 11 examples, engine go.", "log p(chosen) went from",
		"on the held-out examples", "Reward accuracy at the end ", "95% interval", "model/ is ",
		"the best by eval_loss (", "Model: out/model\n", "Curves: out/curves.png\n"} {
		if !strings.Contains(o.out, part) {
			t.Errorf("summary lacks %q:\n%s", part, o.out)
		}
	}
	after := tested(t, "out").Test.After.All
	for name, part := range map[string]string{losses.MetricLogpsChosen: " to %.2f, log p(rejected) from ",
		losses.MetricLogpsRejected: " to %.2f.\n", losses.MetricMargins: ", margin %.3f.\n",
		losses.MetricLoss: " to %.4f on the held-out examples"} {
		if part = fmt.Sprintf(part, after[name].Value); !strings.Contains(o.out, part) {
			t.Errorf("summary.json has %+v as %s, for which %q lacks in\n%s", after[name], name, part, o.out)
		}
	}
	if a := after[losses.MetricAccuracies]; !strings.Contains(o.out, fmt.Sprintf("(%d/%d, ", a.Count, a.Total)) {
		t.Errorf("summary.json has %+v of accuracy:\n%s", a, o.out)
	}
}

// summaryFile is the part of summary.json that the tests read.
type summaryFile struct {
	Command, Model, Data string
	Steps                int
	Loss                 recipe.Change
	Test                 struct {
		After struct {
			All map[string]struct {
				Value        float64
				Count, Total int
			}
		}
	}
}

func tested(t *testing.T, dir string) (s summaryFile) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, dir+"/summary.json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSameSeedSameRun: seed and inputs fix every bit.
func TestSameSeedSameRun(t *testing.T) {
	for _, e := range backendtest.Engines(t) {
		t.Run(e.Name, func(t *testing.T) {
			work(t, "mistral-newer")
			args := tiny("mappo", 4, "--data", "pairs.jsonl", "--backend", e.Name)
			for _, out := range []string{"a", "b"} {
				must(t, append(args, "--out", out)...)
			}
			must(t, append(args, "--out", "c", "--seed", "2")...)
			sameRun(t, "a", "b")
			if read(t, "a/model/model.safetensors") == read(t, "c/model/model.safetensors") {
				t.Error("another seed gives the same model")
			}
		})
	}
}

// TestPriorNoneIsGapOne: the plain loss is MaPPO's with a reward gap of 1, and needs no scores.
func TestPriorNoneIsGapOne(t *testing.T) {
	work(t, "qwen2-newer")
	plain := pairLines(8, false)
	write(t, "plain.jsonl", plain)
	write(t, "one.jsonl", strings.ReplaceAll(plain, `{"chosen"`, `{"chosen_score":1,"rejected_score":0,"chosen"`))
	must(t, tinyMappo(3, "--data", "plain.jsonl", "--prior", "none", "--out", "none")...)
	must(t, tinyMappo(3, "--data", "one.jsonl", "--out", "one")...)
	must(t, tinyMappo(3, "--out", "real")...)
	a, b := metrics(t, "none"), metrics(t, "one")
	for i := range a {
		if d := math.Abs(a[i].Values["loss"] - b[i].Values["loss"]); !(d < 1e-6) {
			t.Errorf("step %d: loss %v without the prior, %v with gap 1", a[i].Step, a[i].Values["loss"],
				b[i].Values["loss"])
		}
		if _, has := a[i].Values["prior/reward_gap"]; has || b[i].Values["prior/reward_gap"] != 1 {
			t.Errorf("prior/reward_gap: %v without scores, %v with scores 1 and 0", a[i].Values,
				b[i].Values["prior/reward_gap"])
		}
	}
	x, y := weights(t, "none/model"), weights(t, "one/model")
	if d := distance(x, y); !(d < 1e-6) {
		t.Errorf("weights are %v apart", d)
	}
	if d := distance(x, weights(t, "real/model")); !(d > 1e-5) {
		t.Errorf("gaps below 1 change no weight by more than %v", d)
	}
}

func weights(t *testing.T, dir string) []*model.Param {
	t.Helper()
	m, err := model.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m.Params
}

// distance is the largest difference of two weights.
func distance(a, b []*model.Param) (most float64) {
	for i := range a {
		for k, v := range a[i].Data {
			most = max(most, math.Abs(float64(v-b[i].Data[k])))
		}
	}
	return most
}

// TestEveryLoss runs each with and without the prior. Only losses with a reference leave its log-probs; where the first
// loss is known, it is that.
func TestEveryLoss(t *testing.T) {
	for _, c := range []struct {
		loss      string
		reference bool
		first     float64 // of the first step; 0: it depends on the model
		more      []string
	}{
		{"dpo", true, math.Ln2, nil},
		{"ipo", true, 25, nil}, // (1/(2β))²
		{"simpo", false, 0, []string{"--set", "loss.gamma=0.5"}},
		{"cpo", false, 0, []string{"--set", "loss.lambda=0.5"}},
	} {
		for _, prior := range []string{"mappo", "none"} {
			t.Run(c.loss+" "+prior, func(t *testing.T) {
				work(t, "qwen3-newer")
				args := tiny("mappo", 2, append(c.more, "--data", "pairs.jsonl", "--loss", c.loss, "--prior", prior)...)
				o := must(t, args...)
				for _, name := range []string{"out/reference.safetensors", "out/reference-eval.safetensors"} {
					if exists(name) != c.reference {
						t.Errorf("%s is there: %v, want %v", name, !c.reference, c.reference)
					}
				}
				if strings.Contains(o.err, "reference") != c.reference {
					t.Errorf("standard error speaks of a reference: %v\n%s", !c.reference, o.err)
				}
				records := metrics(t, "out")
				if first := records[1].Values["loss"]; c.first != 0 && math.Abs(first-c.first) > 1e-4 ||
					math.IsNaN(first) {
					t.Errorf("first loss %v, want %v", first, c.first)
				}
				names := map[string]string{"mappo": "MaPPO-", "none": ""}[prior] +
					map[string]string{"dpo": "DPO", "ipo": "IPO", "simpo": "SimPO", "cpo": "CPO"}[c.loss]
				if !strings.HasPrefix(o.out, names+": 2 steps") {
					t.Errorf("summary %q, want it to begin with %s", o.out, names)
				}
			})
		}
	}
}

// TestAnotherReference: with a reference of its own the first loss is not ln 2, and the self-check is off.
func TestAnotherReference(t *testing.T) {
	work(t, "qwen2-newer")
	must(t, "model", "init", "--like", "model", "--out", "other", "--tokenizer", "model", "--seed", "5")
	must(t, tinyMappo(1, "--reference", "other")...)
	if loss := metrics(t, "out")[0].Values["loss"]; math.Abs(loss-math.Ln2) < 1e-3 {
		t.Errorf("first loss %v: the reference was not used", loss)
	}
}

// TestEvaluationFromAFile: every N steps and at the end; a metric other than the loss may name the best checkpoint.
func TestEvaluationFromAFile(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "held.jsonl", pairLines(5, true))
	o := must(t, tiny("mappo", 5, "--data", "pairs.jsonl", "--set", "data.eval_fraction=0", "--set",
		"data.eval=held.jsonl", "--set", "train.eval_every=2",
		"--set", "train.eval_metric=eval_rewards/margins", "--set", "train.checkpoint_keep=1")...)
	var steps []int
	most, at := math.Inf(-1), 0
	for _, r := range metrics(t, "out") {
		if v, ok := r.Values["eval_rewards/margins"]; ok {
			if steps = append(steps, r.Step); v > most {
				most, at = v, r.Step
			}
		}
	}
	if !slices.Equal(steps, []int{0, 2, 4, 5}) {
		t.Errorf("evaluated after steps %v, want 0, 2, 4 and 5", steps)
	}
	if want := fmt.Sprintf("step %d, the best by eval_rewards/margins (%.4f)", at, most); !strings.Contains(o.out,
		want) {
		t.Errorf("summary lacks %q:\n%s", want, o.out)
	}
	if !strings.Contains(o.out, "on 12 examples") || !strings.Contains(o.err,
		"reference log-probs of 5 held-out pairs") {
		t.Errorf("12 pairs to train on and 5 to evaluate on:\n%s%s", o.err, o.out)
	}
	if best := fmt.Sprintf("out/checkpoints/best-%08d", at); !exists(best) {
		t.Errorf("%s, the best, is gone", best)
	}
}

// TestLimitsDropAndCount: a row over a limit is dropped, counted and reported.
func TestLimitsDropAndCount(t *testing.T) {
	work(t, "qwen2-newer")
	long := jsonLine(map[string]any{"prompt": chat("user", "a"),
		"chosen": chat("assistant", strings.Repeat("long ", 300)), "rejected": chat("assistant", "b"),
		"chosen_score": 1, "rejected_score": 0})
	write(t, "pairs.jsonl", long+pairLines(6, true))
	o := must(t, tinyMappo(1)...)
	if want := "pairs.jsonl: 6 kept, 1 dropped as too long, 0 dropped as empty, 0 truncated\n"; !strings.Contains(o.err,
		want) {
		t.Errorf("standard error lacks %q:\n%s", want, o.err)
	}
	o = must(t, tinyMappo(1, "--set", "data.max_tokens=200", "--set", "data.truncate=completion", "--out", "cut")...)
	if want := "pairs.jsonl: 7 kept, 0 dropped as too long, 0 dropped as empty, 1 truncated\n"; !strings.Contains(o.err,
		want) {
		t.Errorf("standard error lacks %q:\n%s", want, o.err)
	}
}

// TestQuiet prints the summary and nothing else.
func TestQuiet(t *testing.T) {
	work(t, "qwen2-newer")
	o := must(t, tiny("mappo", 2, "--data", "pairs.jsonl", "--quiet")...)
	if o.err != "" || o.out != read(t, "out/summary.txt") {
		t.Errorf("standard error %q, standard output %q", o.err, o.out)
	}
}

var (
	stepLine = regexp.MustCompile(`(?m)^step \d+/3  loss \d+\.\d{4}  margin \S+  \d+ tokens/s(  \d+s left)?$`)
	pairLine = regexp.MustCompile(`(?m)^pair \d+/\d+(  \d+s left)?$`)
)

// TestPlainProgress: lines where standard error is no terminal, a bar where it is one.
func TestPlainProgress(t *testing.T) {
	work(t, "qwen2-newer")
	o := must(t, tinyMappo(3)...)
	if n := len(stepLine.FindAllString(o.err, -1)); n != 3 {
		t.Errorf("%d lines of steps, want 3:\n%s", n, o.err)
	}
	if !pairLine.MatchString(o.err) || strings.ContainsAny(o.err, "\r\x1b") {
		t.Errorf("standard error is no plain text:\n%q", o.err)
	}
	for _, want := range []string{"pairs.jsonl: 12 rows read, 12 kept, 12 scored (chosen_score, rejected_score)\n",
		"prior: 12 of 12 pairs, gap median 0.475, mean 0.453 (0.205 to 0.700)\n"} {
		if !strings.Contains(o.err, want) {
			t.Errorf("standard error lacks %q:\n%s", want, o.err)
		}
	}
	bar := &watched{}
	code := execute(t.Context(), streams{in: strings.NewReader(""), out: &watched{}, err: bar, terminal: true},
		tinyMappo(3, "--out", "bar"))
	if got := bar.String(); code != 0 || !strings.Contains(got, "\r") || !strings.Contains(got, "3/3") ||
		!strings.Contains(got, "loss ") || stepLine.MatchString(got) {
		t.Errorf("exit code %d, the bar is\n%q", code, got)
	}
}

// TestDefaultRunFolder is named after the command and the time.
func TestDefaultRunFolder(t *testing.T) {
	work(t, "qwen2-newer")
	args := tinyMappo(1)
	i := slices.Index(args, "--out")
	o := must(t, slices.Delete(args, i, i+2)...)
	if !regexp.MustCompile(`(?m)^Model: runs/mappo-\d{8}-\d{6}/model$`).MatchString(o.out) {
		t.Errorf("summary %q", o.out)
	}
}
