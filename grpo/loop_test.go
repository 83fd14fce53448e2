package grpo

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// framed is a byte tokenizer for a vocabulary of 64: token 32+i is the letter 'a'+i, the others are spaces. It puts
// what a model writes behind a prompt of tinyTasks into the tags that a random model would never find.
type framed struct{}

const tinyPrompt = 6 // tokens

func (framed) Decode(ids []int32, _ bool) string {
	letters := make([]byte, len(ids))
	for i, id := range ids {
		letters[i] = ' '
		if id >= 32 && id < 32+26 {
			letters[i] = 'a' + byte(id-32)
		}
	}
	if len(ids) <= tinyPrompt {
		return string(letters)
	}
	return string(letters[:tinyPrompt]) + "</think><answer>" + string(letters[tinyPrompt:]) + "</answer>"
}

// tinyTasks ask for one or two letters, which the prompt has, and restrict a third.
func tinyTasks(n int) []ask.Question {
	tasks := make([]ask.Question, n)
	for i := range tasks {
		a, b, c := int32(32+i%5), int32(32+(i+1)%5), int32(50+i%3)
		letter := func(id int32) string { return string(rune('a' + id - 32)) }
		k := reward.Keywords{Required: []string{letter(a), letter(b)}, Restricted: []string{letter(c)}}
		tasks[i] = ask.Question{Tokens: []int32{2, a, b, 3, c, 4}, Source: fmt.Sprintf("items:%d", i+1),
			Prompt: data.Text{Plain: "write " + letter(a)}, Target: fmt.Sprint(k), Row: map[string]any{"keywords": k}}
	}
	return tasks
}

// integrity is the contextual-integrity reward of tinyTasks, whose prompts begin the think block.
func integrity(q *ask.Question, completion string) ask.Score {
	s := reward.Evaluate(q.Row["keywords"].(reward.Keywords), completion, true, reward.DefaultOptions())
	return ask.Score{Value: s.Reward, Fault: s.Fault, Parts: s.Parts()}
}

// Loop is a trainer with its rollouts.
type Loop struct {
	*Rollouts
	*train.Trainer
	Options *Options
	Train   *train.Options
}

func (l *Loop) Total() int { return l.Trainer.Total() }

func newLoop(rs *Rollouts, t *train.Trainer) *Loop {
	t.Source = rs
	return &Loop{rs, t, &rs.Options, &t.Options}
}

// tiny is a loop over tinyTasks with everything that a resumed run must remember.
func tiny(t testing.TB, e *backend.Engine, folder *run.Folder) *Loop {
	t.Helper()
	return tinyOf(t, e, model.Init(testkit.Config(t, "llama"), 7), folder)
}

func tinyOf(t testing.TB, e *backend.Engine, m *model.Model, folder *run.Folder) *Loop {
	t.Helper()
	l, closer, err := newTiny(e, m, folder)
	expect.OK(t, err)
	t.Cleanup(closer)
	return l
}

func newTiny(e *backend.Engine, m *model.Model, folder *run.Folder) (*Loop, func(), error) {
	learner, err := train.NewLearner(e, m, model.GraphOptions{})
	if err != nil {
		return nil, nil, err
	}
	reference, err := learner.Upload(m)
	if err != nil {
		return nil, nil, err
	}
	sampler := rollout.NewCached(e, m.Config, learner.Weights, rollout.Options{Decoder: framed{}})
	all := tinyTasks(13)
	l := newLoop(&Rollouts{
		Options: Options{Prompts: 4, GroupSize: 4, Updates: 2, Std: Sample, RatioLevel: Token, Aggregation: TokenMean,
			ClipLow: 0.2, ClipHigh: 0.2, KL: K3, KLCoef: 0.01, DynamicSampling: 1, MaskTruncated: false},
		Sampling: rollout.Sampling{MaxNew: 8, Temperature: 1}, Judge: ask.Rule(integrity),
		Validation: ValidationOptions{Every: 2, Temperature: 0.7, Samples: 2},
		Row:        func(step int, a ask.Answer) any { return sampled{step, a.To.Source, a.To.Prompt, a.Text, a.Score} },
		Sampler:    sampler, Reference: reference, Tasks: all[:10], Held: all[10:],
	}, &train.Trainer{
		Options: train.Options{MaxSteps: 4, LearningRate: 1e-2, Schedule: "cosine", WarmupSteps: 2, WeightDecay: 0.1,
			AdamBeta1: 0.9, AdamBeta2: 0.999, AdamEpsilon: 1e-8, MaxGradNorm: 1, Shuffle: true, LogEvery: 3,
			CheckpointEvery: 1, CheckpointKeep: 2},
		Learner: learner, Folder: folder, Export: train.Exporter{Model: m}, Seed: 5, ConfigHash: "test",
	})
	return l, func() {
		sampler.Close()
		backend.FinalizeAll(reference...)
		learner.Close()
	}, nil
}

func newFolder(t testing.TB) *run.Folder {
	t.Helper()
	f, err := run.Create(t.TempDir(), "test")
	if err == nil {
		err = f.WriteConfig([]byte("command: test\n"))
	}
	expect.OK(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func mustStart(t testing.TB, l *Loop) {
	t.Helper()
	expect.OK(t, l.Trainer.Start())
}

func mustRun(t testing.TB, l *Loop) {
	t.Helper()
	expect.OK(t, l.Run(t.Context()))
}

func metrics(t testing.TB, f *run.Folder) []run.Record {
	t.Helper()
	return expect.Must(f.ReadMetrics())(t)
}

// wantError checks that an error is one line that holds every one of the parts.
var wantError = expect.Error

// TestRewardRises: a random model learns which letters are wanted and which are not.
func TestRewardRises(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		l := tiny(t, e, newFolder(t))
		*l.Options = Options{Prompts: 8, GroupSize: 8, Updates: 1, Std: Sample, RatioLevel: Token,
			Aggregation: TokenMean,
			ClipLow:     0.2, ClipHigh: 0.2, KL: None}
		l.Train.MaxSteps, l.Train.LearningRate, l.Train.Schedule, l.Train.WeightDecay, l.Train.CheckpointEvery = 40,
			2e-2, "constant", 0, 0
		l.Validation.Every, l.Reference = 20, nil
		l.OnNotice = func(line string) { t.Log(line) }
		mustRun(t, l)
		var first, last float64
		records := metrics(t, l.Folder)
		for _, r := range records {
			if v, ok := r.Values["reward"]; ok && r.Step <= 6 {
				first = v
			} else if ok {
				last = v
			}
		}
		t.Logf("reward %.3f at first, %.3f at last", first, last)
		if last < first+0.3 {
			t.Errorf("the reward went from %.3f to %.3f: want it to rise by 0.3", first, last)
		}
		before, after := records[0].Values["eval_reward"], records[len(records)-1].Values["eval_reward"]
		if !(after > before+0.2) {
			t.Errorf("the held-out reward went from %.3f to %.3f: want it to rise by 0.2", before, after)
		}
	})
}

// TestPartsOfAStep: a step says how far it is from its first answer to its last update.
func TestPartsOfAStep(t *testing.T) {
	l := tiny(t, backendtest.Go(t), nil)
	l.Train.MaxSteps = 1
	last, order := map[string]run.Part{}, []string{}
	hear := func(p run.Part) {
		if _, known := last[p.What]; !known {
			order = append(order, p.What)
		}
		if last[p.What] = p; !(p.Share >= 0 && p.Share <= 1) {
			t.Errorf("%+v: want a share of the work", p)
		}
	}
	l.Rollouts.OnPart, l.Trainer.OnPart = hear, hear
	l.Rollouts.Options.DynamicSampling = 0
	mustRun(t, l)
	if p := last[Sampling]; p.Done != 16 || p.Total != 16 || p.Tokens == 0 || p.Share != 1 {
		t.Errorf("%+v, want 16 answers", p)
	}
	if p := last["learning"]; p.Done == 0 || p.Done != p.Total {
		t.Errorf("%+v, want all", p)
	}
	want := []string{"answering", "scoring 3 answers", Sampling, "scoring 16 answers",
		"measuring log-probs", "learning"}
	if !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
}

// TestMetrics: the names that dashboards know, and that they fit together.
func TestMetrics(t *testing.T) {
	l := tiny(t, backendtest.Go(t), newFolder(t))
	l.Train.LogEvery = 1
	mustRun(t, l)
	records := metrics(t, l.Folder)
	var training, validation []run.Record
	for _, r := range records {
		if _, ok := r.Values["eval_reward"]; ok {
			validation = append(validation, r)
		} else {
			training = append(training, r)
		}
	}
	if len(training) != 4 || len(validation) != 3 || validation[0].Step != 0 || validation[2].Step != 4 {
		t.Fatalf("%d lines of training, %d of validation: want 4 and 3, at steps 0, 2, 4", len(training),
			len(validation))
	}
	for _, name := range []string{"reward", "reward_std", "frac_reward_zero_std", "rewards/format/mean",
		"rewards/required/mean", "rewards/restricted/mean",
		"completions/mean_length", "completions/min_length", "completions/max_length", "completions/clipped_ratio",
		"kl", "entropy",
		"clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean",
		"sampling/sampling_logp_difference/mean", "sampling/sampling_logp_difference/max",
		"loss", "grad_norm", "learning_rate", "num_tokens", "step_time", "time/rollout", "time/score", "time/train",
		"tokens_per_second",
		"integrity", "utility", "complete"} {
		if v, ok := training[0].Values[name]; !ok || math.IsNaN(v) {
			t.Errorf("%s is %v: want a number", name, v)
		}
	}
	for _, name := range []string{"eval_reward", "eval_integrity", "eval_utility", "eval_complete", "eval_format"} {
		if v, ok := validation[1].Values[name]; !ok || math.IsNaN(v) {
			t.Errorf("%s is %v: want a number", name, v)
		}
	}
	v := training[1].Values
	if got := v["rewards/required/mean"] - v["rewards/restricted/mean"]; math.Abs(got-v["reward"]) > 1e-9 ||
		v["rewards/format/mean"] != 1 {
		t.Errorf("reward %v, its parts give %v, format %v", v["reward"], got, v["rewards/format/mean"])
	}
	if v["sampling/sampling_logp_difference/max"] > 1e-4 {
		t.Errorf("sampler and trainer differ by %v", v["sampling/sampling_logp_difference/max"])
	}
}

// sampled is a line of samples.jsonl.
type sampled struct {
	Step       int
	Source     string
	Prompt     data.Text
	Completion string
	ask.Score
}

// TestSamples: every validation shows the same tasks, with what was found.
func TestSamples(t *testing.T) {
	l := tiny(t, backendtest.Go(t), newFolder(t))
	mustRun(t, l)
	text := expect.Read(t, l.Folder.SamplesPath())
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 6 {
		t.Fatalf("%d lines: want 2 of each of 3 validations", len(lines))
	}
	for i, line := range lines {
		var s sampled
		expect.OK(t, json.Unmarshal([]byte(line), &s))
		task := l.Held[i%2]
		if s.Step != i/2*2 || s.Source != task.Source || !s.Prompt.Equal(task.Prompt) || s.Fault != "" {
			t.Errorf("line %d: %s", i+1, line)
		}
		score := integrity(&task, s.Completion)
		if score.Value != s.Value ||
			s.Parts["rewards/required/mean"]-s.Parts["rewards/restricted/mean"] != s.Value {
			t.Errorf("line %d: %s: want a reward of %v", i+1, line, score.Value)
		}
	}
}

// script replaces the sampler of a loop by texts.
func script(l *Loop, text func(r rollout.Request, nth int) string) *scripted {
	s := &scripted{Answer: func(r rollout.Request, nth int) rollout.Completion {
		return says(text(r, nth), testkit.Vocab)
	}}
	l.Sampler = s
	return s
}

// answerOf wraps a text as the format wants it behind a prefilled prompt.
func answerOf(text string) string { return "x</think><answer>" + text + "</answer>" }

// TestDynamicSampling: groups of equal rewards make room for the tasks that follow, the others stay in their places.
func TestDynamicSampling(t *testing.T) {
	l := tiny(t, backendtest.Go(t), newFolder(t))
	l.Options.DynamicSampling, l.Train.Shuffle = 2, false
	equal := map[int]bool{1: true, 3: true, 4: true} // tasks whose groups are of equal rewards
	s := script(l, func(r rollout.Request, nth int) string {
		if group := nth / 4; equal[group] || nth%2 == 0 {
			return answerOf("")
		}
		return answerOf("abcde")
	})
	mustStart(t, l)
	r := expect.Must(l.roll(t.Context()))(t)
	// The first round takes tasks 0 to 3, of which 1 and 3 fall; the second 4 and 5, of which 4 falls; the third 6.
	var places []string
	for _, a := range r.groups {
		places = append(places, a.Source)
	}
	if want := []string{"items:1", "items:7", "items:3", "items:6"}; !reflect.DeepEqual(places, want) ||
		r.used != 7 || len(s.Asked) != 28 {
		t.Errorf("places %v of %d tasks, %d requests: want %v of 7, 28", places, r.used, len(s.Asked), want)
	}
	m := train.NewMetrics()
	r.observe(m, false)
	if got := m.Means("")["frac_reward_zero_std"]; math.Abs(got-3.0/7) > 1e-12 {
		t.Errorf("frac_reward_zero_std %v: want 3 of 7", got)
	}
	seeds := map[uint64]bool{}
	for _, r := range s.Asked {
		seeds[r.Seed] = true
	}
	if len(seeds) != 28 {
		t.Errorf("%d different seeds of 28 requests", len(seeds))
	}
}

// TestDynamicSamplingOfEach: answers of rewards 0 and 1, and of 1/2 and 0, have the same sum with the weights 2 and 1.
// Where each is normalised by itself their advantages differ, so that their group stays.
func TestDynamicSamplingOfEach(t *testing.T) {
	for combine, tasks := range map[string]int{EachReward: 4, "": 12} {
		l := tiny(t, backendtest.Go(t), newFolder(t))
		l.Options.DynamicSampling, l.Options.Combine, l.Weights = 2, combine, []float64{2, 1}
		script(l, func(_ rollout.Request, nth int) string { return strings.Repeat("b", 1+nth%2) })
		l.Judge = ask.Rule(func(_ *ask.Question, text string) ask.Score {
			each := [][]float64{{0, 1}, {0.5, 0}}[len(text)-1]
			return ask.Score{Value: 2*each[0] + each[1], Each: each}
		})
		mustStart(t, l)
		r := expect.Must(l.roll(t.Context()))(t)
		m := train.NewMetrics()
		r.observe(m, true)
		equal := m.Means("")["frac_reward_zero_std"]
		if teaches := r.groups[0].advantages[0] != 0; r.used != tasks || equal == 0 != teaches ||
			teaches != (combine == EachReward) {
			t.Errorf("combine %q: %d tasks for 4 places, %v of the groups equal, advantages %v", combine, r.used, equal,
				r.groups[0].advantages)
		}
	}
}

// TestTasksGoOnIntoTheNextEpoch, in its order.
func TestTasksGoOnIntoTheNextEpoch(t *testing.T) {
	l := newLoop(&Rollouts{Tasks: tinyTasks(5)}, &train.Trainer{Seed: 3, Options: train.Options{Shuffle: true}})
	first, second := train.Order(5, 3, 0, true), train.Order(5, 3, 1, true)
	l.Options.Prompts, l.Rollouts.t = 4, l.Trainer
	var got []string
	for range 2 {
		for _, a := range l.tasks(0, 4) {
			got = append(got, a.Source)
		}
		l.State.Epoch, l.State.Position = l.State.Epoch+(l.State.Position+4)/5, (l.State.Position+4)%5
	}
	var want []string
	for _, i := range append(first, second[:3]...) {
		want = append(want, l.Tasks[i].Source)
	}
	if !reflect.DeepEqual(got, want) || l.State.Epoch != 1 || l.State.Position != 3 {
		t.Errorf("tasks %v, epoch %d, position %d: want %v, 1, 3", got, l.State.Epoch, l.State.Position, want)
	}
	l.Train.Epochs = 3
	if l.Total() != 4 {
		t.Errorf("%d steps of 4 prompts in 3 epochs of 5 tasks: want 4", l.Total())
	}
}

// TestMaskTruncated: only what the length limit cut is masked.
func TestMaskTruncated(t *testing.T) {
	a := &group{Question: &ask.Question{}}
	for _, reason := range []string{rollout.EOS, rollout.Length, rollout.StopString} {
		a.answers = append(a.answers, ask.Answer{Completion: rollout.Completion{Reason: reason}})
	}
	if g := a.training(true); !reflect.DeepEqual(g.Masked, []bool{false, true, false}) {
		t.Errorf("masked %v", g.Masked)
	}
	if g := a.training(false); g.Masked != nil {
		t.Errorf("masked %v: want none", g.Masked)
	}
}

// TestFruitless: a model without the format in reach ends the run, which shows what it writes.
func TestFruitless(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		want   string
	}{"ended": {rollout.EOS, "posttrain sft"}, "cut": {rollout.Length,
		"16 of 16 were cut at 8 tokens: raise sampling.max_new_tokens"}} {
		t.Run(name, func(t *testing.T) {
			l := tiny(t, backendtest.Go(t), newFolder(t))
			l.Options.DynamicSampling, l.Train.MaxSteps, l.Held, l.Validation.Every = 0, 50, nil, 0
			l.Sampler = &scripted{Answer: func(rollout.Request, int) rollout.Completion {
				c2 := says("Dear hotel, "+strings.Repeat("é", 300), testkit.Vocab)
				c2.Tokens, c2.Reason = c2.Tokens[:8], c.reason
				return c2
			}}
			err := l.Run(t.Context())
			wantError(t, err, "step 5: all completions of 5 steps broke the format", `begins "Dear hotel, é`,
				"(no </think>)", c.want, "last good checkpoint is")
			if strings.Count(err.Error(), "é") != 200-len("Dear hotel, ") {
				t.Errorf("want 200 characters of the text: %s", err)
			}
		})
	}
}

// TestFruitfulSteps start the count anew.
func TestFruitfulSteps(t *testing.T) {
	l := tiny(t, backendtest.Go(t), newFolder(t))
	l.Options.DynamicSampling, l.Train.MaxSteps, l.Held, l.Validation.Every = 0, 12, nil, 0
	script(l, func(_ rollout.Request, nth int) string {
		if step := nth / 16; step == 4 || step == 8 {
			return answerOf("a")
		}
		return "Dear hotel,"
	})
	mustRun(t, l)
}

// TestBadInput: what cannot go well is one line, before anything is sampled.
func TestBadInput(t *testing.T) {
	e := backendtest.Go(t)
	for name, c := range map[string]struct {
		spoil func(l *Loop)
		want  []string
	}{
		"group of one": {func(l *Loop) { l.Options.GroupSize = 1 }, []string{"grpo.group_size 1", "2 or more"}},
		"no tasks":     {func(l *Loop) { l.Tasks = nil }, []string{"the training split is empty"}},
		"few tasks": {func(l *Loop) { l.Tasks = l.Tasks[:3] }, []string{"grpo.prompts_per_step 4",
			"3 prompts to train on"}},
		"nothing held out": {func(l *Loop) { l.Held = nil }, []string{"the validation split is empty",
			"data.validation_fraction"}},
		"greedy": {func(l *Loop) { l.Sampling.Temperature = 0 }, []string{"sampling.temperature 0",
			"above 0"}},
		"long prompt": {func(l *Loop) { l.Tasks[1].Tokens = make([]int32, 128) },
			[]string{"items:2: the prompt has 128 tokens, the model 128 positions"}},
		"long held-out": {func(l *Loop) { l.Held[0].Tokens = make([]int32, 200) },
			[]string{"items:11: the prompt has 200 tokens"}},
		"long responses": {func(l *Loop) { l.Sampling.MaxNew = 123 }, []string{"sampling.max_new_tokens 123",
			"128 positions", "takes 6", "want at most 122"}},
		"KL to nothing":       {func(l *Loop) { l.Reference = nil }, []string{"grpo.kl k3"}},
		"a sampler in a knot": {func(l *Loop) { l.Sampler = few{} }, []string{"sampling: 0 completions of"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := tiny(t, e, newFolder(t))
			c.spoil(l)
			wantError(t, l.Run(t.Context()), c.want...)
		})
	}
}

// few is a sampler that answers nothing.
type few struct{}

func (few) Sample(context.Context, []rollout.Request) ([]rollout.Completion, error) { return nil, nil }

// TestNoHeldOutTasks: without validation there is no best checkpoint, and the last weights stay.
func TestNoHeldOutTasks(t *testing.T) {
	l := tiny(t, backendtest.Go(t), newFolder(t))
	l.Held, l.Validation.Every = nil, 0
	mustRun(t, l)
	if best, err := l.LoadBest(); best != nil || err != nil {
		t.Errorf("best %v, %v", best, err)
	}
}

// TestBestIsLoaded: after the run the learner can be given the weights of the best validation.
func TestBestIsLoaded(t *testing.T) {
	l := tiny(t, backendtest.Go(t), newFolder(t))
	l.Train.MaxSteps, l.Train.CheckpointKeep = 8, 1
	weights := map[int][]float32{}
	l.OnStep = func(step, _ int, _ map[string]float64) { weights[step] = readWeights(t, l) }
	weights[0] = readWeights(t, l)
	mustRun(t, l)
	best, err := l.LoadBest()
	if err != nil || best == nil {
		t.Fatalf("best %v, %v", best, err)
	}
	value, step := math.Inf(-1), -1
	for _, r := range metrics(t, l.Folder) {
		if v, ok := r.Values["eval_reward"]; ok && v > value {
			value, step = v, r.Step
		}
	}
	if best.Step != step || best.Value != value || !reflect.DeepEqual(readWeights(t, l), weights[step]) {
		t.Errorf("best is step %d with %v: want %d with %v and its weights", best.Step, best.Value, step, value)
	}
}

func readWeights(t testing.TB, l *Loop) (all []float32) {
	t.Helper()
	tensors, _, err := l.Learner.Read()
	expect.OK(t, err)
	for _, w := range tensors.Weights {
		all = append(all, w...)
	}
	return all
}

// TestValidate: scores of a script, by hand.
func TestValidate(t *testing.T) {
	l := tiny(t, backendtest.Go(t), newFolder(t))
	// complete; a leak with half of what is required; no format
	texts := []string{answerOf("ab"), answerOf("s a"), "oh"}
	script(l, func(_ rollout.Request, nth int) string { return texts[nth] })
	l.Held = tinyTasks(3)
	for i := range l.Held {
		l.Held[i].Row = map[string]any{"keywords": reward.Keywords{Required: []string{"a", "b"}, Restricted: []string{"s"}}}
	}
	mustStart(t, l)
	m := expect.Must(l.Evaluate(t.Context()))(t)
	for name, want := range map[string]float64{"reward": (1 - 0.5 - 1) / 3, "integrity": 2.0 / 3, "utility": 1.0 / 3,
		"complete": 1.0 / 3, "format": 2.0 / 3} {
		if got := m["eval_"+name]; math.Abs(got-want) > 1e-12 {
			t.Errorf("%s is %v: want %v", name, got, want)
		}
	}
}

// TestWarnings: rollouts that are all cut, groups that are all equal, are worth a word, and another one where the
// format is to blame.
func TestWarnings(t *testing.T) {
	l := tiny(t, backendtest.Go(t), newFolder(t))
	l.Options.DynamicSampling, l.Held, l.Validation.Every, l.Train.MaxSteps = 0, nil, 0, 2
	l.Sampler = &scripted{Answer: func(rollout.Request, int) rollout.Completion {
		c := says(answerOf("a"), testkit.Vocab)
		c.Tokens, c.Reason = c.Tokens[:8], rollout.Length
		return c
	}}
	notices := listen(l)
	mustRun(t, l)
	want := []string{"warning: step 1: 100% of the completions were cut at sampling.max_new_tokens 8, before they " +
		"ended: raise it",
		"warning: step 1: in 100% of the groups all rewards are equal, so that they teach nothing: raise " +
			"grpo.group_size, or use tasks that the model solves sometimes, or set grpo.dynamic_sampling to sample " +
			"such groups anew"}
	if !reflect.DeepEqual(*notices, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(*notices, "\n"), strings.Join(want, "\n"))
	}

	l = tiny(t, backendtest.Go(t), newFolder(t))
	l.Options.DynamicSampling, l.Held, l.Validation.Every, l.Train.MaxSteps = 0, nil, 0, 1
	l.Judge = ask.Rule(func(*ask.Question, string) ask.Score { return ask.Score{Value: -1, Fault: "no <think>"} })
	notices = listen(l)
	mustRun(t, l)
	if all := strings.Join(*notices, "\n"); !strings.Contains(all, "teach nothing: no completion keeps the format") {
		t.Errorf("got %s", all)
	}
}

// TestEqualRewardsForAHundredSteps: without KL nothing moves the weights but their decay, which a float64 twin
// computes; with KL they stay at the reference, where they began. The run says what it lacks at step 1, and again after
// 50 steps.
func TestEqualRewardsForAHundredSteps(t *testing.T) {
	for kl, c := range map[string]struct {
		steps, warnings int
		decay           float64
	}{None: {100, 2, 0.1}, K1: {3, 1, 0}, K3: {3, 1, 0}} {
		l := tiny(t, backendtest.Go(t), nil)
		l.Options.KL, l.Options.Updates, l.Options.DynamicSampling, l.Held, l.Validation.Every = kl, 1, 0, nil, 0
		l.Options.Prompts, l.Options.GroupSize, l.Sampling.MaxNew = 1, 2, 2
		l.Train.MaxSteps, l.Train.WeightDecay, l.Train.CheckpointEvery, l.Train.LearningRate = c.steps, c.decay, 0, 1e-3
		l.Judge = ask.Rule(func(*ask.Question, string) ask.Score { return ask.Score{Value: 0.3} })
		if kl == None {
			l.Options.KLCoef, l.Reference = 0, nil
		}
		notices := listen(l)
		before := expect.Must(l.Learner.ReadWeights())(t)
		factor := 1.0
		for step := range c.steps {
			factor *= 1 - c.decay*l.Train.RateAt(step, c.steps)
		}
		mustRun(t, l)
		after := expect.Must(l.Learner.ReadWeights())(t)
		moved := 0.0
		for i, p := range l.Export.Model.Params {
			for k, w := range before[i] {
				twin := float64(w)
				if !p.NoDecay {
					twin *= factor
				}
				moved = max(moved, math.Abs(float64(after[i][k])-twin))
			}
		}
		if moved > 1e-5*c.decay { // of rounding
			t.Errorf("kl %s: a weight is %v from where it must be", kl, moved)
		}
		if warned := strings.Count(strings.Join(*notices, "\n"), "all rewards are equal"); warned != c.warnings {
			t.Errorf("kl %s: %d warnings of equal rewards in %d steps, want %d", kl, warned, c.steps, c.warnings)
		}
	}
}

// TestKLInTheReward: k1 of a whole completion to another model is taken from rewards that are equal, and what is drawn
// has more of it than the others loses.
func TestKLInTheReward(t *testing.T) {
	e := backendtest.Go(t)
	l := tiny(t, e, nil)
	other := expect.Must(rollout.Upload(e, model.Init(testkit.Config(t, "llama"), 8), model.GraphOptions{}))(t)
	defer backend.FinalizeAll(other...)
	l.Options.KL, l.Options.KLCoef, l.Options.Std, l.Options.Updates, l.Reference = K1, 0.5, None, 1, other
	l.Judge = ask.Rule(func(*ask.Question, string) ask.Score { return ask.Score{Value: 0.3} })
	mustStart(t, l)
	d, err := l.Draw(t.Context(), 0)
	if err != nil || len(d.Groups) != 4 {
		t.Fatal(len(d.Groups), err)
	}
	for i, g := range d.Groups {
		rewards := make([]float64, len(g.Answers))
		for a := range rewards {
			rewards[a] = 0.3
			for k := range g.Old[a] {
				rewards[a] -= 0.5 * (float64(g.Old[a][k]) - float64(g.Reference[a][k]))
			}
		}
		want, same := Advantages(rewards, None)
		nearAll(t, fmt.Sprintf("group %d", i), g.Advantages, want, 1e-9)
		if same {
			t.Error("all answers are as far from the reference")
		}
	}
}

func listen(l *Loop) *[]string {
	var notices []string
	l.OnNotice = func(line string) { notices = append(notices, line) }
	return &notices
}

// TestDiagnosis: every kind of trouble has its words, once in a while.
func TestDiagnosis(t *testing.T) {
	l := tiny(t, backendtest.Go(t), newFolder(t))
	notices := listen(l)
	mustStart(t, l)
	healthy := map[string]float64{"completions/clipped_ratio": 0.5, "frac_reward_zero_std": 0.5,
		MetricClipRegion: 0.1, MetricEntropy: 2, MetricKL: 0.1, MetricDifferenceMean: 1e-5}
	l.State.Step = 1
	if l.diagnose(healthy, 100); len(*notices) > 0 {
		t.Errorf("notices of a healthy step: %q", *notices)
	}
	for name, c := range map[string]struct {
		value     float64
		want      string
		advantage float64
	}{MetricClipRegion: {0.4, "40% of the ratios were clipped", 1}, MetricEntropy: {0.1,
		"the entropy fell from 2.000 to 0.100", 1}, MetricRatioMean: {1, "an advantage is 250000, and the gradient",
		250000},
		MetricKL: {12, "12.0 nats a token away", 1}, MetricDifferenceMean: {0.02,
			"differ from the trainer's by 0.02 nats", 1}} {
		*notices = nil
		ill := maps.Clone(healthy)
		ill[name] = c.value
		for l.State.Step = 2; l.State.Step < 2+quietSteps+1; l.State.Step++ {
			l.diagnose(ill, c.advantage)
		}
		if len(*notices) != 2 || !strings.Contains((*notices)[1], c.want) {
			t.Errorf("%s of %v: %q, want two with %q", name, c.value, *notices, c.want)
		}
	}
	*notices, l.Options.Baseline = nil, OfBatch
	healthy["frac_reward_zero_std"] = 1
	if l.diagnose(healthy, 1); len(*notices) > 0 {
		t.Errorf("groups of equal rewards teach something against the batch's mean: %q", *notices)
	}
}

// TestStaleSampler: a sampler of another model is found out at step 0.
func TestStaleSampler(t *testing.T) {
	e := backendtest.Go(t)
	l := tiny(t, e, newFolder(t))
	m := model.Init(testkit.Config(t, "llama"), 8)
	weights := expect.Must(rollout.Upload(e, m, model.GraphOptions{}))(t)
	defer backend.FinalizeAll(weights...)
	s := rollout.NewCached(e, m.Config, func() []compute.Buffer { return weights }, rollout.Options{Decoder: framed{}})
	defer s.Close()
	l.Sampler = s
	wantError(t, l.Run(t.Context()), "step 0: the mean difference of the sampler's log-probs")
}

// TestSelfChecks: the check of step 0 knows every figure, the checks of later steps what must hold there.
func TestSelfChecks(t *testing.T) {
	l := tiny(t, backendtest.Go(t), newFolder(t))
	expect.OK(t, l.Trainer.Start())
	healthy := map[string]float64{MetricRatioMean: 1 + 1e-5, MetricRatioMin: 0.9999, MetricRatioMax: 1.0001,
		MetricClipRegion: 0, MetricKL: 1e-9, MetricDifferenceMean: 1e-5}
	if err := l.checkFirst(healthy); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		value float64
		later bool
	}{MetricRatioMean: {1.01, true}, MetricRatioMin: {0.8, false}, MetricRatioMax: {math.NaN(), false},
		MetricClipRegion: {0.01, true},
		MetricKL:         {0.1, false}, MetricDifferenceMean: {0.5, false}} {
		ill := maps.Clone(healthy)
		ill[name] = c.value
		l.State.Step = 0
		wantError(t, l.checkFirst(ill), "step 0: the ", fmt.Sprintf(" is %.4g, where it must be", c.value), "--backend")
		l.State.Step = 7
		if err := l.checkFirst(ill); (err != nil) != c.later {
			t.Errorf("step 7, %s %v: %v", name, c.value, err)
		}
	}
	l.State.Step, l.Sampler = 0, rollout.Episodes{Sampler: l.Sampler}
	wantError(t, l.checkFirst(map[string]float64{MetricDifferenceMean: 1}), "the engine computes wrongly")
	l.Sampler = rollout.Episodes{}
	wantError(t, l.checkFirst(map[string]float64{MetricDifferenceMean: 1}), "the servers of rollout.urls")
}

// TestSelfChecksInBFloat16: at step 0 they stop a run, later they warn, now and then; what is not finite always stops
// it.
func TestSelfChecksInBFloat16(t *testing.T) {
	e := backendtest.Go(t)
	l := tiny(t, e, newFolder(t))
	learner := expect.Must(train.NewLearner(e, model.Init(testkit.Config(t, "llama"), 7),
		model.GraphOptions{DType: dtypes.BFloat16}))(t)
	defer learner.Close()
	l.Learner = learner
	expect.OK(t, l.Trainer.Start())
	notices := listen(l)
	ill := map[string]float64{MetricRatioMean: 1.2, MetricClipRegion: 0.3}
	wantError(t, l.checkFirst(ill), "step 0: the mean ratio", " is 1.2, where it must be 1: ", "--backend")
	for l.State.Step = 1; l.State.Step <= quietSteps; l.State.Step++ {
		expect.OK(t, l.checkFirst(ill))
	}
	if len(*notices) != 2 || !strings.Contains((*notices)[0], "warning: step 1: the mean ratio") ||
		!strings.Contains((*notices)[1], "the share of clipped ratios is 0.3, where it must be 0 but for bfloat16's") {
		t.Errorf("want one warning of each kind: %q", *notices)
	}
	wantError(t, l.checkFirst(map[string]float64{MetricRatioMean: math.NaN()}), "the mean ratio", " is NaN, ")
	if err := l.checkFirst(map[string]float64{MetricRatioMean: 1.02}); err != nil || len(*notices) != 2 {
		t.Errorf("within the bounds: %v, %q", err, *notices)
	}
}

// TestOtherReference: a reference that is not where training starts is found out at step 0.
func TestOtherReference(t *testing.T) {
	e := backendtest.Go(t)
	l := tiny(t, e, newFolder(t))
	weights := expect.Must(rollout.Upload(e, model.Init(testkit.Config(t, "llama"), 8), model.GraphOptions{}))(t)
	defer backend.FinalizeAll(weights...)
	l.Reference = weights
	wantError(t, l.Run(t.Context()), "step 0: the KL to the reference is")
}

// lossy is a sampler that loses some completions.
type lossy struct {
	rollout.Sampler
	lost func(i int) bool
}

func (s lossy) Sample(ctx context.Context, requests []rollout.Request) ([]rollout.Completion, error) {
	out, err := s.Sampler.Sample(ctx, requests)
	for i := range out {
		if s.lost(i) {
			out[i] = rollout.Completion{Reason: rollout.Missing}
		}
	}
	return out, err
}

// TestMissingCompletions: a completion that is missing makes its group smaller, a group without any is left out, and a
// step without any is an error.
func TestMissingCompletions(t *testing.T) {
	folder := newFolder(t)
	l := tiny(t, backendtest.Go(t), folder)
	l.Train.MaxSteps, l.Train.LogEvery, l.Validation.Every = 1, 1, 0
	l.Options.DynamicSampling, l.Held = 0, nil
	l.Sampler = lossy{l.Sampler, func(i int) bool { return i < 4 || i == 5 }}
	mustRun(t, l)
	last := metrics(t, folder)
	if v := last[len(last)-1].Values; v["rollout/missing"] != 5 || v["rollout/groups"] != 3 {
		t.Errorf("%v: want 5 missing and 3 groups", v)
	}
	all := tiny(t, backendtest.Go(t), newFolder(t))
	all.Held, all.Validation.Every = nil, 0
	all.Sampler = lossy{all.Sampler, func(int) bool { return true }}
	wantError(t, all.Run(t.Context()), "step 1", "none of 16 completions")
}
