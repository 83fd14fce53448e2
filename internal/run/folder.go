package run

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/files"
)

// Names in a run folder.
const (
	configName      = "config.yaml"
	metricsName     = "metrics.jsonl"
	samplesName     = "samples.jsonl"
	curvesName      = "curves.png"
	summaryName     = "summary.txt"
	summaryJSONName = "summary.json" // the same in numbers
	bestFile        = "best.json"
	checkpointsName = "checkpoints"
	lockName        = "lock"
)

// Names of the folders with what training leaves.
const (
	ModelName   = "model"
	AdapterName = "adapter"
)

// Names of the log-probs that the trainer stores in a run folder: the reference model's, and some training pairs' under
// the model before training.
const (
	BeforeName        = "before.safetensors"
	ReferenceName     = "reference.safetensors"
	ReferenceEvalName = "reference-eval.safetensors"
)

// Names of the completions on a test split, before and after training.
const (
	TestBeforeName = "test-before.jsonl"
	TestAfterName  = "test-after.jsonl"
)

// PartOf names the file that keeps what is measured of another file's log-probs until all are.
func PartOf(path string) string {
	return strings.TrimSuffix(path, ".safetensors") + "-part.safetensors"
}

// ownNames are the files that this package and its callers write under a temporary name, in every run folder.
var ownNames = []string{configName, metricsName, samplesName, curvesName, summaryName, summaryJSONName, manifestName,
	bestFile, BeforeName, ReferenceName, ReferenceEvalName, PartOf(BeforeName),
	PartOf(ReferenceName), PartOf(ReferenceEvalName), TestBeforeName, TestAfterName}

// Folder is the folder of one run, locked against other processes. It is not safe for concurrent use, but checkpoints
// may be written while lines are logged.
type Folder struct {
	Dir      string
	claim    *claim // nil after Close
	watchers []Watcher
}

// Create makes the folder of a new run and locks it. An empty dir means runs/<command>-<time>. It is an error if the
// folder is not empty: a run never mixes with older files.
func Create(dir, command string) (*Folder, error) {
	if dir == "" {
		var err error
		if dir, err = freshDir("runs", command, time.Now()); err != nil {
			return nil, err
		}
	}
	if err := files.MakeAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("run folder %s cannot be made: %w", dir, Cause(err))
	}
	if err := mustBeEmpty(dir); err != nil {
		return nil, err
	}
	claim, err := acquire(dir)
	if err != nil {
		return nil, err
	}
	// Check again with the lock: two processes may have found the folder empty.
	err = mustBeEmpty(dir)
	if err == nil {
		err = removeEntries(dir, isNothing)
	}
	if err != nil {
		return nil, errors.Join(err, claim.Close())
	}
	return &Folder{Dir: dir, claim: claim}, nil
}

// isNothing reports whether a file is one that a process leaves behind if it is killed before its run has a config.
// Such a folder counts as empty.
func isNothing(name string) bool { return isTemporary(name, []string{configName}) }

// unbegun are the configs that a sweep writes for each of its runs before its own, such as seed=1.yaml. They stay if it is
// killed in between: the same command writes them again.
var unbegun = regexp.MustCompile(`^\.?[a-z0-9_.]+=[^/]*\.yaml\d*$`)

// CheckNew returns the error that [Create] would return for a folder that is not empty. It makes nothing: callers use
// it before long work.
func CheckNew(dir string) error {
	if _, err := os.Stat(dir); dir == "" || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return mustBeEmpty(dir)
}

// freshDir makes a folder that did not exist, named after the command and the time to the second.
func freshDir(parent, command string, now time.Time) (string, error) {
	if err := files.MakeAll(parent, 0o777); err != nil {
		return "", fmt.Errorf("run folder %s cannot be made: %w", parent, Cause(err))
	}
	base := filepath.Join(parent, command+"-"+now.Format("20060102-150405"))
	dir := base
	for n := 2; ; n++ {
		err := os.Mkdir(dir, 0o777)
		if err == nil {
			return dir, syncDir(parent)
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("run folder %s cannot be made: %w", dir, Cause(err))
		}
		dir = fmt.Sprintf("%s-%d", base, n)
	}
}

func mustBeEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("run folder %s cannot be read: %w", dir, Cause(err))
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == lockName || isNothing(e.Name()) || unbegun.MatchString(e.Name())
	})
	if len(entries) == 0 {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, configName)); err == nil {
		return fmt.Errorf("run folder %s exists: name another with --out DIR, or continue that run with --resume %s",
			dir, dir)
	}
	return fmt.Errorf("run folder %s is not empty (it holds %s): name another with --out DIR", dir, entries[0].Name())
}

// Finished says that a folder has a run that came to its end: the summary is the last that a run writes, but for what
// the manifest says of its files, where it has one.
func Finished(dir string) bool {
	m, err := ReadManifest(dir)
	_, none := os.Stat(filepath.Join(dir, summaryName))
	return err == nil && none == nil && (m == nil || m.Outputs != nil)
}

// Open locks the folder of an existing run, and removes what an interrupted process left unfinished.
func Open(dir string) (*Folder, error) {
	if _, err := os.Stat(filepath.Join(dir, configName)); err != nil {
		return nil, fmt.Errorf("%s is not a run folder: it has no %s (one looks like runs/mappo-20260102-150405)",
			dir, configName)
	}
	claim, err := acquire(dir)
	if err != nil {
		return nil, err
	}
	f := &Folder{Dir: dir, claim: claim}
	if err := f.tidy(); err != nil {
		return nil, errors.Join(err, claim.Close())
	}
	return f, nil
}

// tidy puts back a checkpoint or model that was interrupted while it was replaced, and removes this package's
// temporary files and folders, no others.
func (f *Folder) tidy() error {
	isModel := func(name string) bool { return name == ModelName || name == AdapterName }
	for dir, finished := range map[string]func(string) bool{f.Dir: isModel, f.Path(checkpointsName): isCheckpoint} {
		if err := restoreReplaced(dir, finished); err != nil {
			return err
		}
		leftOver := func(name string) bool { return isAside(name, finished) }
		if err := removeEntries(dir, leftOver); err != nil {
			return err
		}
	}
	return f.Own(ownNames...)
}

// Own names further files that the caller writes into the folder or into folders in it. Temporary files of these names,
// which an interrupted process left behind, are removed.
func (f *Folder) Own(names ...string) error {
	byFolder := map[string][]string{}
	for _, name := range names {
		folder := filepath.Dir(name)
		byFolder[folder] = append(byFolder[folder], filepath.Base(name))
	}
	for folder, files := range byFolder {
		leftOver := func(name string) bool { return isTemporary(name, files) }
		if err := removeEntries(f.Path(folder), leftOver); err != nil {
			return err
		}
	}
	return nil
}

// isAside reports whether name is a prefix for unfinished work with the name of a finished folder.
func isAside(name string, finished func(name string) bool) bool {
	for _, start := range []string{temporaryStart, replacedStart, removedStart} {
		if rest, ok := strings.CutPrefix(name, start); ok && finished(rest) {
			return true
		}
	}
	return false
}

// isTemporary reports whether name is a temporary name of one of the files: a dot, the file's name and a number, with a
// hyphen between them where package data wrote the file.
func isTemporary(name string, files []string) bool {
	stem := strings.TrimSuffix(strings.TrimRight(name, "0123456789"), "-")
	return len(stem) < len(name) && slices.ContainsFunc(files, func(file string) bool { return stem == "."+file })
}

func removeEntries(dir string, which func(name string) bool) error {
	entries, err := entriesOf(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !which(e.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("temporary %s cannot be removed: %w", filepath.Join(dir, e.Name()), Cause(err))
		}
	}
	return nil
}

// Close closes the watchers and releases the folder. The system releases it too when the process ends.
func (f *Folder) Close() error {
	if f.claim == nil {
		return nil
	}
	f.tell(Watcher.Close) // they may still write
	c := f.claim
	f.claim, f.watchers = nil, nil
	return c.Close()
}

// Path is a path inside the folder.
func (f *Folder) Path(elem ...string) string {
	return filepath.Join(append([]string{f.Dir}, elem...)...)
}

// WriteResult stores what training leaves in the folder of a name, ModelName or AdapterName: write puts its files into
// dir, a temporary folder, which then gets the name. On an error an earlier result stays unchanged.
func (f *Folder) WriteResult(name string, write func(dir string) error) error {
	return f.writeFolder(name, f.Path(name), func(dir string) error {
		if err := write(dir); err != nil {
			return err
		}
		return files.SyncAll(dir)
	})
}

// WriteFile stores a file of the folder, whole or not at all. It is on the disk when it returns.
func (f *Folder) WriteFile(name string, data []byte) error {
	if err := f.Held(); err != nil {
		return err
	}
	return replaceFile(f.Path(name), data)
}

// WriteJSON is WriteFile of a value, for people to read too.
func (f *Folder) WriteJSON(name string, v any) error {
	if err := f.Held(); err != nil {
		return err
	}
	return writeJSON(f.Path(name), v)
}

// WriteConfig stores the resolved config.
func (f *Folder) WriteConfig(resolved []byte) error {
	return f.WriteFile(configName, resolved)
}

// HashConfig identifies a resolved config in [State].
func HashConfig(resolved []byte) string {
	sum := sha256.Sum256(resolved)
	return hex.EncodeToString(sum[:])
}

// WriteSummary stores the run's summary in words. It may have names of files, which say nothing to a terminal.
func (f *Folder) WriteSummary(text string) error {
	return f.WriteFile(summaryName, []byte(fault.Escape(text)))
}

// WriteSummaryJSON stores the run's summary in numbers.
func (f *Folder) WriteSummaryJSON(summary any) error {
	return f.WriteJSON(summaryJSONName, summary)
}

// WriteCurves draws the folder's metrics (see [panelsOf]) into curves.png.
func (f *Folder) WriteCurves(title string) error {
	records, err := f.ReadMetrics()
	if err != nil {
		return err
	}
	return f.WritePanels(title, panelsOf(records))
}

// WritePanels draws panels into curves.png.
func (f *Folder) WritePanels(title string, panels []Panel) error {
	if err := f.Held(); err != nil {
		return err
	}
	return Curves(f.Path(curvesName), title, panels)
}
