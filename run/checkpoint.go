package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Names under checkpoints/. Those with a dot are not finished, or on their way out.
const (
	stepFormat     = "step-%08d"
	temporaryStart = ".new-"
	replacedStart  = ".replaced-"
	removedStart   = ".removed-"
)

// ErrNoCheckpoint says that a run has no checkpoint to go on from.
var ErrNoCheckpoint = errors.New("no usable checkpoint")

// Warning is something the user should be told once, though the run goes on.
type Warning string

// Checkpoint is a folder that a run can go on from.
type Checkpoint struct {
	Step     int
	Dir      string
	verified bool // its files were compared with the manifest by this process
}

// stepName is the name of a checkpoint's folder.
func stepName(step int) string { return fmt.Sprintf(stepFormat, step) }

// stepOf reads the name of a checkpoint's folder.
func stepOf(name string) (step int, ok bool) {
	_, err := fmt.Sscanf(name, "step-%d", &step)
	return step, err == nil && name == stepName(step)
}

// CheckpointDir is the folder of a step's checkpoint.
func (f *Folder) CheckpointDir(step int) string { return f.Path(checkpointsName, stepName(step)) }

func isStep(name string) bool {
	_, ok := stepOf(name)
	return ok
}

// WriteCheckpoint stores a checkpoint. write puts whatever files it wants into dir, a temporary folder; these are
// flushed to the disk with the records logged so far, listed in manifest.json, and the folder then gets its name. Where anything fails, the
// checkpoints from before stay as they are and the temporary folder is removed. An older checkpoint of the same step
// is replaced.
func (f *Folder) WriteCheckpoint(step int, write func(dir string) error) (Checkpoint, error) {
	parent := f.Path(checkpointsName)
	err := f.writeFolder("checkpoint", parent, stepName(step), func(dir string) error {
		if err := write(dir); err != nil {
			return err
		}
		if err := f.syncMetrics(); err != nil {
			return err
		}
		return seal(dir, step)
	})
	if err != nil {
		return Checkpoint{}, err
	}
	return Checkpoint{Step: step, Dir: filepath.Join(parent, stepName(step)), verified: true}, nil
}

// writeFolder makes a folder under parent: write fills a temporary one, which is then renamed to name, in the place of
// an earlier one. The error is a [SaveError] that calls it what.
func (f *Folder) writeFolder(what, parent, name string, write func(dir string) error) error {
	final, dir := filepath.Join(parent, name), filepath.Join(parent, temporaryStart+name)
	defer os.RemoveAll(dir) // gone by then where all went well
	for _, do := range []func() error{
		func() error { return freshFolder(dir) },
		func() error { return write(dir) },
		func() error { return place(dir, final) },
		func() error { return syncDir(parent) },
	} {
		if err := do(); err != nil {
			return f.saveError(what, final, dir, err)
		}
	}
	return nil
}

// freshFolder makes an empty folder, whatever stood there.
func freshFolder(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.MkdirAll(dir, 0o777)
}

// place gives a finished folder its name. A folder cannot be renamed over another, so one of the same step steps
// aside; restoreReplaced puts it back where the process dies in between.
func place(dir, final string) error {
	aside := filepath.Join(filepath.Dir(final), replacedStart+filepath.Base(final))
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	if err := os.Rename(final, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(dir, final); err != nil {
		_ = os.Rename(aside, final) // it may not be there
		return err
	}
	return os.RemoveAll(aside)
}

func restoreReplaced(parent string, finished func(name string) bool) error {
	entries, err := os.ReadDir(parent)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s cannot be read: %w", parent, cause(err))
	}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), replacedStart)
		if !ok || !finished(name) {
			continue
		}
		final := filepath.Join(parent, name)
		if _, err := os.Stat(final); err == nil {
			continue // its successor is in place
		}
		if err := os.Rename(filepath.Join(parent, e.Name()), final); err != nil {
			return fmt.Errorf("%s cannot be put back: %w", final, cause(err))
		}
	}
	return nil
}

// saveError is one line that names the file that could not be written, as it would have been called, and the
// checkpoint that is left.
func (f *Folder) saveError(what, final, dir string, err error) error {
	file := final
	if rest, ok := strings.CutPrefix(err.Error(), dir+string(filepath.Separator)); ok {
		name, _, _ := strings.Cut(rest, ": ")
		file = filepath.Join(final, name)
		if inner := errors.Unwrap(err); inner != nil {
			err = inner
		}
	}
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		if rel, relErr := filepath.Rel(dir, e.Path); file == final && relErr == nil && filepath.IsLocal(rel) {
			file = filepath.Join(final, rel)
		}
		err = e.Err
	}
	left := "there is no checkpoint yet"
	if all, listErr := f.All(); listErr == nil && len(all) > 0 {
		left = "the last checkpoint is whole: " + all[len(all)-1].Dir
	}
	return &SaveError{What: what, Path: file, Left: left, Err: err}
}

// SaveError says that a checkpoint or the model could not be saved.
type SaveError struct {
	What string // checkpoint or model
	Path string // the file that could not be written
	Left string // what the run can still go on from
	Err  error
}

func (e *SaveError) Error() string {
	return fmt.Sprintf("%s not saved: %s: %s (%s)", e.What, e.Path, oneLine(e.Err), e.Left)
}

// Unwrap gives the cause, such as syscall.ENOSPC.
func (e *SaveError) Unwrap() error { return e.Err }

// All are the checkpoints of the run, oldest first, unverified.
func (f *Folder) All() ([]Checkpoint, error) {
	parent := f.Path(checkpointsName)
	entries, err := os.ReadDir(parent)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s cannot be read: %w", parent, cause(err))
	}
	var all []Checkpoint
	for _, e := range entries {
		step, ok := stepOf(e.Name())
		if !ok || !e.IsDir() {
			continue
		}
		all = append(all, Checkpoint{Step: step, Dir: filepath.Join(parent, e.Name())})
	}
	slices.SortFunc(all, func(a, b Checkpoint) int { return a.Step - b.Step })
	return all, nil
}

// Latest is the newest checkpoint whose files are all as they were written. Damaged ones are passed over, each with
// a warning that names the file. Where none is left the error is [ErrNoCheckpoint].
func (f *Folder) Latest() (Checkpoint, []Warning, error) { return f.LatestBefore(math.MaxInt) }

// LatestBefore is [Folder.Latest] among the checkpoints of fewer steps than the given number.
func (f *Folder) LatestBefore(step int) (Checkpoint, []Warning, error) {
	all, err := f.All()
	if err != nil {
		return Checkpoint{}, nil, err
	}
	all = slices.DeleteFunc(all, func(c Checkpoint) bool { return c.Step >= step })
	var warnings []Warning
	for _, c := range slices.Backward(all) {
		err := verify(c.Dir, c.Step)
		if err == nil {
			c.verified = true
			return c, warnings, nil
		}
		warnings = append(warnings, Warning(fmt.Sprintf("checkpoint of step %d passed over: %s", c.Step, oneLine(err))))
	}
	if len(warnings) > 0 {
		return Checkpoint{}, warnings, fmt.Errorf("%s: %w: %s", f.Path(checkpointsName), ErrNoCheckpoint, warnings[0])
	}
	return Checkpoint{}, nil, fmt.Errorf("%s: %w: the run ended before its first", f.Path(checkpointsName), ErrNoCheckpoint)
}

// ReadCheckpoint verifies a checkpoint and has read load it.
func (f *Folder) ReadCheckpoint(c Checkpoint, read func(dir string) error) error {
	if !c.verified {
		if err := verify(c.Dir, c.Step); err != nil {
			return err
		}
	}
	if err := read(c.Dir); err != nil {
		return fmt.Errorf("checkpoint %s cannot be loaded: %w", c.Dir, err)
	}
	return nil
}

// Prune removes checkpoints but the newest keep (at least one) and the best.
func (f *Folder) Prune(keep int) error {
	all, err := f.All()
	if err != nil {
		return err
	}
	best, err := f.Best()
	if err != nil {
		return err
	}
	for _, c := range all[:max(0, len(all)-max(1, keep))] {
		if best != nil && best.Step == c.Step {
			continue
		}
		if err := discard(c.Dir); err != nil {
			return fmt.Errorf("old checkpoint %s cannot be removed: %w", c.Dir, cause(err))
		}
	}
	return nil
}

// discard takes a checkpoint's name away before its files, so that half a checkpoint never bears one.
func discard(dir string) error {
	aside := filepath.Join(filepath.Dir(dir), removedStart+filepath.Base(dir))
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	if err := os.Rename(dir, aside); err != nil {
		return err
	}
	return os.RemoveAll(aside)
}

// Best names the best checkpoint so far. It goes into [State] too, so that a resumed run knows what its checkpoint
// knew.
type Best struct {
	Step       int     `json:"step"`
	Metric     string  `json:"metric"`
	Value      float64 `json:"value"`
	Checkpoint string  `json:"checkpoint,omitempty"` // its folder, with slashes, relative to the run folder
}

// MarkBest points best.json at the checkpoint of a step.
func (f *Folder) MarkBest(step int, metric string, value float64) error {
	if !finite(value) {
		return fmt.Errorf("best checkpoint: %s is %v at step %d, want a finite number", metric, value, step)
	}
	if _, err := os.Stat(f.CheckpointDir(step)); err != nil {
		return fmt.Errorf("best checkpoint: %s cannot be read: %w", f.CheckpointDir(step), cause(err))
	}
	b, err := json.MarshalIndent(Best{step, metric, value, checkpointsName + "/" + stepName(step)}, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(f.Path(bestName), append(b, '\n'))
}

// RestoreBest sets best.json to what a checkpoint's [State] holds: a run resumed from an earlier step forgets what it
// learned after it. A best checkpoint that is gone is forgotten too.
func (f *Folder) RestoreBest(b *Best) error {
	if b != nil {
		if _, err := os.Stat(f.CheckpointDir(b.Step)); err == nil {
			return f.MarkBest(b.Step, b.Metric, b.Value)
		}
	}
	if err := os.Remove(f.Path(bestName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s cannot be removed: %w", f.Path(bestName), cause(err))
	}
	return nil
}

// Best reads best.json; nil where there is none.
func (f *Folder) Best() (*Best, error) {
	path := f.Path(bestName)
	b, err := readIfThere(path)
	if b == nil {
		return nil, err
	}
	var best Best
	if err := json.Unmarshal(b, &best); err != nil {
		return nil, fmt.Errorf("%s: not what posttrain writes: %s", path, oneLine(err))
	}
	return &best, nil
}
