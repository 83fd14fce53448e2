package run

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// finished is a run folder with a config, metrics, a model, two checkpoints and a manifest. Its data are 60 rows.
func finished(t *testing.T) (f *Folder, data string, m *Manifest) {
	t.Helper()
	root := t.TempDir()
	data = filepath.Join(root, "pairs.jsonl")
	base := filepath.Join(root, "base")
	f = expect.Must(Create(filepath.Join(root, "run"), "mappo"))(t)
	t.Cleanup(func() { f.Close() })
	text := "command: mappo\nmodel: " + base + "\nseed: 1\ndata:\n  train: " + data + "\n  eval: \"\"\nloss:\n  beta: 0.1\n"
	for _, do := range []func() error{
		func() error { return os.WriteFile(data, []byte(strings.Repeat("{}\n", 60)), 0o666) },
		func() error { return os.Mkdir(base, 0o777) },
		func() error { return os.WriteFile(filepath.Join(base, "model.safetensors"), content(1, "base"), 0o666) },
		func() error { return f.WriteConfig([]byte(text)) },
		func() error { _, err := f.NoteInputs("v1"); return err },
		func() error { return f.Log(Record{Step: 1, Values: map[string]float64{"loss": 0.5}}) },
		func() error { return f.Log(Record{Step: 2, Values: map[string]float64{"loss": 0.4}}) },
		func() error { _, err := f.WriteCheckpoint(1, writeContent(1)); return err },
		func() error { _, err := f.WriteCheckpoint(2, writeContent(2)); return err },
		func() error { return f.WriteSummary("done\n") },
		func() error {
			return f.WriteManifest(Manifest{Version: "v1", Command: "mappo", Engine: "go", Seed: 1, Steps: 2})
		},
	} {
		expect.OK(t, do())
	}
	return f, data, manifestOf(t, f)
}

func manifestOf(t *testing.T, f *Folder) *Manifest {
	t.Helper()
	m, err := ReadManifest(f.Dir)
	if err != nil || m == nil {
		t.Fatal(m, err)
	}
	return m
}

// TestManifestNamesChanges plants 120 changes, one at a time: each is found, and its file is named.
func TestManifestNamesChanges(t *testing.T) {
	f, data, m := finished(t)
	if found := m.Check(f.Dir); found != nil || len(m.Inputs) != 2 || len(m.Outputs) != 11 {
		t.Fatalf("%q, %d inputs, %d outputs", found, len(m.Inputs), len(m.Outputs))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 120 {
		path := []string{filepath.Join(f.CheckpointDir(1+rng.IntN(2)), contentNames[rng.IntN(3)]), data,
			filepath.Join(filepath.Dir(data), "base", "model.safetensors"), f.Path(configName)}[i%4]
		whole := expect.Bytes(t, path)
		changed := slices.Clone(whole)
		if at := rng.IntN(len(changed)); i%8 < 4 {
			changed[at] ^= 1 << rng.IntN(8) // a bit
		} else {
			changed = slices.Delete(changed, at, at+1) // a byte less
		}
		expect.Write(t, path, changed)
		want := path + ": its SHA-256 begins with "
		if found := m.Check(f.Dir); len(found) != 1 || !strings.HasPrefix(found[0], want) {
			t.Errorf("change %d: found %q, want %q", i, found, want)
		}
		expect.Write(t, path, whole)
	}
	if found := m.Check(f.Dir); found != nil {
		t.Errorf("all is as it was, but found %q", found)
	}
	expect.OK(t, os.Remove(data))
	if found := m.Check(f.Dir); len(found) != 1 || found[0] != data+" cannot be read: no such file or directory" {
		t.Errorf("%q", found)
	}
}

// TestManifestInputs: names with a space, patterns, links to folders and further keys are found; words that are no files
// are passed over.
func TestManifestInputs(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"my pairs.jsonl": "{}\n", "a-1.parquet": "1", "a-2.parquet": "2",
		"base/model.safetensors": "3", "base/.cache/x": "4", "chat.jinja": "5", "unused": "6",
		"rm/model.safetensors": "8", "rubric": "9", "norms": "10",
		"internal/embedded/pairs.jsonl": "7"} {
		expect.Write(t, name, text)
	}
	expect.OK(t, os.Symlink("base", "current"))
	all, err := inputsOf([]byte("model: current\nreference: org/name@0123\nseed: 1\nchat:\n  template: chat.jinja\n" +
		"data:\n  train: \"my pairs.jsonl\"\n  eval: a-*.parquet\n  test: embedded\n  validation: \"\"\n" +
		"reward:\n  model:\n    folder: rm\njudge:\n  rubric: rubric\nagent:\n  policy: norms\nother: unused\n"))
	expect.OK(t, err)
	want := []string{"a-1.parquet", "a-2.parquet", "chat.jinja", "current/.cache/x", "current/model.safetensors",
		"my pairs.jsonl", "norms", "rm/model.safetensors", "rubric"}
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		t.Errorf("inputs %q, want %q", got, want)
	}
	const two = "d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35" // printf 2 | sha256sum
	if all["a-2.parquet"] != two {
		t.Error(all)
	}
}

// TestManifestLeavesServedWeightsOut: what servers of rollouts read is gone after the run, and is in no manifest.
func TestManifestLeavesServedWeightsOut(t *testing.T) {
	f, _, _ := finished(t)
	expect.OK(t, os.MkdirAll(f.Path("served", "x-v1"), 0o777))
	expect.Write(t, f.Path("served", "x-v1", "model.safetensors"), "w")
	expect.OK(t, f.WriteManifest(Manifest{Command: "ci-rl"}))
	if m := manifestOf(t, f); len(m.Outputs) != 11 {
		t.Errorf("%d outputs: want 11", len(m.Outputs))
	}
}

// TestManifestHasTheInputsOfTheStart: data that changes while the run is under way is not the run's, also where it is
// continued from a checkpoint. Without one it starts over, and reads its files again.
func TestManifestHasTheInputsOfTheStart(t *testing.T) {
	f, data, m := finished(t)
	was := m.Inputs[data]
	expect.Write(t, data, "{}\n")
	for _, do := range []func() error{func() error {
		changed, err := f.NoteInputs("v2")
		if len(changed) != 2 || !strings.HasPrefix(changed[0], data+": its SHA-256 begins with ") ||
			changed[1] != "the program's version is v2, it was v1: numbers may round differently" {
			t.Errorf("changed: %q", changed)
		}
		return err
	}, func() error { return f.WriteManifest(Manifest{}) }} {
		expect.OK(t, do())
		m := manifestOf(t, f)
		if found := fmt.Sprint(m.Check(f.Dir)); m.Inputs[data] != was || !strings.Contains(found, data) {
			t.Errorf("%s, want the data", found)
		}
	}
	expect.OK(t, os.RemoveAll(f.Path(checkpointsName)))
	if changed, err := f.NoteInputs("v2"); err != nil || changed != nil {
		t.Fatal(changed, err)
	}
	if m := manifestOf(t, f); m.Inputs[data] == was || m.Outputs != nil {
		t.Error("without a checkpoint the changed data is not the run's")
	}
}

// TestManifestFaults: a damaged one is named; a folder without one, as older runs have it, is no error.
func TestManifestFaults(t *testing.T) {
	f, _, _ := finished(t)
	expect.Write(t, f.Path(manifestName), "{")
	_, err := ReadManifest(f.Dir)
	expect.Error(t, err, manifestName+": not the manifest of a run: ")
	if m, err := ReadManifest(t.TempDir()); m != nil || err != nil {
		t.Error(m, err)
	}
}

// TestManifestFromElsewhere: its names are compared within the folder alone, and say nothing to a terminal.
func TestManifestFromElsewhere(t *testing.T) {
	m := Manifest{Outputs: map[string]string{"../secret": "0", "/etc/passwd": "0", "a\nb\x1b[2J": "0"},
		Inputs: map[string]string{"/dev/zero": "0"}}
	want := []string{"../secret leads out of the run folder", "/etc/passwd leads out of the run folder",
		`dir/a\nb\x1b[2J cannot be read: no such file or directory`,
		"/dev/zero cannot be read: found a device, want a regular file"}
	if got := m.Check("dir"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
