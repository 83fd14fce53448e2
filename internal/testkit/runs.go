package testkit

import (
	"fmt"
	"maps"
	"path/filepath"
	"testing"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// Folder opens a run folder, or makes it, for a process that starts or resumes a run.
func Folder(dir string) (*run.Folder, error) {
	f, err := run.Open(dir)
	if err == nil {
		return f, nil
	}
	if f, err = run.Create(dir, "test"); err == nil {
		err = f.WriteConfig([]byte("command: test\n"))
	}
	return f, err
}

// CheckpointFiles are the files of a step's checkpoint that a resumed run reads, relative to the run folder.
func CheckpointFiles(step int) (names []string) {
	for _, name := range []string{"model/model.safetensors", "first_moments.safetensors",
		"second_moments.safetensors"} {
		names = append(names, filepath.Join("checkpoints", fmt.Sprintf("step-%08d", step), name))
	}
	return names
}

// SameFiles compares files of two folders byte by byte.
func SameFiles(t testing.TB, whole, broken string, names ...string) {
	t.Helper()
	for _, name := range names {
		if expect.Read(t, filepath.Join(whole, name)) != expect.Read(t, filepath.Join(broken, name)) {
			t.Errorf("%s differs between the whole and the broken run", name)
		}
	}
}

// SameMetrics compares the metrics of two run folders, except times and speeds.
func SameMetrics(t testing.TB, whole, broken string) {
	t.Helper()
	x, y := metrics(t, whole), metrics(t, broken)
	if len(x) != len(y) || len(x) == 0 {
		t.Fatalf("%d lines of metrics, %d in the broken run", len(x), len(y))
	}
	for i := range x {
		if p, q := fmt.Sprint(x[i]), fmt.Sprint(y[i]); p != q {
			t.Errorf("line %d: %v in the whole run, %v in the broken one", i+1, p, q)
		}
	}
}

// metrics are the records of a run folder without times and speeds.
func metrics(t testing.TB, dir string) []run.Record {
	t.Helper()
	records := expect.Must(run.ReadMetrics(filepath.Join(dir, "metrics.jsonl")))(t)
	for _, r := range records {
		maps.DeleteFunc(r.Values, func(name string, _ float64) bool { return run.OfClock(name) })
	}
	return records
}
