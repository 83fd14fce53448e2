package grpo

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/posttrain/posttrain/run"
	"github.com/posttrain/posttrain/train"
)

// save writes a checkpoint of the present step, unless there is one, and drops those that are not kept.
func (l *Loop) save(best bool) error {
	if l.clean {
		return nil
	}
	t, updates, err := l.Learner.Read()
	if err != nil {
		return err
	}
	state := l.saved(updates)
	_, err = l.Folder.WriteCheckpoint(state.Step, func(dir string) error {
		if err := l.Export.WriteCheckpoint(dir, t); err != nil {
			return err
		}
		return state.Write(dir)
	})
	if err != nil {
		return err
	}
	if best {
		if err := l.Folder.MarkBest(state.Step, state.Best.Metric, state.Best.Value); err != nil {
			return err
		}
	}
	l.clean = true
	return l.Folder.Prune(l.Train.CheckpointKeep)
}

// saved is the state as a checkpoint keeps it.
func (l *Loop) saved(updates int) run.State {
	s := l.state
	s.Seed, s.ConfigHash, s.Engine, s.Data = l.Seed, l.ConfigHash, l.Learner.Engine(), l.dataHash()
	s.Metrics = l.window.Pack()
	for name, x := range map[string]float64{"tokens": l.tokens, "updates": float64(updates), "validated": float64(l.validated),
		"fruitless": float64(l.fruitless), "entropy at the start": l.entropy} {
		s.Metrics[name] = x
	}
	return s
}

// Resume continues from the newest good checkpoint of the folder and returns its warnings. Metrics and samples after it are
// cut: they are about to be measured again. A run that ended before its first checkpoint starts over.
func (l *Loop) Resume() ([]run.Warning, error) {
	return train.Resume(l.Folder, func(dir string) (run.State, error) {
		err := l.load(dir)
		return l.state, err
	})
}

func (l *Loop) load(dir string) error {
	s, err := run.ReadState(dir)
	if err != nil {
		return err
	}
	if err := train.SameRun(s, l.nowRunning()); err != nil {
		return err
	}
	if err := l.loadWeights(dir, s); err != nil {
		return err
	}
	l.state, l.window, l.clean = s, train.UnpackMetrics(s.Metrics), true
	l.tokens, l.entropy = s.Metrics["tokens"], s.Metrics["entropy at the start"]
	l.validated, l.fruitless = int(s.Metrics["validated"]), int(s.Metrics["fruitless"])
	return nil
}

// nowRunning is what a checkpoint must have been written with.
func (l *Loop) nowRunning() run.State {
	return run.State{Seed: l.Seed, ConfigHash: l.ConfigHash, Engine: l.Learner.Engine(), Data: l.dataHash()}
}

func (l *Loop) loadWeights(dir string, s run.State) error {
	t, err := l.Export.ReadCheckpoint(dir)
	if err != nil {
		return err
	}
	return l.Learner.Write(t, int(s.Metrics["updates"]))
}

// LoadBest puts the weights of the best checkpoint, the result of the run, into the learner, and says which that is: nil where
// nothing was validated, and the present weights are the result. No step may follow.
func (l *Loop) LoadBest() (*run.Best, error) {
	best, err := l.Folder.Best()
	if best == nil || err != nil {
		return nil, err
	}
	all, err := l.Folder.All()
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		if c.Step == best.Step {
			return best, l.Folder.ReadCheckpoint(c, func(dir string) error { return l.loadWeights(dir, run.State{}) })
		}
	}
	return nil, fmt.Errorf("%s: the best checkpoint, of step %d, is gone", l.Folder.Dir, best.Step)
}

// dataHash identifies prompts and keywords of all tasks.
func (l *Loop) dataHash() string {
	if l.data != "" {
		return l.data
	}
	h := sha256.New()
	for _, tasks := range [][]Task{l.Tasks, l.Held} {
		fmt.Fprintln(h, len(tasks))
		for _, t := range tasks {
			fmt.Fprintf(h, "%d %q %q %v\n", len(t.Tokens), t.Keywords.Required, t.Keywords.Restricted, t.Prefilled)
			binary.Write(h, binary.LittleEndian, t.Tokens) // a hash never fails
		}
	}
	l.data = hex.EncodeToString(h.Sum(nil))
	return l.data
}

// interrupt saves what there is.
func (l *Loop) interrupt() error {
	if err := l.save(false); err != nil {
		return err
	}
	return train.ErrInterrupted
}

// notFinite is the error of a step that met NaN or infinity, which came from the weights that it began with.
type notFinite struct{ error }

// explain adds which checkpoint a failed run can go on from. After a NaN, the checkpoint of the present step holds the very
// weights that gave it: a good one is of an earlier step. A checkpoint that could not be saved says it by itself.
func (l *Loop) explain(err error) error {
	if errors.As(err, new(*run.SaveError)) {
		return err
	}
	before := l.state.Step + 1
	if errors.As(err, new(notFinite)) {
		before--
	}
	return train.WithCheckpoint(l.Folder, before, err)
}
