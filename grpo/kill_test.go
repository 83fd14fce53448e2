package grpo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/backend/backendtest"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/run"
	"github.com/posttrain/posttrain/train"
)

// The test binary runs itself as the process that is killed: these variables name the engine and the run folder.
const childEngine, childFolder = "POSTTRAIN_TEST_ENGINE", "POSTTRAIN_TEST_FOLDER"

func TestMain(m *testing.M) {
	if engine := os.Getenv(childEngine); engine != "" {
		if err := runTiny(engine, os.Getenv(childFolder)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Steps of the tiny run, and how often it must be killed.
const tinySteps, leastKills = 14, 6

// runTiny starts or resumes a tiny run in a folder and prints a line at its start and for every step.
func runTiny(engine, dir string) error {
	e, err := backend.Open(engine)
	if err != nil {
		return err
	}
	defer e.Close()
	config, err := model.ParseConfig([]byte(tinyConfig), nil)
	if err != nil {
		return err
	}
	f, err := openTiny(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	l, closer, err := newTiny(e, config, f)
	if err != nil {
		return err
	}
	defer closer()
	l.Train.MaxSteps, l.Validation.Every = tinySteps, 3
	l.OnStep = func(step, _ int, _ map[string]float64) { fmt.Println("step", step) }
	if _, err := l.Resume(); err != nil {
		return err
	}
	fmt.Println("start")
	return l.Run(context.Background())
}

func openTiny(dir string) (*run.Folder, error) {
	f, err := run.Open(dir)
	if err == nil {
		return f, nil
	}
	if f, err = run.Create(dir, "test"); err == nil {
		err = f.WriteConfig([]byte("command: test\n"))
	}
	return f, err
}

const tinyConfig = `{"model_type": "llama", "vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
	"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
	"rope_theta": 10000.0, "tie_word_embeddings": false, "initializer_range": 0.3, "eos_token_id": 1, "torch_dtype": "float32"}`

// TestKilledRunsEndInTheSameBits kills a run at random points, over and over, and compares what it ends in with an
// uninterrupted run: weights, moments, metrics and samples, bit for bit.
func TestKilledRunsEndInTheSameBits(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		whole, broken := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "broken")
		started := time.Now()
		if runChild(t, e.Name, whole, -1, 0) {
			t.Fatal("the uninterrupted run was killed")
		}
		r, kills := rand.New(rand.NewPCG(uint64(len(e.Name)), 11)), 0
		step := time.Since(started) / tinySteps // that of the beginning is longer, since programs are compiled
		for runChild(t, e.Name, broken, r.IntN(3), rand.N(step)) {
			if kills++; kills > 100 {
				t.Fatal("the run never ends")
			}
		}
		t.Logf("killed %d times in %d steps", kills, tinySteps)
		if kills < leastKills {
			t.Errorf("killed %d times: want at least %d", kills, leastKills)
		}
		sameFiles(t, whole, broken)
		sameMetrics(t, whole, broken)
	})
}

// runChild trains in another process and kills it some time after so many lines; after < 0 lets it end.
func runChild(t *testing.T, engine, dir string, after int, delay time.Duration) (killed bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEngine+"="+engine, childFolder+"="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if seen++; seen == after+1 {
			time.AfterFunc(delay, func() { cmd.Process.Kill() })
		}
	}
	err = cmd.Wait()
	if err != nil && !strings.Contains(err.Error(), "killed") {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return err != nil
}

// sameFiles compares the last checkpoints and the samples.
func sameFiles(t *testing.T, a, b string) {
	t.Helper()
	last := filepath.Join("checkpoints", fmt.Sprintf("step-%08d", tinySteps))
	for _, name := range []string{filepath.Join(last, "model", "model.safetensors"), filepath.Join(last, "first_moments.safetensors"),
		filepath.Join(last, "second_moments.safetensors"), "samples.jsonl", "best.json"} {
		x, err := os.ReadFile(filepath.Join(a, name))
		if err != nil {
			t.Fatal(err)
		}
		y, err := os.ReadFile(filepath.Join(b, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(x) != string(y) {
			t.Errorf("%s differs between the whole and the broken run", name)
		}
	}
}

// sameMetrics compares everything but clocks.
func sameMetrics(t *testing.T, a, b string) {
	t.Helper()
	x, err := run.ReadMetrics(filepath.Join(a, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	y, err := run.ReadMetrics(filepath.Join(b, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if len(x) != len(y) || len(x) == 0 {
		t.Fatalf("%d lines of metrics, %d in the broken run", len(x), len(y))
	}
	for i := range x {
		if p, q := fmt.Sprint(withoutClocks(x[i])), fmt.Sprint(withoutClocks(y[i])); p != q {
			t.Errorf("line %d: %v in the whole run, %v in the broken one", i+1, p, q)
		}
	}
}

func withoutClocks(r run.Record) run.Record {
	maps.DeleteFunc(r.Values, func(name string, _ float64) bool {
		return name == "step_time" || name == "eval_runtime" || strings.HasPrefix(name, "time/") || strings.HasSuffix(name, "tokens_per_second")
	})
	return r
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

// TestInterruptedRunsEndInTheSameBits: a run whose context ends within any call of its sampler loses nothing but that step or
// validation, and ends as a whole one when it goes on.
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
		if _, err := l.Resume(); err != nil {
			t.Fatal(err)
		}
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
	sameMetrics(t, whole.Folder.Dir, f.Dir)
	x, _ := os.ReadFile(whole.Folder.SamplesPath())
	if y, _ := os.ReadFile(f.SamplesPath()); string(x) != string(y) || len(x) == 0 {
		t.Errorf("samples\n%s\nin the whole run, in the other\n%s", x, y)
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
		"data":   func(l *Loop) { l.Held[0].Keywords.Required = []string{"other"} },
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
