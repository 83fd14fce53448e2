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
)

const receiptName = "receipt.json"

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
	Block  int      `json:"lines_of_a_block,omitempty"`
	Blocks []string `json:"blocks,omitempty"`
}

// mostBlocks bounds the hashes of a file of lines.
const mostBlocks = 4096

// hashFile reads a file.
func hashFile(path string) (HashedFile, error) {
	if !strings.HasSuffix(path, ".jsonl") {
		e, err := describe(filepath.Dir(path), filepath.Base(path))
		return HashedFile{SHA256: e.SHA256}, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return HashedFile{}, err
	}
	lines := slices.Collect(bytes.Lines(text))
	h := HashedFile{SHA256: hashOf(text), Block: max(1, (len(lines)+mostBlocks-1)/mostBlocks)}
	for block := range slices.Chunk(lines, h.Block) {
		h.Blocks = append(h.Blocks, hashOf(bytes.Join(block, nil))[:16])
	}
	return h, nil
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// inputKeys are the keys of a config that may name files or folders which a run reads.
var inputKeys = []string{"model", "adapter", "reference", "data.train", "data.eval", "data.validation", "data.test"}

// outside are entries of a run folder that a receipt leaves out: what is shown elsewhere, and what changes by itself.
var outside = []string{lockName, receiptName, "tensorboard", "mlflow.json"}

// WriteReceipt hashes what the config names and the folder holds, and writes receipt.json.
func (f *Folder) WriteReceipt(r Receipt) error {
	text, err := os.ReadFile(f.Path(configName))
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", f.Path(configName), Cause(err))
	}
	r.Config = string(text)
	if program, err := os.Executable(); err == nil {
		h, err := hashFile(program)
		if err != nil {
			return fmt.Errorf("%s cannot be read: %w", program, Cause(err))
		}
		r.Binary = h.SHA256
	}
	if r.Inputs, err = inputsOf(text); err != nil {
		return err
	}
	if r.Results, err = hashTree(f.Dir, outside); err != nil {
		return err
	}
	return f.replaceJSON(receiptName, r)
}

// inputsOf hashes the files that a config names.
func inputsOf(text []byte) (map[string]HashedFile, error) {
	keys, err := config.Changes(nil, text)
	if err != nil {
		return nil, err
	}
	all := map[string]HashedFile{}
	for _, k := range keys {
		info, err := os.Stat(k.Now)
		if !slices.Contains(inputKeys, k.Key) || err != nil { // a word such as embedded
			continue
		}
		if info.IsDir() {
			files, err := hashTree(k.Now, nil)
			if err != nil {
				return nil, err
			}
			for name, h := range files {
				all[filepath.ToSlash(filepath.Join(k.Now, name))] = h
			}
		} else if all[k.Now], err = hashFile(k.Now); err != nil {
			return nil, fmt.Errorf("%s cannot be read: %w", k.Now, Cause(err))
		}
	}
	return all, nil
}

// hashTree hashes the files below a folder, without some of its entries.
func hashTree(dir string, without []string) (map[string]HashedFile, error) {
	all := map[string]HashedFile{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("%s cannot be read: %w", path, Cause(err))
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if slices.Contains(without, name) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			if d.Type()&fs.ModeSymlink == 0 { // the hub's cache has links to files
				return nil
			}
			if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
				return nil
			}
		}
		h, err := hashFile(path)
		if err != nil {
			return fmt.Errorf("%s cannot be read: %w", path, Cause(err))
		}
		all[filepath.ToSlash(name)] = h
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
	return r, readJSON(path, "the receipt of a run", &r)
}

// Check compares the files of a run folder, and those that it was made of, with the receipt. It returns a line for each
// difference.
func (r Receipt) Check(dir string) (differences []string) {
	for _, c := range configChanges(r.Config, filepath.Join(dir, configName)) {
		differences = append(differences, filepath.Join(dir, configName)+": "+c)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Results)) {
		differences = append(differences, r.Results[name].differences(filepath.Join(dir, filepath.FromSlash(name)))...)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Inputs)) {
		differences = append(differences, r.Inputs[name].differences(filepath.FromSlash(name))...)
	}
	return differences
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
	now, err := hashFile(path)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("%s cannot be read: %v", path, Cause(err))}
	case now.SHA256 == h.SHA256:
		return nil
	}
	var all []string
	for i, b := range h.Blocks {
		if i < len(now.Blocks) && now.Block == h.Block && now.Blocks[i] != b {
			place := fmt.Sprintf("%s:%d", path, i*h.Block+1)
			if h.Block > 1 {
				place += fmt.Sprintf(" to %d", (i+1)*h.Block)
			}
			all = append(all, place+": the line is not the run's")
		}
	}
	if len(now.Blocks) != len(h.Blocks) {
		all = append(all, fmt.Sprintf("%s: %d blocks of lines, the run had %d", path, len(now.Blocks), len(h.Blocks)))
	}
	if all == nil {
		all = []string{fmt.Sprintf("%s: its SHA-256 begins with %.8s, the run's with %.8s", path, now.SHA256, h.SHA256)}
	}
	return all
}
