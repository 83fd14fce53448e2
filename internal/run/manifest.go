package run

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/files"
)

const manifestName = "manifest.json"

// Manifest says what a run was made of and what it left, by the SHA-256 of files. Version and inputs are there from the
// start of the run, since they may change while it is under way; the rest is there when it has ended.
type Manifest struct {
	Version string `json:"version,omitempty"` // of the program
	Command string `json:"command,omitempty"`
	Engine  string `json:"engine,omitempty"`
	Seed    uint64 `json:"seed"`
	Steps   int    `json:"steps"`

	Inputs  map[string]string `json:"inputs"`            // data and models by their paths
	Outputs map[string]string `json:"outputs,omitempty"` // files of the run folder, with slashes
}

// inputKeys are the keys of a config that may name files or folders which a run reads.
var inputKeys = []string{"model", "adapter", "reference", "chat.template", "data.train", "data.eval", "data.validation",
	"data.test", "reward.model.folder", "reward.judge.rubric", "online.reward.model.folder",
	"online.reward.judge.rubric", "judge.rubric", "agent.policy"}

const embeddedName = "embedded" // a model or data that the program carries

// outside are entries of a run folder that a manifest leaves out: what is shown elsewhere, what changes by itself, and
// the weights that servers of rollouts read while a run is under way.
var outside = []string{lockName, manifestName, "tensorboard", "mlflow.json", "served"}

// NoteInputs notes the program's version and the hashes of the files that the config names. In a run that continues from
// a checkpoint, what was noted at its start stays, and changed has a line for what is different now. Without a
// checkpoint the run starts over.
func (f *Folder) NoteInputs(version string) (changed []string, err error) {
	all, err := f.All()
	if err != nil {
		return nil, err
	}
	m, err := ReadManifest(f.Dir)
	switch {
	case err != nil:
		return nil, err
	case m != nil && len(all) > 0:
		begun := Manifest{Version: m.Version, Inputs: m.Inputs} // what it left may change again
		if changed = begun.Check(f.Dir); begun.Version != "" && begun.Version != version {
			changed = append(changed, fmt.Sprintf("the program's version is %s, it was %s: numbers may round differently",
				version, begun.Version))
		}
		return changed, f.WriteJSON(manifestName, begun)
	}
	text, err := os.ReadFile(f.Path(configName))
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", f.Path(configName), Cause(err))
	}
	inputs, err := inputsOf(text)
	if err != nil {
		return nil, err
	}
	return nil, f.WriteJSON(manifestName, Manifest{Version: version, Inputs: inputs})
}

// Inputs are the hashes of the files that NoteInputs found, by their paths.
func (f *Folder) Inputs() (map[string]string, error) {
	m, err := ReadManifest(f.Dir)
	if m == nil {
		return nil, err
	}
	return m.Inputs, nil
}

// WriteManifest adds to the inputs what m says of the run, and hashes of what the folder holds.
func (f *Folder) WriteManifest(m Manifest) (err error) {
	if m.Inputs, err = f.Inputs(); err != nil {
		return err
	}
	m.Outputs = map[string]string{}
	if err := hashTree(f.Dir, outside, m.Outputs, func(name string) string { return name }); err != nil {
		return err
	}
	return f.WriteJSON(manifestName, m)
}

// inputsOf hashes the files that a config names.
func inputsOf(text []byte) (map[string]string, error) {
	values, err := config.ValuesOf(text)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, key := range inputKeys {
		for _, value := range values[key] {
			for _, path := range named(value) {
				name := func(name string) string { return filepath.ToSlash(filepath.Join(path, name)) }
				if err := hashTree(path, nil, all, name); err != nil {
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

// hashTree hashes a file, or the files below a folder but for some of its entries, and puts the hashes into all under
// the keys that its slashed names have. Links to files are read: the hub's cache has them.
func hashTree(root string, without []string, all map[string]string, key func(name string) string) error {
	if resolved, err := filepath.EvalSymlinks(root); err == nil {
		root = resolved
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("%s cannot be read: %w", path, Cause(err))
		}
		name, _ := filepath.Rel(root, path)
		if name = filepath.ToSlash(name); slices.Contains(without, name) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return nil
		}
		if all[key(name)], err = files.SHA256(path); err != nil {
			return fmt.Errorf("%s cannot be read: %w", path, Cause(err))
		}
		return nil
	})
}

// ReadManifest reads a run folder's manifest; nil if the folder has no manifest.
func ReadManifest(dir string) (*Manifest, error) {
	m := new(Manifest)
	err := readJSON(filepath.Join(dir, manifestName), "the manifest of a run", m)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Check compares the files of a run folder, and those that it was made of, with the manifest. It returns a line for each
// that differs.
func (m *Manifest) Check(dir string) (differences []string) {
	for _, name := range slices.Sorted(maps.Keys(m.Outputs)) {
		if path := filepath.FromSlash(name); filepath.IsLocal(path) {
			differences = append(differences, difference(filepath.Join(dir, path), m.Outputs[name])...)
		} else {
			differences = append(differences, fmt.Sprintf("%s leads out of the run folder", fault.Line(name)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Inputs)) {
		differences = append(differences, difference(filepath.FromSlash(name), m.Inputs[name])...)
	}
	return differences
}

// difference says what differs in a file; nothing where it is the same.
func difference(path, was string) []string {
	switch now, err := files.SHA256(path); {
	case err != nil:
		return []string{fmt.Sprintf("%s cannot be read: %v", fault.Line(path), Cause(err))}
	case now != was:
		return []string{fmt.Sprintf("%s: its SHA-256 begins with %.8s, the run's with %.8s", fault.Line(path), now,
			fault.Line(was))}
	}
	return nil
}
