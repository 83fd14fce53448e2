package grpo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/fleet"
	"github.com/posttrain/posttrain/train"
)

func TestMain(m *testing.M) {
	testkit.Main(m, func(args []string) error { return runTiny(args[0], args[1], args[2:]) })
}

// tinyLength is the steps of the tiny run, and how often it must be killed. An engine that compiles for seconds
// whenever the run continues has fewer: the places where the go engine is killed are its own, too.
func tinyLength(engine string) (steps, kills int) {
	if engine == "go" {
		return 14, 6
	}
	return 5, 2
}

// runTiny starts or resumes a tiny run in a folder and prints a line at its start and for every step. With the word
// adapter it trains an adapter; servers at the addresses that follow draw its completions.
func runTiny(engine, dir string, more []string) error {
	e, err := backend.Open(engine)
	if err != nil {
		return err
	}
	defer e.Close()
	config, err := testkit.Llama()
	if err != nil {
		return err
	}
	f, err := testkit.Folder(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	m := model.Init(config, 7)
	if len(more) > 0 {
		if m, err = adapt(m); err != nil {
			return err
		}
	}
	l, closer, err := newTiny(e, m, f)
	if err != nil {
		return err
	}
	defer closer()
	if len(more) > 1 {
		servers, err := newTinyFleet(l, fleet.VLLM, fleet.Options{URLs: more[1:], Folder: f.Path("served"), Run: dir})
		if err != nil {
			return err
		}
		defer servers.Close()
	}
	l.Train.MaxSteps, _ = tinyLength(engine)
	l.Validation.Every = 3
	l.OnStep = func(step, _ int, _ map[string]float64) { fmt.Println("step", step) }
	if _, err := l.Resume(); err != nil {
		return err
	}
	fmt.Println("start")
	return l.Run(context.Background())
}

// TestKilledRunsEndInTheSameBits kills a run at random points, over and over, and compares what it ends in with an
// uninterrupted run: weights, moments, metrics and samples, bit for bit.
func TestKilledRunsEndInTheSameBits(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		whole, broken := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "broken")
		steps, _ := tinyLength(e.Name)
		started := time.Now()
		testkit.Child(t, 0, 0, e.Name, whole)
		step := time.Since(started) / time.Duration(steps) // the first is longer: programs are compiled
		killTiny(t, step, e.Name, broken)
		testkit.SameFiles(t, whole, broken, append(testkit.CheckpointFiles(steps), "samples.jsonl", "best.json")...)
		testkit.SameMetrics(t, whole, broken)
	})
}

// killTiny kills a tiny run until it is done: first as often as it must be, in turn right after a step and right after
// the start, then at random points, within a time after one of its first lines.
func killTiny(t *testing.T, within time.Duration, args ...string) {
	t.Helper()
	r, tried := rand.New(rand.NewPCG(uint64(len(args[0])), 11)), 0
	steps, least := tinyLength(args[0])
	kills := testkit.UntilDone(t, 100, func() (killed bool) {
		after, delay := 1+r.IntN(3), rand.N(within)
		if tried++; tried <= least { // the other steps may take far shorter than this one
			after, delay = 1+tried%2, rand.N(within/20)
		}
		_, killed = testkit.Child(t, after, delay, args...)
		return killed
	})
	t.Logf("killed %d times in %d steps", kills, steps)
	if kills < least {
		t.Errorf("killed %d times: want at least %d", kills, least)
	}
}

// TestKilledAdaptersEndInTheSameBits: as TestKilledRunsEndInTheSameBits, of a run that trains an adapter by itself, and
// of one whose completions a server draws: what the killed runs leave on it is freed, or it would take no more
// adapters.
func TestKilledAdaptersEndInTheSameBits(t *testing.T) {
	config := expect.Must(testkit.Llama())(t)
	steps, _ := tinyLength("go")
	files := []string{"samples.jsonl", "best.json"}
	for _, name := range testkit.CheckpointFiles(steps) {
		files = append(files, strings.Replace(name, "model/model", "adapter/adapter_model", 1))
	}
	whole := filepath.Join(t.TempDir(), "whole")
	started := time.Now()
	testkit.Child(t, 0, 0, "go", whole, "adapter")
	step := time.Since(started) / time.Duration(steps)
	for _, servers := range [][]string{nil, {serveTiny(t, model.Init(config, 7), nil)}} {
		broken := filepath.Join(t.TempDir(), "broken")
		killTiny(t, 2*step, append([]string{"go", broken, "adapter"}, servers...)...)
		testkit.SameFiles(t, whole, broken, files...)
		if servers == nil {
			testkit.SameMetrics(t, whole, broken)
		}
	}
}

// stopping is a sampler that ends the context in the middle of its nth call.
type stopping struct {
	rollout.Sampler
	left   int
	cancel func()
}

func (s *stopping) Sample(ctx context.Context, requests []rollout.Request) ([]rollout.Completion, error) {
	if s.left--; s.left == 0 {
		s.cancel()
		return nil, context.Cause(ctx)
	}
	return s.Sampler.Sample(ctx, requests)
}

// TestInterruptedRunsEndInTheSameBits: a run whose context ends within any call of its sampler loses nothing but that
// step or validation, and ends as an uninterrupted one does when it continues.
func TestInterruptedRunsEndInTheSameBits(t *testing.T) {
	e := backendtest.Go(t)
	whole := tiny(t, e, newFolder(t))
	whole.Options.DynamicSampling = 0
	mustRun(t, whole)
	want := readWeights(t, whole)
	f := newFolder(t)
	calls, steps := 0, map[int]int{}
	for n := 1; ; n++ {
		l := tiny(t, e, f)
		l.Options.DynamicSampling, l.Train.CheckpointEvery = 0, 0 // only the interruption saves
		expect.Must(l.Resume())(t)
		ctx, cancel := context.WithCancel(t.Context())
		s := &stopping{l.Sampler, 1 + n%2, cancel} // the first call, the second, the first, …
		l.Sampler = s
		err := l.Run(ctx)
		if err == nil {
			if got := readWeights(t, l); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Error("other weights than those of the whole run")
			}
			break
		}
		if !errors.Is(err, train.ErrInterrupted) || n > 20 {
			t.Fatalf("interruption %d: %v", n, err)
		}
		steps[l.Step()]++
		calls++
	}
	if calls < 5 {
		t.Errorf("interrupted %d times, at steps %v: want more", calls, steps)
	}
	testkit.SameMetrics(t, whole.Folder.Dir, f.Dir)
	x, _ := os.ReadFile(whole.Folder.SamplesPath())
	if y, _ := os.ReadFile(f.SamplesPath()); string(x) != string(y) || len(x) == 0 {
		t.Errorf("samples\n%s\nin the whole run, in the other\n%s", x, y)
	}
}

// TestCheckpointsChangeNothing: a run ends in the same bits with checkpoints only where it needs them, after every
// step, and before and after every validation.
func TestCheckpointsChangeNothing(t *testing.T) {
	e, now := backendtest.Go(t), time.Unix(0, 0)
	hourly := func() time.Time { now = now.Add(time.Hour); return now }
	var dirs []string
	for _, change := range []func(l *Loop){
		func(l *Loop) { l.Train.CheckpointEvery = 0 },
		func(*Loop) {},
		func(l *Loop) { l.Train.CheckpointEvery, l.Train.CheckpointMinutes, l.Clock = 0, 1, hourly },
	} {
		l := tiny(t, e, newFolder(t))
		change(l)
		mustRun(t, l)
		dirs = append(dirs, l.Folder.Dir)
	}
	for _, dir := range dirs[1:] {
		testkit.SameFiles(t, dirs[0], dir, append(testkit.CheckpointFiles(4), "samples.jsonl", "best.json")...)
		testkit.SameMetrics(t, dirs[0], dir)
	}
}

// TestInterruptionWithinTheUpdates finishes the step.
func TestInterruptionWithinTheUpdates(t *testing.T) {
	l := tiny(t, backendtest.Go(t), newFolder(t))
	l.Train.CheckpointEvery = 0
	ctx, cancel := context.WithCancel(t.Context())
	l.OnStep = func(step, _ int, _ map[string]float64) {
		if step == 3 {
			cancel()
		}
	}
	if err := l.Run(ctx); !errors.Is(err, train.ErrInterrupted) {
		t.Fatalf("error %v: want ErrInterrupted", err)
	}
	c, _, err := l.Folder.Latest()
	if err != nil || c.Step != 3 {
		t.Fatalf("latest checkpoint is of step %d, %v: want 3", c.Step, err)
	}
}

// TestResumeRefusesAnotherRun: other data, another seed, another config.
func TestResumeRefusesAnotherRun(t *testing.T) {
	e := backendtest.Go(t)
	f := newFolder(t)
	mustRun(t, tiny(t, e, f))
	for want, spoil := range map[string]func(l *Loop){
		"data":   func(l *Loop) { l.Held[0].Target = "other" },
		"seed":   func(l *Loop) { l.Seed++ },
		"config": func(l *Loop) { l.ConfigHash = "other" },
	} {
		l := tiny(t, e, f)
		spoil(l)
		_, err := l.Resume()
		wantError(t, err, want)
	}
	l := tiny(t, e, f)
	if _, err := l.Resume(); err != nil || l.Step() != l.Total() {
		t.Errorf("step %d, %v", l.Step(), err)
	}
	before := metrics(t, f)
	mustRun(t, l) // nothing is left to do
	if after := metrics(t, f); len(after) != len(before) {
		t.Errorf("%d lines of metrics after a run of nothing, %d before", len(after), len(before))
	}
}
