package train

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/run"
)

// This file saves what a trainer has reached, and goes on from it.
//
// Checkpoints are written while the next steps go on: a step waits for the copy of the state, and for the checkpoint
// before if that is still being written. One that is due by time follows later then; before an evaluation it waits.
// Where memory is short there is no copy: the steps wait while the state is written, tensor by tensor.

// Names of a trainer's own numbers in run.State.Metrics.
const tokensKey, updatesKey, evaluatedKey = "tokens", "updates", "validated"

// save writes a checkpoint of the present state, unless there is one, and the present weights if they are the best. It
// returns when they are copied, or written.
func (t *Trainer) save(whole, best bool) error {
	whole = whole && !t.clean
	if t.Folder == nil || !whole && !best {
		return nil
	}
	t.Part(run.Part{What: "saving", Start: time.Now()})
	if err := t.writer.wait(); err != nil { // before the copy, so that there is one copy at most
		return err
	}
	copied := t.hasRoom(whole)
	s, err := t.snapshot(whole, best, copied)
	if err != nil {
		return err
	}
	if whole {
		t.clean, t.saved = true, t.now()
	}
	if !copied {
		return t.write(s)
	}
	return t.writer.start(func() error { return t.write(s) })
}

// CopyShare is the share of the free memory that a copy of the state may take. A larger state is written in place, while
// the steps wait some seconds.
const CopyShare = 16

// hasRoom says whether there is room for a copy of the state.
func (t *Trainer) hasRoom(whole bool) bool {
	need := uint64(4 * t.Learner.Size())
	if whole {
		need *= 3
	}
	free := backend.FreeMemory
	if t.Memory != nil {
		free = t.Memory
	}
	left := free()
	if need <= left/CopyShare {
		return true
	}
	if !t.short {
		t.short = true
		t.Notice("checkpoints: steps wait while one is written, since a copy of weights and moments would take %.2f GB, "+
			"more than a sixteenth of the free %.2f GB", float64(need)/1e9, float64(left)/1e9)
	}
	return false
}

// snapshot is what is saved.
type snapshot struct {
	run.State
	from          tensorSource
	whole, isBest bool
}

// snapshot copies the state, or without a copy gives one that is valid until the next update.
func (t *Trainer) snapshot(whole, best, copied bool) (s snapshot, err error) {
	s = snapshot{State: t.State, from: t.Learner.store, whole: whole, isBest: best}
	if copied {
		if s.from, err = t.Learner.copyFor(whole); err != nil {
			return s, err
		}
	}
	if !whole {
		return s, nil
	}
	now := t.identity()
	s.Seed, s.ConfigHash, s.Engine, s.Data = now.Seed, now.ConfigHash, now.Engine, now.Data
	s.Metrics = t.window.pack()
	maps.Copy(s.Metrics, t.Kept)
	s.Metrics[tokensKey], s.Metrics[updatesKey] = t.tokens, float64(t.Learner.updates)
	s.Metrics[evaluatedKey] = float64(t.evaluated)
	return s, nil
}

// write writes a snapshot, and removes what is not kept. The best weights come first: a checkpoint names none that are
// not there.
func (t *Trainer) write(s snapshot) error {
	if s.isBest {
		if err := t.Folder.WriteBest(s.Step, func(dir string, wrote run.Wrote) error {
			return t.exporter().writeBest(dir, s.from, wrote)
		}); err != nil {
			return err
		}
	}
	if s.whole {
		if _, err := t.Folder.WriteHashedCheckpoint(s.Step, func(dir string, wrote run.Wrote) error {
			if err := t.exporter().writeCheckpoint(dir, s.from, wrote); err != nil {
				return err
			}
			return s.State.Write(dir)
		}); err != nil {
			return err
		}
	}
	if s.isBest {
		if err := t.Folder.MarkBest(s.Step, s.Best.Metric, s.Best.Value); err != nil {
			return err
		}
	}
	return t.Folder.PruneAt(t.Options.CheckpointKeep, s.Step)
}

func (t *Trainer) exporter() Exporter {
	if t.Export.Model == nil {
		return Exporter{Model: t.Learner.model, Tokenizer: t.Export.Tokenizer}
	}
	return t.Export
}

// identity is what must be the same when a run is resumed.
func (t *Trainer) identity() run.State {
	if t.data == "" {
		t.data = t.Source.Hash()
	}
	return run.State{Seed: t.Seed, ConfigHash: t.ConfigHash, Engine: t.Learner.Engine(), Data: t.data}
}

// Resume continues from the newest good checkpoint of the folder. Its warnings name the checkpoints that it skipped.
// Metrics and samples of later steps are removed: they are about to be measured again. A run that ended before its
// first checkpoint starts over.
func (t *Trainer) Resume() ([]run.Warning, error) {
	if err := t.tie(); err != nil {
		return nil, err
	}
	if t.Folder == nil {
		return nil, errors.New("there is no run folder to resume from")
	}
	newest, warnings, err := t.Folder.Latest()
	if errors.Is(err, run.ErrNoCheckpoint) && len(warnings) == 0 {
		if err := t.cut(-1); err != nil {
			return nil, err
		}
		return nil, cmp.Or(t.Folder.RestoreBest(nil), t.Folder.Prune(t.Options.CheckpointKeep))
	}
	if err != nil {
		return warnings, err
	}
	if err := t.Folder.ReadCheckpoint(newest, t.load); err != nil {
		return warnings, err
	}
	if err := t.cut(t.State.Step); err != nil {
		return warnings, err
	}
	if err := t.Folder.RestoreBest(t.State.Best); err != nil {
		return warnings, err
	}
	switch best, err := t.Folder.Best(); {
	case err != nil:
		return warnings, err
	case best == nil && t.State.Best != nil: // else a weight that is gone would be better than all that follow
		t.Notice("the best weights, of step %d, are gone: the best of the evaluations that follow are kept",
			t.State.Best.Step)
		t.State.Best = nil
	}
	if len(warnings) > 0 {
		return warnings, nil // the damaged checkpoints are newer than the one in use, which must stay
	}
	return nil, t.Folder.PruneAt(t.Options.CheckpointKeep, newest.Step) // a kill may have come before it
}

// cut removes what was logged after a step, and at that step by an evaluation that the checkpoint does not know of.
func (t *Trainer) cut(step int) error {
	repeated := t.evaluated != step
	_, metric := t.Source.Evaluation()
	_, err := t.Folder.DropMetrics(func(r run.Record) bool {
		_, evaluation := r.Values[metric]
		return r.Step > step || r.Step == step && evaluation && repeated
	})
	if err != nil {
		return err
	}
	if repeated { // samples are an evaluation's
		step--
	}
	return t.Folder.CutSamples(step)
}

func (t *Trainer) load(dir string) error {
	s, err := run.ReadState(dir)
	if err != nil {
		return err
	}
	if err := checkSameRun(s, t.identity()); err != nil {
		return err
	}
	from, err := t.exporter().openCheckpoint(dir)
	if err != nil {
		return err
	}
	defer from.close()
	if err := t.Learner.replace(from, int(s.Metrics[updatesKey])); err != nil {
		return err
	}
	t.State, t.clean = s, true
	t.window, t.tokens = unpackMetrics(s.Metrics), s.Metrics[tokensKey]
	t.evaluated = int(s.Metrics[evaluatedKey])
	t.Kept = maps.Clone(s.Metrics)
	maps.DeleteFunc(t.Kept, func(name string, _ float64) bool {
		return strings.HasPrefix(name, sumOf) || strings.HasPrefix(name, weightOf)
	})
	return nil
}

// checkSameRun refuses to continue a run with another seed, config, engine or data than it was started with.
func checkSameRun(saved, now run.State) error {
	switch {
	case saved.Seed != now.Seed:
		return fmt.Errorf("the run was started with seed %d, now it is %d", saved.Seed, now.Seed)
	case saved.ConfigHash != now.ConfigHash:
		return errors.New("the config is not the one that the run was started with")
	case saved.Engine != now.Engine:
		return fmt.Errorf("the run was started on engine %s, now it is %s: engines round differently; name it with "+
			"--backend %s",
			saved.Engine, now.Engine, saved.Engine)
	case saved.Data != now.Data:
		return errors.New("the training or evaluation data (or the tokenizer) has changed since the run was started: " +
			"start a new run with --out DIR")
	}
	return nil
}

// LoadBest puts the weights of the best checkpoint into the learner and returns which one that is. It returns nil where
// nothing was evaluated or nothing is saved: the present weights are the result then. No step may follow.
func (t *Trainer) LoadBest() (*run.Best, error) {
	if t.Folder == nil {
		return nil, nil
	}
	best, err := t.Folder.Best()
	if best == nil || err != nil {
		return nil, err
	}
	return best, t.Folder.ReadBest(best, func(dir string) error {
		from, err := t.exporter().openBest(dir)
		if err != nil {
			return err
		}
		defer from.close()
		return t.Learner.replaceWeights(from)
	})
}
