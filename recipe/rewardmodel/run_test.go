package rewardmodel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/internal/config"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/exchange"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/rollout/scorer"
)

const fixtures = "../../model/testdata"

// writePairs writes pairs of answers, of which those that say yes are chosen.
func writePairs(t *testing.T, n int, scored bool) string {
	t.Helper()
	var pairs []data.Preference
	text := func(role, s string) data.Text { return data.Text{Messages: []data.Message{{Role: role, Content: s}}} }
	for i := range n {
		p := data.Preference{Prompt: text("user", fmt.Sprintf("Is %d here?", i*i)),
			Chosen: text("assistant", fmt.Sprintf("Yes, on the board %d.", i)), Rejected: text("assistant", "No.")}
		if scored {
			p.ChosenScore, p.RejectedScore, p.Scored = float64(i), 1, true
		}
		pairs = append(pairs, p)
	}
	path := filepath.Join(t.TempDir(), "pairs.jsonl")
	if err := data.WriteAll(path, pairs); err != nil {
		t.Fatal(err)
	}
	return path
}

func tiny(t *testing.T, folder, pairs string) Options {
	o := Spec.Defaults()
	o.Model, o.Backend, o.Data.TrainFiles, o.Dir.Out = folder, "go", config.Names{pairs}, filepath.Join(t.TempDir(),
		"run")
	o.Train.Epochs, o.Train.MaxSteps, o.Train.BatchSize, o.Train.MicroBatchSize = 0, 12, 4, 4
	o.Train.LearningRate, o.Train.LogEvery = 1e-2, 1
	return o
}

// TestRewardModel: a language model becomes a reward model that prefers the chosen answers, which posttrain data score
// reads and which trains further.
func TestRewardModel(t *testing.T) {
	o := tiny(t, filepath.Join(fixtures, "qwen2-newer"), writePairs(t, 16, false))
	o.Data.EvalFraction, o.Train.EvalMetric, o.Train.EvalEvery = 0.25, "eval_accuracy", 4
	result, err := Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(result.Summary, "On 4 held-out pairs the chosen answer scores higher in 100.0% (4/4,") {
		t.Error(result.Summary)
	}
	folder := filepath.Join(result.Dir, "model")
	last := lastOf(t, result.Dir)
	rewards := scores(t, folder, o.Data.TrainFiles[0])
	for i := 0; i < len(rewards); i += 2 {
		if !(rewards[i] > rewards[i+1]) {
			t.Errorf("pair %d: the chosen answer scores %v, the rejected %v", i/2, rewards[i], rewards[i+1])
		}
	}
	if last["eval_accuracy"] != 1 || math.IsNaN(last["eval_margin"]) {
		t.Errorf("the last evaluation is %v", last)
	}
	more := tiny(t, folder, o.Data.TrainFiles[0])
	more.Train.MaxSteps = 1
	more.Train.LearningRate = 1e-9
	if result, err = Run(t.Context(), more, nil); err != nil {
		t.Fatal(err)
	}
	for i, x := range scores(t, filepath.Join(result.Dir, "model"), o.Data.TrainFiles[0]) {
		if math.Abs(x-rewards[i]) > 1e-3 {
			t.Errorf("answer %d: a step of no length moved the score from %v to %v", i, rewards[i], x)
		}
	}
}

// TestRewardAdapter: beside an adapter the score is trained whole and kept with it; merged they score as trained, and the
// adapter trains further. peft's name of such an adapter is SEQ_CLS, with the score in modules_to_save.
func TestRewardAdapter(t *testing.T) {
	base, pairs := filepath.Join(fixtures, "qwen2-newer"), writePairs(t, 16, false)
	for _, quantize := range []string{"none", model.NF4} {
		o := tiny(t, base, pairs)
		o.Adapting.LoRA.Rank, o.Adapting.LoRA.Alpha, o.Adapting.Quantize = 4, 8, quantize
		o.Data.EvalFraction, o.Train.EvalMetric, o.Train.EvalEvery = 0.25, "eval_accuracy", 4
		result, err := Run(t.Context(), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(result.Summary, "scores higher in 100.0% (4/4,") ||
			!strings.Contains(result.Summary, "posttrain model export") {
			t.Error(result.Summary)
		}
		adapter := filepath.Join(result.Dir, "adapter")
		config, err := os.ReadFile(filepath.Join(adapter, "adapter_config.json"))
		if err != nil || !strings.Contains(string(config), `"SEQ_CLS"`) {
			t.Errorf("%s, %v", config, err)
		}
		merged := filepath.Join(t.TempDir(), "merged")
		if _, err := exchange.Merge(t.Context(), exchange.MergeOptions{Model: base, Adapter: adapter, Out: merged,
			DType: "float32"}); err != nil {
			t.Fatal(err)
		}
		rewards := scores(t, merged, pairs)
		for i := 0; i < len(rewards); i += 2 {
			if !(rewards[i] > rewards[i+1]) {
				t.Errorf("%s, pair %d: the chosen answer scores %v, the rejected %v", quantize, i/2, rewards[i], rewards[i+1])
			}
		}
		more := tiny(t, base, pairs)
		more.Adapting.Adapter, more.Adapting.Quantize, more.Train.MaxSteps, more.Train.LearningRate = adapter, quantize, 1, 1e-9
		more.Data.EvalFraction, more.Train.EvalMetric, more.Train.EvalEvery = 0.25, "eval_accuracy", 1
		if result, err = Run(t.Context(), more, nil); err != nil {
			t.Fatal(err)
		}
		if last := lastOf(t, result.Dir); last["eval_accuracy"] != 1 {
			t.Errorf("trained further: %v", last)
		}
	}
	m, _, err := local.Load(base)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Release()
	ofText := m.Adapt(model.LoRA{Rank: 2, Alpha: 2, Modules: []string{"self_attn.q_proj"}}, 1)
	o := tiny(t, base, pairs)
	o.Adapting.Adapter = t.TempDir()
	if err := (model.Writer{}).SaveAdapter(ofText, o.Adapting.Adapter, ""); err != nil {
		t.Fatal(err)
	}
	_, err = Run(t.Context(), o, nil)
	expect.Error(t, err, "want an adapter of a reward model, which has it, for a reward model")
}

// lastOf is the last evaluation of a run.
func lastOf(t *testing.T, dir string) map[string]float64 {
	t.Helper()
	records, err := run.ReadMetrics(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range slices.Backward(records) {
		if _, held := r.Values["eval_accuracy"]; held {
			return r.Values
		}
	}
	return nil
}

// scores are the scores of the chosen and the rejected answers, in turn.
func scores(t *testing.T, folder, path string) (values []float64) {
	t.Helper()
	o := scorer.Defaults()
	o.Kind, o.Model.Folder, o.Model.Backend = scorer.Model, folder, "go"
	s, err := scorer.Open(o, scorer.Caller{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	pairs, _, err := data.ReadPreferences(path, data.PreferenceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pairs {
		q := &ask.Question{Prompt: p.Prompt}
		both, err := s.Score(t.Context(), []ask.Answer{{To: q, Said: p.Chosen}, {To: q, Said: p.Rejected}})
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, both[0].Value, both[1].Value)
	}
	return values
}

// TestNewHeadPassesOverPadding: the saved config names the tokenizer's pad token, as TRL's does; a reward model keeps
// the one it has.
func TestNewHeadPassesOverPadding(t *testing.T) {
	dir, _ := testkit.RewardModel(t, fixtures, "llama")
	for folder, want := range map[string]int{filepath.Join(fixtures, "llama-newer"): 304, dir: 307} {
		m, _, err := new(Options).withHead(local.LoadAny)(folder)
		if err != nil {
			t.Fatal(err)
		}
		if !m.Config.Reward || *m.Config.Pad != want {
			t.Errorf("%s: reward %v, pad %d: want %d", folder, m.Config.Reward, *m.Config.Pad, want)
		}
		m.Release()
	}
}

// TestMargins: a margin is the difference of the scores; pairs without scores are refused.
func TestMargins(t *testing.T) {
	pair := data.Preference{ChosenScore: 5, RejectedScore: 2, Scored: true, Source: "p:1"}
	scores := Loss{Margin: "scores", MarginScale: 0.5}
	if got, err := scores.marginOf(pair); got != 1.5 || err != nil {
		t.Error(got, err)
	}
	if got, err := (Loss{Margin: "none"}).marginOf(pair); got != 0 || err != nil {
		t.Error(got, err)
	}
	_, err := scores.marginOf(data.Preference{Source: "p:3"})
	if err == nil || err.Error() != "p:3: the pair has no scores: loss.margin scores wants them in every row" {
		t.Error(err)
	}
}

// TestPlanSharesPrompts: a plan lays pairs out as the run does, both answers behind one prompt.
func TestPlanSharesPrompts(t *testing.T) {
	tokens := map[string]float64{}
	for _, share := range []string{"on", "off"} {
		o := tiny(t, filepath.Join(fixtures, "qwen2-newer"), writePairs(t, 8, false))
		o.Train.SharePrefix = share
		d, err := o.DryRun(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range d.Survey.Shapes {
			tokens[share] += s.Tokens
		}
		d.Close()
	}
	if !(tokens["on"] < tokens["off"]) {
		t.Errorf("%v tokens: want fewer where answers share their prompt", tokens)
	}
}

// TestHeldOutCopies: a run says how many held-out pairs it trains on, too, because a file has them twice, or because
// the file of held-out pairs has some of them.
func TestHeldOutCopies(t *testing.T) {
	once := writePairs(t, 8, false)
	double := filepath.Join(t.TempDir(), "double.jsonl")
	expect.Write(t, double, expect.Read(t, once)+expect.Read(t, once))
	for _, c := range []struct{ train, eval, want string }{
		{once, once, once + ": 8 of 8 held-out pairs are in the training data, too"},
		{double, "", "data.eval_fraction: "}, {once, "", ""},
	} {
		o := tiny(t, filepath.Join(fixtures, "qwen2-newer"), c.train)
		if o.Data.EvalFile = c.eval; c.eval == "" {
			o.Data.EvalFraction = 0.25
		}
		o.Train.EvalMetric = "eval_loss"
		var heard testkit.Recorder
		d, err := o.DryRun(t.Context(), &heard)
		if err != nil {
			t.Fatal(err)
		}
		d.Close()
		if got := strings.Join(heard.Warned, "\n"); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s, %s: %q, want %q", c.train, c.eval, got, c.want)
		}
	}
}

// TestFaults gives each a line.
func TestFaults(t *testing.T) {
	path := writePairs(t, 2, true)
	urm, _ := testkit.RewardModel(t, fixtures, "urm")
	for want, change := range map[string]func(*Options){
		"loss.margin_scale 2: without loss.margin scores": func(o *Options) { o.Loss.MarginScale = 2 },
		"data.score_columns [a b]: without loss.margin scores no": func(o *Options) {
			o.Data.ScoreColumns = []string{"a", "b"}
		},
		"loss.center_rewards_coefficient -1: want a number, 0 or more": func(o *Options) { o.Loss.Center = -1 },
		"the head of LlamaForSequenceClassificationWithNormal_Weights is for scoring, not for training": func(o *Options) {
			o.Model = urm
		},
		"no pair is left: all have more than 8 tokens": func(o *Options) { o.Data.MaxTokens = 8 },
		"train.eval_metric \"eval_logps\": want eval_loss, eval_accuracy or eval_margin": func(o *Options) {
			o.Data.EvalFraction, o.Train.EvalMetric = 0.5, "eval_logps"
		},
	} {
		o := tiny(t, filepath.Join(fixtures, "qwen2-newer"), path)
		change(&o)
		if _, err := Run(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
}

// TestResume: an interrupted run ends in the bits of a whole one.
func TestResume(t *testing.T) {
	pairs := writePairs(t, 8, true)
	start := func(out string) Options {
		o := tiny(t, filepath.Join(fixtures, "llama-newer"), pairs)
		o.Loss.Margin, o.Dir.Out, o.Train.MaxSteps = "scores", out, 4
		return o
	}
	whole, broken := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "broken")
	if _, err := Run(t.Context(), start(whole), nil); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	_, err := Run(ctx, start(broken), stopper{Reporter: run.Listen(nil), stop: stop})
	if !errors.Is(err, recipe.ErrInterrupted) || !strings.Contains(err.Error(), "at step 2 of 4, saved") {
		t.Fatal(err)
	}
	o := start("")
	o.Dir = recipe.RunDir{Resume: broken}
	if _, err := Run(t.Context(), o, nil); err != nil {
		t.Fatal(err)
	}
	testkit.SameMetrics(t, whole, broken)
	testkit.SameFiles(t, whole, broken, "model/model.safetensors", "model/config.json")
	m, err := model.Load(filepath.Join(broken, "model"))
	if err != nil || !m.Config.Reward {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(broken, "model", "tokenizer.json")); err != nil {
		t.Error(err)
	}
}

// stopper interrupts a run at its second step.
type stopper struct {
	run.Reporter
	run.Bar
	stop func()
}

func (s stopper) Progress(unit string, start, total int) run.Bar {
	s.Bar = s.Reporter.Progress(unit, start, total)
	return s
}

func (s stopper) Step(done int, values map[string]float64) {
	if done == 2 {
		s.stop()
	}
}
