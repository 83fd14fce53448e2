package grpo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/fleet"
	"github.com/posttrain/posttrain/train"
)

// old is a sampler of this process that draws at once what Start asks for, from a copy of the weights.
type old struct {
	*Loop
	engine *backend.Engine
	spoil  func(start int, completions []rollout.Completion) // changes what Start gives; may be nil
	starts int
}

func (o *old) Sample(ctx context.Context, requests []rollout.Request) ([]rollout.Completion, error) {
	weights, err := o.Learner.ReadWeights()
	if err != nil {
		return nil, err
	}
	of := o.Export.Model
	m := &model.Model{Config: of.Config}
	for i, p := range of.Params {
		q := *p
		if k := i - of.Config.Frozen(); k >= 0 {
			q.Data = weights[k]
		}
		m.Params = append(m.Params, &q)
	}
	buffers, err := rollout.Upload(o.engine, m)
	if err != nil {
		return nil, err
	}
	defer backend.FinalizeAll(buffers...)
	s := rollout.NewCached(o.engine, m.Config, func() []compute.Buffer { return buffers },
		rollout.Options{Decoder: framed{}})
	defer s.Close()
	completions, err := s.Sample(ctx, requests)
	for i := range completions {
		completions[i].Version = o.Learner.Version()
	}
	return completions, err
}

func (o *old) Start(ctx context.Context, requests []rollout.Request) (func() ([]rollout.Completion, error), error) {
	completions, err := o.Sample(ctx, requests)
	if o.spoil != nil {
		o.spoil(o.starts, completions)
	}
	o.starts++
	return func() ([]rollout.Completion, error) { return completions, nil }, err
}

// lag lets a loop learn from completions of k steps before. Its steps are so small and its cap so low that all factors
// of importance sampling are the cap: servers' rounding, which depends on what they answer together, changes no bit.
func lag(l *Loop, k int) {
	l.Ahead, l.Options.DynamicSampling, l.Options.ImportanceCap, l.Train.LogEvery = k, 0, 0.5, 1
	l.Train.WarmupSteps, l.Train.LearningRate = 0, 5e-4
}

// oldLoop is a tiny loop with a lag, whose sampler is of this process.
func oldLoop(t *testing.T, m *model.Model, folder *run.Folder, k int) (*Loop, *old) {
	t.Helper()
	l := tinyOf(t, backendtest.Go(t), m, folder)
	lag(l, k)
	o := &old{Loop: l, engine: backendtest.Go(t)}
	l.Sampler = o
	return l, o
}

// values are what a metric was at every step; -1: not there.
func values(t *testing.T, l *Loop, name string) (all []float64) {
	t.Helper()
	for _, r := range metrics(t, l.Folder) {
		if _, training := r.Values["loss"]; !training {
			continue
		}
		v, ok := r.Values[name]
		if !ok {
			v = -1
		}
		all = append(all, v)
	}
	return all
}

// TestAheadHasAFixedLag: completions that two servers draw while the learner learns are of the weights of exactly k
// steps before, and a run ends in the bits of one whose sampler draws from copies of those weights.
func TestAheadHasAFixedLag(t *testing.T) {
	for _, c := range []struct {
		engine string
		model  *model.Model
		ahead  int
		ages   []float64
	}{
		{fleet.SGLang, model.Init(testkit.Config(t, "llama"), 7), 1, []float64{0, 1, 1, 1}},
		{fleet.VLLM, adapted(t), 1, []float64{0, 1, 1, 1}},
		{fleet.VLLM, adapted(t), 2, []float64{0, 1, 2, 2}},
	} {
		t.Run(fmt.Sprintf("%s %d", c.engine, c.ahead), func(t *testing.T) {
			want, _ := oldLoop(t, c.model, newFolder(t), c.ahead)
			mustRun(t, want)
			l := tinyOf(t, backendtest.Go(t), c.model, newFolder(t))
			lag(l, c.ahead)
			tinyFleet(t, l, c.engine, serveTiny(t, c.model, nil), serveTiny(t, c.model, nil))
			mustRun(t, l)
			if got := values(t, l, "rollout/age"); !reflect.DeepEqual(got, c.ages) {
				t.Errorf("ages %v, want %v", got, c.ages)
			}
			if !reflect.DeepEqual(readWeights(t, l), readWeights(t, want)) {
				t.Error("the weights differ")
			}
			if got := values(t, l, MetricImportanceMin); slices.Min(got) < 0.5 {
				t.Errorf("importance %v: want the cap, or the bits depend on servers' rounding", got)
			}
		})
	}
}

// TestAheadResumes: a run with a lag that was interrupted draws again what was under way, from the weights of its
// checkpoint, and goes on; resumed twice from the same place, it ends in the same bits.
func TestAheadResumes(t *testing.T) {
	m := model.Init(testkit.Config(t, "llama"), 7)
	var ends [2][]float32
	for i := range ends {
		f := newFolder(t)
		l, _ := oldLoop(t, m, f, 1)
		ctx, cancel := context.WithCancel(t.Context())
		l.OnStep = func(step, _ int, _ map[string]float64) {
			if step == 2 {
				cancel()
			}
		}
		if err := l.Run(ctx); !errors.Is(err, train.ErrInterrupted) {
			t.Fatal(err)
		}
		again, _ := oldLoop(t, m, f, 1)
		if i == 1 { // servers that draw at the same time instead
			tinyFleet(t, again, fleet.SGLang, serveTiny(t, m, nil))
		}
		if _, err := again.Resume(); err != nil {
			t.Fatal(err)
		}
		mustRun(t, again)
		if got, want := values(t, again, "rollout/age"), []float64{0, 1, 0, 1}; !reflect.DeepEqual(got, want) {
			t.Errorf("ages %v, want %v", got, want)
		}
		ends[i] = readWeights(t, again)
	}
	if !reflect.DeepEqual(ends[0], ends[1]) {
		t.Error("the weights differ")
	}
}

// TestOldCompletionsAreDropped: those of weights more steps old than allowed do not train and are counted, and those of
// weights that are not there yet end the run.
func TestOldCompletionsAreDropped(t *testing.T) {
	m := model.Init(testkit.Config(t, "llama"), 7)
	l, o := oldLoop(t, m, newFolder(t), 1)
	o.spoil = func(start int, completions []rollout.Completion) {
		if start == 3 { // for step 4, when versions 4 and 6 began steps
			completions[0].Version, completions[5].Version = 0, 2
		}
	}
	mustRun(t, l)
	if got, want := values(t, l, "rollout/dropped"), []float64{-1, -1, -1, 2}; !reflect.DeepEqual(got, want) {
		t.Errorf("dropped %v, want %v", got, want)
	}
	if got, want := values(t, l, "rollout/missing"), []float64{-1, -1, -1, -1}; !reflect.DeepEqual(got, want) {
		t.Errorf("missing %v, want %v", got, want)
	}
	l, o = oldLoop(t, m, newFolder(t), 1)
	o.spoil = func(start int, completions []rollout.Completion) { completions[1].Version += 3 * start }
	wantError(t, l.Run(t.Context()), "step 2", "completion 1 is of version 3 of the weights, but the policy has version",
		"another run")
}

// TestOldWeightsAreCorrectedFor: the factors of importance sampling are 1 where the present weights drew, and others
// where older ones did.
func TestOldWeightsAreCorrectedFor(t *testing.T) {
	l, _ := oldLoop(t, model.Init(testkit.Config(t, "llama"), 7), newFolder(t), 1)
	l.Options.ImportanceCap, l.Train.LearningRate, l.Train.MaxSteps = 2, 1e-2, 2
	mustRun(t, l)
	least := values(t, l, MetricImportanceMin)
	if math.Abs(least[0]-1) > 1e-3 || least[1] > 0.95 {
		t.Errorf("the least factors are %v: want 1, then less", least)
	}
}

// TestOtherServersAtTheFirstStep: completions whose log-probs are another model's end the run at its first step.
func TestOtherServersAtTheFirstStep(t *testing.T) {
	l, o := oldLoop(t, model.Init(testkit.Config(t, "llama"), 7), newFolder(t), 1)
	o.spoil = func(_ int, completions []rollout.Completion) {
		for _, c := range completions {
			for i := range c.Logps {
				c.Logps[i] -= 1
			}
		}
	}
	wantError(t, l.Run(t.Context()), "step 0: the mean difference of the sampler's log-probs", "serve another model")
}

// TestLostAheadIsAskedAgain: completions that no server gave while the learner learnt are drawn from the present
// weights, as long as there are any.
func TestLostAheadIsAskedAgain(t *testing.T) {
	m := model.Init(testkit.Config(t, "llama"), 7)
	l, o := oldLoop(t, m, newFolder(t), 1)
	o.spoil = func(start int, completions []rollout.Completion) {
		for i := range completions {
			if start == 3 || i == start {
				completions[i] = rollout.Completion{Reason: rollout.Missing}
			}
		}
	}
	mustRun(t, l)
	ages, missing := values(t, l, "rollout/age"), values(t, l, "rollout/missing")
	if want := []float64{0, 15.0 / 16, 15.0 / 16, 0}; !reflect.DeepEqual(ages, want) || missing[3] != -1 {
		t.Errorf("ages %v, want %v; missing %v", ages, want, missing)
	}
}

// TestAheadFaults: what cannot be drawn ahead is one line before the first step.
func TestAheadFaults(t *testing.T) {
	m := model.Init(testkit.Config(t, "llama"), 7)
	for want, spoil := range map[string]func(l *Loop){
		"the sampler of this process has only the present weights": func(l *Loop) { l.Sampler = few{} },
		"grpo.dynamic_sampling 1":                                  func(l *Loop) { l.Options.DynamicSampling = 1 },
		"grpo.importance_cap":                                      func(l *Loop) { l.Options.ImportanceCap = 0 },
	} {
		l, _ := oldLoop(t, m, newFolder(t), 1)
		spoil(l)
		wantError(t, l.Run(t.Context()), "rollout.ahead 1", want)
	}
}
