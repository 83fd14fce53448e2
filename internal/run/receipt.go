package run

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/files"
)

const (
	receiptName = "receipt.json"
	inputsName  = "inputs.json" // what NoteInputs found
)

// Receipt says what a run was made of and what it left, by hashes. It is written when the run has ended.
type Receipt struct {
	Version string `json:"version"`
	Binary  string `json:"binary"` // SHA-256 of the program
	Command string `json:"command"`
	Engine  string `json:"engine"`
	Seed    uint64 `json:"seed"`
	Steps   int    `json:"steps"`
	Config  string `json:"config"` // the whole text, so that a changed key can be named

	Inputs  map[string]HashedFile `json:"inputs"`  // data and models by their paths
	Results map[string]HashedFile `json:"results"` // files of the run folder, with slashes
}

// HashedFile is a file's SHA-256; of a file of lines, also hashes of its blocks of lines, so that a changed row can be
// named.
type HashedFile struct {
	SHA256 string   `json:"sha256"`
	Lines  int      `json:"lines,omitempty"`
	Block  int      `json:"lines_of_a_block,omitempty"`
	Blocks []string `json:"blocks,omitempty"`
}

// mostBlocks bounds the hashes of a file of lines.
const mostBlocks = 4096

// hashFile reads a file. block is the number of lines in a block; 0: as few as mostBlocks allows.
func hashFile(path string, block int) (HashedFile, error) {
	if !strings.HasSuffix(path, ".jsonl") {
		e, err := describe(filepath.Dir(path), filepath.Base(path))
		return HashedFile{SHA256: e.SHA256}, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return HashedFile{}, err
	}
	lines := slices.Collect(bytes.Lines(text))
	if block == 0 {
		block = max(1, (len(lines)+mostBlocks-1)/mostBlocks)
	}
	h := HashedFile{SHA256: hashOf(text), Lines: len(lines), Block: block}
	for part := range slices.Chunk(lines, block) {
		h.Blocks = append(h.Blocks, hashOf(bytes.Join(part, nil))[:16])
	}
	return h, nil
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// inputKeys are the keys of a config that may name files or folders which a run reads.
var inputKeys = []string{"model", "adapter", "reference", "chat.template", "data.train", "data.eval", "data.validation",
	"data.test", "online.reward.model.folder", "online.reward.judge.rubric"}

const embeddedName = "embedded" // a model or data that the program carries

// servedName is the folder of the weights that servers of rollouts read while a run is under way.
const servedName = "served"

// outside are entries of a run folder that a receipt leaves out: what is shown elsewhere, and what changes by itself.
var outside = []string{lockName, receiptName, signatureName, inputsName, "tensorboard", "mlflow.json", servedName}

// NoteInputs hashes the files that the config names: they may change while the run is under way. In a run that
// continues from a checkpoint, what was found at its start stays. Without a checkpoint the run starts over.
func (f *Folder) NoteInputs() error {
	all, err := f.All()
	if err != nil || len(all) > 0 && f.hasInputs() {
		return err
	}
	return f.hashInputs()
}

func (f *Folder) hasInputs() bool {
	_, err := os.Stat(f.Path(inputsName))
	return err == nil
}

func (f *Folder) hashInputs() error {
	text, err := f.config()
	if err != nil {
		return err
	}
	inputs, err := inputsOf(text)
	if err != nil {
		return err
	}
	return f.replaceJSON(inputsName, inputs)
}

func (f *Folder) config() ([]byte, error) {
	text, err := os.ReadFile(f.Path(configName))
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", f.Path(configName), Cause(err))
	}
	return text, nil
}

// Inputs are the files that NoteInputs hashed, by their paths.
func (f *Folder) Inputs() (inputs map[string]HashedFile, err error) {
	return inputs, readJSON(f.Path(inputsName), "the inputs of a run", &inputs)
}

// WriteReceipt hashes what the folder holds, and writes receipt.json with that and the inputs that NoteInputs found.
func (f *Folder) WriteReceipt(r Receipt) error {
	if !f.hasInputs() {
		if err := f.hashInputs(); err != nil {
			return err
		}
	}
	var err error
	if r.Inputs, err = f.Inputs(); err != nil {
		return err
	}
	text, err := f.config()
	if err != nil {
		return err
	}
	r.Config, r.Binary = string(text), programHash()
	if r.Results, err = hashTree(f.Dir, outside); err != nil {
		return err
	}
	return f.replaceJSON(receiptName, r)
}

// programHash is the SHA-256 of the program that runs, "" where it cannot be read. Linux has it in /proc even when its
// file was replaced or removed since it was started.
func programHash() string {
	path := "/proc/self/exe"
	if _, err := os.Stat(path); err != nil {
		path, _ = os.Executable()
	}
	h, err := hashFile(path, 0)
	if err != nil {
		return ""
	}
	return h.SHA256
}

// inputsOf hashes the files that a config names.
func inputsOf(text []byte) (map[string]HashedFile, error) {
	values, err := config.ValuesOf(text)
	if err != nil {
		return nil, err
	}
	all := map[string]HashedFile{}
	for _, key := range inputKeys {
		for _, value := range values[key] {
			for _, path := range named(value) {
				if err := hashInput(path, all); err != nil {
					return nil, err
				}
			}
		}
	}
	return all, nil
}

// named are the files and folders that a value of a config means: one, or those that a pattern or a data set of the hub
// has. The word embedded means what the program carries, also where a folder has that name, and a model of the hub has
// its commit in the config.
func named(value string) []string {
	if value == embeddedName {
		return nil
	}
	return slices.DeleteFunc(files.Match(value), func(path string) bool {
		_, err := os.Stat(path)
		return err != nil
	})
}

// hashInput adds a file, or the files below a folder.
func hashInput(path string, all map[string]HashedFile) error {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		tree, err := hashTree(path, nil)
		for name, h := range tree {
			all[filepath.ToSlash(filepath.Join(path, name))] = h
		}
		return err
	}
	if err == nil {
		all[path], err = hashFile(path, 0)
	}
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", path, Cause(err))
	}
	return nil
}

// hashTree hashes the files below a folder, without some of its entries. Names have slashes. Links to files are read:
// the hub's cache has them.
func hashTree(dir string, without []string) (map[string]HashedFile, error) {
	all, fsys := map[string]HashedFile{}, os.DirFS(dir)
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err != nil {
			return fmt.Errorf("%s cannot be read: %w", path, Cause(err))
		}
		if slices.Contains(without, name) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if info, err := fs.Stat(fsys, name); err != nil || !info.Mode().IsRegular() {
			return nil
		}
		if all[name], err = hashFile(path, 0); err != nil {
			return fmt.Errorf("%s cannot be read: %w", path, Cause(err))
		}
		return nil
	})
	return all, err
}

// ReadReceipt reads a run folder's receipt.
func ReadReceipt(dir string) (r Receipt, err error) {
	path := filepath.Join(dir, receiptName)
	if _, err := os.Stat(path); err != nil {
		return r, fmt.Errorf("%s: there is no %s: want the folder of a run that has ended", dir, receiptName)
	}
	if err := readJSON(path, "the receipt of a run", &r); err != nil {
		return r, err
	}
	for _, all := range []map[string]HashedFile{r.Inputs, r.Results} {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if err := all[name].check(); err != nil {
				return r, fmt.Errorf("%s: %s: %w", path, name, err)
			}
		}
	}
	return r, nil
}

// check refuses numbers of lines that its blocks contradict.
func (h HashedFile) check() error {
	blocks := 0
	if h.Block > 0 && h.Lines > 0 {
		blocks = (h.Lines-1)/h.Block + 1
	}
	if h.Block < 0 || h.Lines < 0 || blocks != len(h.Blocks) {
		return fmt.Errorf("found %d lines in %d blocks of %d: want the numbers that a run wrote", h.Lines,
			len(h.Blocks), h.Block)
	}
	return nil
}

// Check compares the files of a run folder, and those that it was made of, with the receipt. It returns a line for each
// difference.
func (r Receipt) Check(dir string) (differences []string) {
	changes := configChanges(r.Config, filepath.Join(dir, configName))
	for _, c := range changes {
		differences = append(differences, filepath.Join(dir, configName)+": "+c)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Results)) {
		if name == configName && changes != nil { // its keys are named
			continue
		}
		differences = append(differences, r.Results[name].differences(filepath.Join(dir, filepath.FromSlash(name)))...)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Inputs)) {
		differences = append(differences, r.Inputs[name].differences(filepath.FromSlash(name))...)
	}
	return differences
}

// Note says that the program which runs is not the one that made the run, "" where it is. That alone is no difference:
// another version may give the same bits.
func (r Receipt) Note() string { return r.noteOf(programHash()) }

func (r Receipt) noteOf(binary string) string {
	if r.Binary == "" || binary == "" || binary == r.Binary {
		return ""
	}
	version := r.Version
	if version != "" {
		version = " (" + version + ")"
	}
	return fmt.Sprintf("another program made the run%s: its SHA-256 begins with %.8s, this one's with %.8s", version,
		r.Binary, binary)
}

// configChanges names the keys that are not those of the receipt.
func configChanges(was, path string) []string {
	now, err := os.ReadFile(path)
	if err != nil {
		return nil // the hash of the file says so
	}
	return config.Diff([]byte(was), now)
}

// differences says what differs in a file; nothing where it is the same.
func (h HashedFile) differences(path string) []string {
	now, err := hashFile(path, h.Block)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("%s cannot be read: %v", path, Cause(err))}
	case now.SHA256 == h.SHA256:
		return nil
	case now.Lines != h.Lines:
		return []string{fmt.Sprintf("%s:%d: from here on it is not the run's: it has %d lines, the run's had %d", path,
			h.firstChange(now)*h.Block+1, now.Lines, h.Lines)}
	case h.Blocks == nil:
		return []string{fmt.Sprintf("%s: its SHA-256 begins with %.8s, the run's with %.8s", path, now.SHA256,
			h.SHA256)}
	}
	return h.changedLines(path, now)
}

// firstChange is the first block that is not the same.
func (h HashedFile) firstChange(now HashedFile) int {
	n := 0
	for n < min(len(h.Blocks), len(now.Blocks)) && h.Blocks[n] == now.Blocks[n] {
		n++
	}
	return n
}

// mostNamed bounds the changed lines of a file that are named.
const mostNamed = 20

// changedLines names the blocks of a file of as many lines that are not the same.
func (h HashedFile) changedLines(path string, now HashedFile) (all []string) {
	for i, b := range h.Blocks {
		switch first, last := i*h.Block+1, min((i+1)*h.Block, h.Lines); {
		case now.Blocks[i] == b:
		case first == last:
			all = append(all, fmt.Sprintf("%s:%d: the line is not the run's", path, first))
		default:
			all = append(all, fmt.Sprintf("%s:%d to %d: these lines are not the run's", path, first, last))
		}
	}
	if n := len(all) - mostNamed; n > 0 {
		all = append(all[:mostNamed], fmt.Sprintf("%s: %d more places are not the run's", path, n))
	}
	return all
}
