package train

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

func TestMain(m *testing.M) {
	testkit.Main(m, func(args []string) error {
		return trainTiny(context.Background(), args[0], args[1], len(args) > 2)
	})
}

// tinyLength is the steps of the tiny run, and how often it must be killed. An engine that compiles for seconds whenever
// the run continues has fewer: the places where the go engine is killed are its own, too.
func tinyLength(engine string) (steps, kills int) {
	if engine == "go" {
		return 72, 20
	}
	return 20, 3
}

// tinyModel is what trainTiny trains.
func tinyModel() *model.Model {
	config, err := testkit.Llama()
	if err != nil {
		panic(err)
	}
	return model.Init(config, 3)
}

// trainTiny starts or resumes a tiny run in a folder, of the whole model or of an adapter, and prints every step.
func trainTiny(ctx context.Context, engine, dir string, lora bool) error {
	e, err := backend.Open(engine)
	if err != nil {
		return err
	}
	defer e.Close()
	m := tinyModel()
	if lora {
		m = withLoRA(m)
	}
	l, err := NewLearner(e, m, model.GraphOptions{})
	if err != nil {
		return err
	}
	defer l.Close()
	loop := tinyLoop(l, m)
	loop.Options.MaxSteps, _ = tinyLength(engine)
	if os.Getpid()%2 == 0 { // half of the processes write checkpoints without a copy
		loop.Memory = func() uint64 { return 0 }
	}
	f, err := testkit.Folder(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	loop.Folder = f
	if _, err := loop.Resume(); err != nil && !errors.Is(err, run.ErrNoCheckpoint) {
		return err
	}
	return loop.Run(ctx)
}

// tinyLoop has everything that a resumed run must remember: an epoch in the middle, microbatches, a schedule, a metrics
// window over several steps, a best checkpoint.
func tinyLoop(l *Learner, m *model.Model) *Loop {
	x := pairsOf(testkit.Groups(9, 11, 2))
	d := &Dataset{Method: mappo(), Examples: x, Held: x[:3], Share: true}
	return &Loop{d, &Trainer{Learner: l, Source: d, Export: Exporter{Model: m}, Seed: 5,
		OnStep: func(step, _ int, _ map[string]float64) { fmt.Println("step", step) },
		Options: Options{MaxSteps: 72, BatchSize: 4, MicroBatchSize: 2, LearningRate: 1e-2,
			Schedule: "cosine", WarmupSteps: 5,
			WeightDecay: 0.1, AdamBeta1: 0.9, AdamBeta2: 0.999, AdamEpsilon: 1e-8, MaxGradNorm: 1, Shuffle: true,
			LogEvery: 3, EvalEvery: 7, EvalMetric: "eval_loss", CheckpointEvery: 1, CheckpointKeep: 2},
	}}
}

// Loop is a trainer with its examples.
type Loop struct {
	*Dataset
	*Trainer
}

// TestKilledRunsEndInTheSameBits kills a run at random points, over and over, and compares what it ends in with an
// uninterrupted run: weights, moments and metrics, bit for bit.
func TestKilledRunsEndInTheSameBits(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		whole, broken := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "broken")
		steps, least := tinyLength(e.Name)
		testkit.Child(t, 0, 0, e.Name, whole)
		r := rand.New(rand.NewPCG(uint64(len(e.Name)), 11))
		kills := testkit.UntilDone(t, 400, func() (killed bool) {
			_, killed = testkit.Child(t, 1+r.IntN(4), time.Duration(r.IntN(12000))*time.Microsecond, e.Name, broken)
			return killed
		})
		t.Logf("killed %d times in %d steps", kills, steps)
		if kills < least {
			t.Fatalf("killed %d times: want at least %d", kills, least)
		}
		testkit.SameFiles(t, whole, broken, testkit.CheckpointFiles(steps)...)
		testkit.SameMetrics(t, whole, broken)
	})
}

// TestInterruptionFinishesTheStep: the context's end saves the running step and says so; a resumed run ends as a
// whole one.
func TestInterruptionFinishesTheStep(t *testing.T) {
	e := backendtest.Go(t)
	m := testkit.Model(t, "llama")
	f := expect.Must(run.Create(t.TempDir(), "test"))(t)
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	loop := tinyLoop(learner(t, e, m), m)
	loop.Folder, loop.Options.CheckpointEvery, loop.Held = f, 0, nil
	loop.OnStep = func(step, _ int, _ map[string]float64) {
		if step == 4 {
			cancel()
		}
	}
	if err := loop.Run(ctx); !errors.Is(err, ErrInterrupted) {
		t.Fatalf("error %v: want ErrInterrupted", err)
	}
	c, _, err := f.Latest()
	if err != nil || c.Step != 4 {
		t.Fatalf("latest checkpoint is of step %d, %v: want 4", c.Step, err)
	}
}
