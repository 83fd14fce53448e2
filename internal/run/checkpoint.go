package run

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/float"
)

// Names under checkpoints/. Those with a dot are unfinished, or about to be removed.
const (
	stepFormat     = "step-%08d"
	bestFormat     = "best-%08d" // weights alone
	temporaryStart = ".new-"
	replacedStart  = ".replaced-"
	removedStart   = ".removed-"
)

// ErrNoCheckpoint says that a run has no checkpoint from which it can resume.
var ErrNoCheckpoint = errors.New("no usable checkpoint")

// Warning is one line that the user should read, though the run continues.
type Warning string

// Checkpoint is a folder from which a run can resume.
type Checkpoint struct {
	Step     int
	Dir      string
	verified bool // this process has compared its files with the manifest
}

func stepName(step int) string   { return fmt.Sprintf(stepFormat, step) }
func bestFolder(step int) string { return fmt.Sprintf(bestFormat, step) }

// stepOf reads the name of a checkpoint's folder, as stepName writes it.
func stepOf(name string) (step int, ok bool) {
	_, err := fmt.Sscanf(name, "step-%d", &step)
	return step, err == nil && name == stepName(step)
}

// bestOf reads the name of a folder of the best weights, as bestFolder writes it.
func bestOf(name string) (step int, ok bool) {
	_, err := fmt.Sscanf(name, "best-%d", &step)
	return step, err == nil && name == bestFolder(step)
}

// isCheckpoint reports whether a name is a finished checkpoint's or the best weights'.
func isCheckpoint(name string) bool {
	_, step := stepOf(name)
	_, best := bestOf(name)
	return step || best
}

// CheckpointDir is the folder of a step's checkpoint.
func (f *Folder) CheckpointDir(step int) string { return f.Path(checkpointsName, stepName(step)) }

// Wrote is called with the size and SHA-256 of a file of a checkpoint that were computed while it was written. Other
// files are read again.
type Wrote func(path string, size int64, sum []byte)

// WriteCheckpoint stores a checkpoint, and replaces an older one of the same step. write puts any files into dir, a
// temporary folder. They are flushed to the disk with the records logged so far and listed in manifest.json; then the
// folder gets its name. On an error the older checkpoints stay unchanged and the temporary folder is removed. Records
// and samples may be logged at the same time.
func (f *Folder) WriteCheckpoint(step int, write func(dir string) error) (Checkpoint, error) {
	return f.WriteHashedCheckpoint(step, func(dir string, _ Wrote) error { return write(dir) })
}

// WriteHashedCheckpoint is WriteCheckpoint for large files, which are not read again if write calls wrote for them.
func (f *Folder) WriteHashedCheckpoint(step int, write func(dir string, wrote Wrote) error) (Checkpoint, error) {
	return f.writeCheckpointAs(step, f.CheckpointDir(step), write)
}

// WriteBest stores the weights of a step for [Folder.MarkBest] as WriteCheckpoint does. A run cannot resume from them.
func (f *Folder) WriteBest(step int, write func(dir string, wrote Wrote) error) error {
	_, err := f.writeCheckpointAs(step, f.Path(checkpointsName, bestFolder(step)), write)
	return err
}

func (f *Folder) writeCheckpointAs(step int, final string, write func(dir string, wrote Wrote) error) (Checkpoint,
	error) {
	err := f.writeFolder("checkpoint", final, func(dir string) error {
		known := map[string]fileEntry{}
		err := write(dir, func(path string, size int64, sum []byte) {
			known[path] = fileEntry{Size: size, SHA256: hex.EncodeToString(sum)}
		})
		if err != nil {
			return err
		}
		if err := f.syncMetrics(); err != nil {
			return err
		}
		return seal(dir, step, known)
	})
	if err != nil {
		return Checkpoint{}, err
	}
	return Checkpoint{Step: step, Dir: final, verified: true}, nil
}

// writeFolder makes the folder final: write fills a temporary one, which then replaces an earlier one. The error is a
// [SaveError] with what.
func (f *Folder) writeFolder(what, final string, write func(dir string) error) error {
	if err := f.Held(); err != nil {
		return err
	}
	parent := filepath.Dir(final)
	dir := filepath.Join(parent, temporaryStart+filepath.Base(final))
	defer os.RemoveAll(dir) // place has renamed it, if there was no error
	for _, do := range []func() error{
		func() error { return f.freshFolder(dir) },
		func() error { return write(dir) },
		f.Held, // writing may take long
		func() error { return place(dir, final) },
	} {
		if err := do(); err != nil {
			if lost := f.Held(); lost != nil {
				return lost
			}
			return f.saveError(what, final, dir, err)
		}
	}
	return nil
}

// freshFolder makes an empty folder and removes an older one. It never makes the run folder, which may have been taken
// away.
func (f *Folder) freshFolder(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if parent := filepath.Dir(dir); parent != f.Path() {
		if err := os.Mkdir(parent, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return os.Mkdir(dir, 0o777)
}

// place gives a finished folder its name. A folder cannot be renamed over another, so an older one is renamed first;
// restoreReplaced puts it back if the process dies in between.
func place(dir, final string) error {
	aside := filepath.Join(filepath.Dir(final), replacedStart+filepath.Base(final))
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	if err := os.Rename(final, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(dir, final); err != nil {
		_ = os.Rename(aside, final) // there may be no older one
		return err
	}
	if err := syncDir(filepath.Dir(final)); err != nil { // before the older one loses a file
		return err
	}
	return os.RemoveAll(aside)
}

// restoreReplaced gives an older folder its name back, if place was interrupted.
func restoreReplaced(parent string, finished func(name string) bool) error {
	entries, err := entriesOf(parent)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), replacedStart)
		if !ok || !finished(name) {
			continue
		}
		final := filepath.Join(parent, name)
		if _, err := os.Stat(final); err == nil {
			continue // the newer one is in place
		}
		if err := os.Rename(filepath.Join(parent, e.Name()), final); err != nil {
			return fmt.Errorf("%s cannot be put back: %w", final, Cause(err))
		}
	}
	return nil
}

// saveError names the file that could not be written, by its final name, and the checkpoint that remains.
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
		left = "the last checkpoint is intact: " + all[len(all)-1].Dir
	}
	return &SaveError{What: what, Path: file, Left: left, Err: err}
}

// SaveError says that a checkpoint or the model could not be saved.
type SaveError struct {
	What string // checkpoint or model
	Path string // the file that could not be written
	Left string // the checkpoint from which the run can still resume, in words
	Err  error
}

func (e *SaveError) Error() string {
	return fmt.Sprintf("%s not saved: %s: %s (%s)", e.What, e.Path, fault.OneLine(e.Err.Error()), e.Left)
}

// Unwrap gives the cause, such as syscall.ENOSPC.
func (e *SaveError) Unwrap() error { return e.Err }

// All are the checkpoints of the run, oldest first. Their files are not verified.
func (f *Folder) All() ([]Checkpoint, error) {
	parent := f.Path(checkpointsName)
	entries, err := entriesOf(parent)
	if err != nil {
		return nil, err
	}
	var all []Checkpoint
	for _, e := range entries {
		if step, ok := stepOf(e.Name()); ok && e.IsDir() {
			all = append(all, Checkpoint{Step: step, Dir: filepath.Join(parent, e.Name())})
		}
	}
	slices.SortFunc(all, func(a, b Checkpoint) int { return a.Step - b.Step })
	return all, nil
}

// Latest is the newest undamaged checkpoint. It skips damaged ones, each with a warning that names the file. If no
// checkpoint is left, the error is [ErrNoCheckpoint].
func (f *Folder) Latest() (Checkpoint, []Warning, error) { return f.LatestBefore(math.MaxInt) }

// LatestBefore is [Folder.Latest] among the checkpoints before the given step.
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
		warnings = append(warnings, Warning(fmt.Sprintf("checkpoint of step %d skipped: %s", c.Step,
			fault.OneLine(err.Error()))))
	}
	if len(warnings) > 0 {
		return Checkpoint{}, warnings, fmt.Errorf("%s: %w: %s", f.Path(checkpointsName), ErrNoCheckpoint, warnings[0])
	}
	const fault = "%s: %w: the run ended before its first"
	return Checkpoint{}, nil, fmt.Errorf(fault, f.Path(checkpointsName), ErrNoCheckpoint)
}

// ReadCheckpoint verifies a checkpoint and loads it with read.
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

// Prune removes all checkpoints except the newest keep (at least one), and all best weights except those that best.json
// names, and those that were the best at a checkpoint that is kept.
func (f *Folder) Prune(keep int) error { return f.PruneAt(keep, math.MaxInt) }

// PruneAt is Prune of a run that is at a step. Checkpoints of later steps, which it did not resume from since they are
// damaged, stay until they are written again, and count for nothing.
func (f *Folder) PruneAt(keep, step int) error {
	all, err := f.All()
	if err != nil {
		return err
	}
	best, err := f.Best()
	if err != nil {
		return err
	}
	bests, kept := []*Best{best}, map[string]bool{}
	later := slices.IndexFunc(all, func(c Checkpoint) bool { return c.Step > step })
	if later < 0 {
		later = len(all)
	}
	for _, c := range all[max(0, later-max(1, keep)):] {
		kept[filepath.Base(c.Dir)] = true
		if s, err := ReadState(c.Dir); err == nil { // no run resumes from a damaged one
			bests = append(bests, s.Best)
		}
	}
	for _, b := range bests {
		if b == nil {
			continue
		}
		if name, err := f.bestName(b.Step); err == nil {
			kept[name] = true
		}
	}
	return f.discardExcept(kept)
}

func (f *Folder) discardExcept(kept map[string]bool) error {
	entries, err := entriesOf(f.Path(checkpointsName))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() || !isCheckpoint(e.Name()) || kept[e.Name()] {
			continue
		}
		dir := f.Path(checkpointsName, e.Name())
		if err := discard(dir); err != nil {
			return fmt.Errorf("old checkpoint %s cannot be removed: %w", dir, Cause(err))
		}
	}
	return nil
}

// discard renames a checkpoint before it removes the files, so that half a checkpoint never has a checkpoint's name.
func discard(dir string) error {
	parent := filepath.Dir(dir)
	aside := filepath.Join(parent, removedStart+filepath.Base(dir))
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	if err := cmp.Or(os.Rename(dir, aside), syncDir(parent)); err != nil {
		return err
	}
	return os.RemoveAll(aside)
}

// Best names the best weights so far. [State] has it too, so that a resumed run knows it as of its checkpoint.
type Best struct {
	Step       int     `json:"step"`
	Metric     string  `json:"metric"`
	Value      float64 `json:"value"`
	Checkpoint string  `json:"checkpoint,omitempty"` // the folder of the weights, with slashes, relative to the run folder
}

// bestName finds the folder with the best weights of a step. Older versions left them in the step's checkpoint.
func (f *Folder) bestName(step int) (name string, err error) {
	for _, name = range []string{bestFolder(step), stepName(step)} {
		if _, err = os.Stat(f.Path(checkpointsName, name)); err == nil {
			return name, nil
		}
	}
	return "", fmt.Errorf("best checkpoint: %s cannot be read: %w", f.Path(checkpointsName, name), Cause(err))
}

// MarkBest writes the weights of a step into best.json.
func (f *Folder) MarkBest(step int, metric string, value float64) error {
	if !float.IsFinite(value) {
		return fmt.Errorf("best checkpoint: %s is %v at step %d, want a finite number", metric, value, step)
	}
	name, err := f.bestName(step)
	if err != nil {
		return err
	}
	return f.WriteJSON(bestFile, Best{step, metric, value, checkpointsName + "/" + name})
}

// RestoreBest sets best.json to the best of a checkpoint's [State], for a run that resumes from an earlier step. It
// removes best.json if that best is nil, or its checkpoint no longer exists.
func (f *Folder) RestoreBest(b *Best) error {
	if b != nil {
		if _, err := f.bestName(b.Step); err == nil {
			return f.MarkBest(b.Step, b.Metric, b.Value)
		}
	}
	if err := os.Remove(f.Path(bestFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s cannot be removed: %w", f.Path(bestFile), Cause(err))
	}
	return nil
}

// ReadBest verifies the weights that best.json names and loads them with read.
func (f *Folder) ReadBest(b *Best, read func(dir string) error) error {
	name, err := f.bestName(b.Step)
	if err != nil {
		return err
	}
	return f.ReadCheckpoint(Checkpoint{Step: b.Step, Dir: f.Path(checkpointsName, name)}, read)
}

// Best reads best.json. It is nil if the file does not exist.
func (f *Folder) Best() (*Best, error) {
	best := new(Best)
	switch err := readJSON(f.Path(bestFile), "a best.json of posttrain", best); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return best, nil
}
