package train

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/posttrain/posttrain/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/run"
)

const fewSteps = 10

// follow runs or resumes a loop of ten steps in a folder, with checkpoints as change says.
func follow(t *testing.T, dir string, change func(l *Loop)) error {
	t.Helper()
	m := testkit.Model(t, "llama")
	f, err := testkit.Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l := tinyLoop(learner(t, backendtest.Go(t), m), m)
	l.Folder, l.Options.MaxSteps, l.Options.CheckpointEvery, l.OnStep = f, fewSteps, 0, nil
	change(l)
	if _, err := l.Resume(); err != nil {
		t.Fatal(err)
	}
	return l.Run(t.Context())
}

// mustFollow is follow to the end.
func mustFollow(t *testing.T, dir string, change func(l *Loop)) {
	t.Helper()
	if err := follow(t, dir, change); err != nil {
		t.Fatal(err)
	}
}

func sameRuns(t *testing.T, whole, other string) {
	t.Helper()
	testkit.SameFiles(t, whole, other, append(testkit.CheckpointFiles(fewSteps), "best.json")...)
	testkit.SameMetrics(t, whole, other)
}

// TestCheckpointsChangeNothing: a run ends in the same bits with checkpoints only where it needs them, after every step
// and evaluation, and at the times of a clock.
func TestCheckpointsChangeNothing(t *testing.T) {
	dirs := t.TempDir()
	whole := filepath.Join(dirs, "whole")
	mustFollow(t, whole, func(*Loop) {})
	for name, change := range map[string]func(l *Loop){
		"every step":   func(l *Loop) { l.Options.CheckpointEvery = 1 },
		"every call":   func(l *Loop) { l.Clock, l.Options.CheckpointMinutes = ticking(time.Hour), 1 },
		"now and then": func(l *Loop) { l.Clock, l.Options.CheckpointMinutes = ticking(41*time.Second), 2 },
	} {
		dir := filepath.Join(dirs, name)
		mustFollow(t, dir, change)
		sameRuns(t, whole, dir)
	}
}

// ticking is a clock that moves by the same time with every look at it.
func ticking(by time.Duration) func() time.Time {
	now := time.Unix(0, 0)
	return func() time.Time {
		now = now.Add(by)
		return now
	}
}

// TestCheckpointByTime: at the end of a step of 50 seconds, the newest checkpoint is never older than the two minutes
// and that step.
func TestCheckpointByTime(t *testing.T) {
	now := time.Unix(0, 0)
	savedAt := map[int]time.Time{0: now}
	mustFollow(t, filepath.Join(t.TempDir(), "run"), func(l *Loop) {
		l.Eval, l.Options.CheckpointMinutes, l.Clock = nil, 2, func() time.Time { return now }
		l.OnStep = func(step, _ int, _ map[string]float64) {
			newest := 0
			if c, _, err := l.Folder.Latest(); err == nil {
				newest = c.Step
			}
			if savedAt[newest].IsZero() {
				savedAt[newest] = now
			}
			now = now.Add(50 * time.Second)
			if lost := now.Sub(savedAt[newest]); lost > 170*time.Second {
				t.Errorf("a kill after step %d costs %v: the newest checkpoint is of step %d", step, lost, newest)
			}
			if newest != (step-1)/3*3 {
				t.Errorf("after step %d the newest checkpoint is of step %d", step, newest)
			}
		}
	})
}

// TestKilledAfterAnEvaluation: a run that dies after an evaluation, with a checkpoint of before it, evaluates again,
// and has the evaluation once.
func TestKilledAfterAnEvaluation(t *testing.T) {
	dirs := t.TempDir()
	whole, broken, killed := filepath.Join(dirs, "whole"), filepath.Join(dirs, "broken"), filepath.Join(dirs, "killed")
	worse := func(l *Loop) { l.Options.LearningRate = 1e-30 } // no evaluation is the best, so that none is saved
	mustFollow(t, whole, worse)
	now := time.Unix(0, 0)
	mustFollow(t, broken, func(l *Loop) {
		worse(l)
		l.Options.CheckpointMinutes, l.Clock = 1, func() time.Time { return now }
		l.OnStep = func(step, _ int, _ map[string]float64) {
			switch step {
			case 7: // a checkpoint is due before the evaluation
				now = now.Add(time.Hour)
			case 8: // and none after it
				if c, _, err := l.Folder.Latest(); err != nil || c.Step != 7 || l.evaluated != 7 {
					t.Errorf("the newest checkpoint is of step %d, %v, the last evaluation of step %d", c.Step, err,
						l.evaluated)
				}
				if err := os.CopyFS(killed, os.DirFS(broken)); err != nil {
					t.Error(err)
				}
			}
		}
	})
	mustFollow(t, killed, func(l *Loop) {
		worse(l)
		l.OnNotice = func(string) { t.Logf("evaluated at step %d", l.Step()) }
	})
	sameRuns(t, whole, killed)
}

// TestLostFolderStopsTheRun at the next step, in words that name no checkpoint.
func TestLostFolderStopsTheRun(t *testing.T) {
	dir, steps := filepath.Join(t.TempDir(), "run"), 0
	err := follow(t, dir, func(l *Loop) {
		l.Options.LogEvery = 100
		l.OnStep = func(step, _ int, _ map[string]float64) {
			if steps = step; step == 2 {
				os.RemoveAll(dir)
			}
		}
	})
	if !errors.Is(err, run.ErrLost) || steps != 2 {
		t.Errorf("after step %d: %v, want an ErrLost after step 2", steps, err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s was made again", dir)
	}
}
