package train

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/model"
)

const fewSteps = 10

// follow runs or resumes a loop of ten steps in a folder, with checkpoints as change says.
func follow(t *testing.T, dir string, change func(l *Loop)) error {
	t.Helper()
	m := testkit.Model(t, "llama")
	f := expect.Must(testkit.Folder(dir))(t)
	defer f.Close()
	l := tinyLoop(learner(t, backendtest.Go(t), m), m)
	l.Folder, l.Options.MaxSteps, l.Options.CheckpointEvery, l.OnStep = f, fewSteps, 0, nil
	change(l)
	expect.Must(l.Resume())(t)
	return l.Run(t.Context())
}

// mustFollow is follow to the end.
func mustFollow(t *testing.T, dir string, change func(l *Loop)) {
	t.Helper()
	expect.OK(t, follow(t, dir, change))
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

// written waits until the checkpoint under way is on the disk.
func written(t *testing.T, l *Loop) {
	t.Helper()
	if err := l.writer.wait(); err != nil {
		t.Error(err)
	}
}

// TestCheckpointByTime: at the end of a step of 50 seconds, the newest checkpoint is never older than the two minutes
// and that step.
func TestCheckpointByTime(t *testing.T) {
	now := time.Unix(0, 0)
	savedAt := map[int]time.Time{0: now}
	mustFollow(t, filepath.Join(t.TempDir(), "run"), func(l *Loop) {
		l.Held, l.Options.CheckpointMinutes, l.Clock = nil, 2, func() time.Time { return now }
		l.OnStep = func(step, _ int, _ map[string]float64) {
			written(t, l)
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
				written(t, l)
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
				for os.RemoveAll(dir) != nil { // a checkpoint that is being written makes new files
				}
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

// slowTokenizer is a part of a checkpoint whose writing a test holds up, or lets fail.
type slowTokenizer struct{ write func(dir string) error }

func (s slowTokenizer) CopyTo(dir string) error { return s.write(dir) }

// TestStepsDoNotWaitForCheckpoints: a checkpoint by time is written while the steps after it run, and the next one that
// is due by time does not wait for it. The run ends in the same bits.
func TestStepsDoNotWaitForCheckpoints(t *testing.T) {
	dirs := t.TempDir()
	whole, slow := filepath.Join(dirs, "whole"), filepath.Join(dirs, "slow")
	mustFollow(t, whole, func(l *Loop) { l.Held = nil })
	now, release := time.Unix(0, 0), make(chan bool)
	var saved []int
	mustFollow(t, slow, func(l *Loop) {
		l.Held, l.Options.CheckpointMinutes, l.Clock = nil, 1, func() time.Time { return now }
		l.Export.Tokenizer = slowTokenizer{func(string) error {
			<-release
			return nil
		}}
		l.OnStep = func(step, _ int, _ map[string]float64) {
			now = now.Add(50 * time.Second) // the first is due after step 2
			if all, err := l.Folder.All(); err != nil || len(all) != 0 && step < 7 {
				t.Errorf("step %d: %v, %v: want no checkpoint, since writing it is held up", step, all, err)
			}
			switch step {
			case 6:
				close(release)
				written(t, l)
			case 7:
				saved = append(saved, int(l.saved.Unix()))
			}
		}
	})
	if len(saved) != 1 || saved[0] != 300 {
		t.Errorf("the second checkpoint has the state of second %v: want 300, after step 6", saved)
	}
	testkit.SameFiles(t, whole, slow, testkit.CheckpointFiles(fewSteps)...)
	testkit.SameMetrics(t, whole, slow)
}

// TestDiskFullInTheBackground: a checkpoint that cannot be written while steps run ends the run at the next step, in one
// line. The one before is intact, nothing half written is left, and the run continues to the same bits.
func TestDiskFullInTheBackground(t *testing.T) {
	dirs := t.TempDir()
	whole, full := filepath.Join(dirs, "whole"), filepath.Join(dirs, "full")
	mustFollow(t, whole, func(*Loop) {})
	last := 0
	err := follow(t, full, func(l *Loop) {
		l.Options.CheckpointEvery = 3
		l.Export.Tokenizer = slowTokenizer{func(dir string) error {
			if !strings.Contains(dir, "step-00000006") {
				return nil
			}
			return &fs.PathError{Op: "write", Path: filepath.Join(dir, "tokenizer.json"), Err: syscall.ENOSPC}
		}}
		l.OnStep = func(step, _ int, _ map[string]float64) {
			if last = step; step == 7 {
				for l.writer.busy() {
					time.Sleep(time.Millisecond)
				}
			}
		}
	})
	want := "checkpoint not saved: " + filepath.Join(full, "checkpoints", "step-00000006", "model", "tokenizer.json") +
		": no space left on device (the last checkpoint is intact: " +
		filepath.Join(full, "checkpoints", "step-00000003") + ")"
	if err == nil || err.Error() != want || last != 7 {
		t.Errorf("after step %d: %v\nwant after step 7: %s", last, err, want)
	}
	if left, _ := filepath.Glob(filepath.Join(full, "checkpoints", ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	mustFollow(t, full, func(*Loop) {})
	sameRuns(t, whole, full)
}

// TestBestIsWeightsAlone: a new best between checkpoints writes its weights and no moments.
func TestBestIsWeightsAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	mustFollow(t, dir, func(l *Loop) {
		l.OnStep = func(step, _ int, _ map[string]float64) {
			if step != 8 { // after the evaluation of step 7
				return
			}
			written(t, l)
			checkpoints, _ := filepath.Glob(filepath.Join(dir, "checkpoints", "*"))
			files, _ := filepath.Glob(filepath.Join(dir, "checkpoints", "best-00000007", "*"))
			if len(checkpoints) != 1 || len(files) != 2 || filepath.Base(files[0]) != "manifest.json" ||
				filepath.Base(files[1]) != "model" {
				t.Errorf("%v with %v: want best-00000007 with manifest.json and model", checkpoints, files)
			}
		}
	})
}

// TestInterruptedEvaluation: where the context ends, an evaluation is not finished first: the run saves its step, and a
// resumed one evaluates and ends in the same bits.
func TestInterruptedEvaluation(t *testing.T) {
	dirs := t.TempDir()
	whole, broken := filepath.Join(dirs, "whole"), filepath.Join(dirs, "broken")
	mustFollow(t, whole, func(*Loop) {})
	m := testkit.Model(t, "llama")
	f := expect.Must(testkit.Folder(broken))(t)
	ctx, cancel := context.WithCancel(t.Context())
	l := tinyLoop(learner(t, backendtest.Go(t), m), m)
	l.Folder, l.Options.MaxSteps, l.Options.CheckpointEvery = f, fewSteps, 0
	l.OnStep = func(step, _ int, _ map[string]float64) {
		if step == 7 { // an evaluation follows
			cancel()
		}
	}
	if err := l.Run(ctx); !errors.Is(err, ErrInterrupted) {
		t.Fatalf("found %v, want ErrInterrupted", err)
	}
	if c, _, err := f.Latest(); err != nil || c.Step != 7 || l.evaluated == 7 {
		t.Errorf("the newest checkpoint is of step %d, %v, the last evaluation of step %d", c.Step, err, l.evaluated)
	}
	f.Close()
	mustFollow(t, broken, func(*Loop) {})
	sameRuns(t, whole, broken)
}

// stopping interrupts a run after a number of steps.
type stopping struct {
	*Dataset
	after int
}

func (s stopping) Next(ctx context.Context, m *Metrics) (*Step, error) {
	if s.t.Step() == s.after {
		return nil, ErrInterrupted
	}
	return s.Dataset.Next(ctx, m)
}

// TestBestThatIsGone: the best weights of a folder, once removed, are no measure for later ones.
func TestBestThatIsGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if err := follow(t, dir, func(l *Loop) { l.Source = stopping{l.Dataset, 8} }); !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	gone, err := filepath.Glob(filepath.Join(dir, "checkpoints", "best-*"))
	if err != nil || len(gone) != 1 {
		t.Fatal(gone, err)
	}
	expect.OK(t, os.RemoveAll(gone[0]))
	notice := ""
	mustFollow(t, dir, func(l *Loop) {
		l.OnNotice = func(line string) {
			if strings.HasPrefix(line, "the best weights") {
				notice = line
			}
		}
		l.OnStep = func(int, int, map[string]float64) {
			if l.State.Best != nil && l.State.Step <= 8 {
				t.Errorf("the best is still that of step %d", l.State.Best.Step)
			}
		}
	})
	best, err := filepath.Glob(filepath.Join(dir, "checkpoints", "best-*"))
	if !strings.Contains(notice, "of step 7, are gone") || err != nil || len(best) != 1 {
		t.Errorf("%q, best weights %v, %v", notice, best, err)
	}
}

// TestLogProbsThatAreNotFinite: the weights are finite, but not what a model with them says of answers. A step, an
// evaluation and the measurement of a reference end with one line, also where a loss has a limit: kto's at minus infinity.
func TestLogProbsThatAreNotFinite(t *testing.T) {
	for name, method := range map[string]Method{"sft": SFT{}, "mappo": mappo(),
		"hinge": &Preference{Options: losses.Defaults(losses.Hinge)}, "kto": &KTO{Options: losses.Defaults(losses.KTO)}} {
		for _, norm := range []float32{3e37, 3e38} { // log-probs of minus infinity, NaN
			m := testkit.Model(t, "llama")
			i := slices.IndexFunc(m.Params, func(p *model.Param) bool { return p.Name == "model.norm.weight" })
			copy(m.Params[i].Data, slices.Repeat([]float32{norm}, m.Params[i].Size()))
			l := tinyLoop(learner(t, backendtest.Go(t), m), m)
			if _, pairs := method.(*Preference); !pairs {
				l.Examples = examplesOf(testkit.Groups(9, 11, 1))
				expect.OK(t, Mismatch(l.Examples, Order(11, 0, 0, false), 4, 0))
			}
			l.Method, l.Held = method, l.Examples[:3]
			err := l.Run(t.Context()) // evaluates first
			wantBadWeights(t, name, err, "step 0: ")
			l.Held = nil
			wantBadWeights(t, name, l.Run(t.Context()), "step 1: ")
			if l.Step() != 0 || l.State.Best != nil {
				t.Errorf("%s: %d steps are done, the best is %v", name, l.Step(), l.State.Best)
			}
			_, err = PairSums(l.Learner, testkit.Groups(9, 11, 2), l.Layout(), nil)
			if err == nil || !strings.Contains(err.Error(), "want finite numbers") {
				t.Errorf("%v: the reference's log-probs are measured: %v", norm, err)
			}
		}
	}
}

func wantBadWeights(t *testing.T, name string, err error, begins string) {
	t.Helper()
	if !errors.As(err, new(BadWeights)) || !strings.HasPrefix(err.Error(), begins) ||
		!strings.Contains(err.Error(), "no step has been made: look at the model's weights") {
		t.Errorf("%s: %v, want an error that begins with %q", name, err, begins)
	}
}

// TestPatience: N evaluations in a row without a better loss end a run. It says so once, and counts as finished. A run
// that is killed in between keeps its count. The steps since the last line are logged, too.
func TestPatience(t *testing.T) {
	dir, said := filepath.Join(t.TempDir(), "run"), []string(nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	evaluations := 0
	worse := func(l *Loop) {
		l.Options.LearningRate, l.Options.EvalEvery, l.Options.Patience = 1e-30, 2, 3 // no evaluation is better than the first
		l.Options.LogEvery = 4
		l.OnNotice = func(line string) {
			if strings.HasSuffix(line, "training ends here (train.patience)") {
				said = append(said, line)
			} else {
				evaluations++
			}
		}
		l.OnStep = func(step, _ int, _ map[string]float64) {
			if step == 5 {
				cancel()
			}
		}
	}
	f := expect.Must(testkit.Folder(dir))(t)
	m := testkit.Model(t, "llama")
	l := tinyLoop(learner(t, backendtest.Go(t), m), m)
	l.Folder, l.Options.MaxSteps = f, fewSteps
	worse(l)
	if err := l.Run(ctx); !errors.Is(err, ErrInterrupted) || l.State.Stale != 2 {
		t.Fatalf("%v, %d evaluations that were not better, want 2", err, l.State.Stale)
	}
	f.Close()
	mustFollow(t, dir, worse)
	mustFollow(t, dir, worse) // it is finished
	if len(said) != 1 || !strings.HasPrefix(said[0], "step 6: 3 evaluations without a better eval_loss than step 0's") ||
		evaluations != 4 {
		t.Errorf("said %q after %d evaluations", said, evaluations)
	}
	records, err := run.ReadMetrics(filepath.Join(dir, "metrics.jsonl"))
	steps := []int(nil)
	for _, r := range records {
		if _, trains := r.Values["loss"]; trains {
			steps = append(steps, r.Step)
		}
	}
	if err != nil || !slices.Equal(steps, []int{4, 6}) {
		t.Errorf("%v: lines of steps %v, want 4 and 6", err, steps)
	}
}
