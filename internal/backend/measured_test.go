package backend

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestKeptRates: what was measured on this machine is read again, that of another machine is not, and a broken file is
// a warning of auto.
func TestKeptRates(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	if r, err := keptRates(); err != nil || r.Rates != nil {
		t.Errorf("%+v, %v, want nothing", r, err)
	}
	want := Rates{machineName(), map[string][]float64{"onnx": {1e9, 2e9}, "xla:cpu": {3e9, 1e9}}}
	path, err := want.Keep()
	if err != nil || path != filepath.Join(dir, "posttrain", "rates.json") {
		t.Fatal(path, err)
	}
	if r, err := keptRates(); err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, %v, want %+v", r, err, want)
	}
	other := want
	other.Machine = "another"
	if _, err := other.Keep(); err != nil {
		t.Fatal(err)
	}
	if r, err := keptRates(); err != nil || r.Rates != nil {
		t.Errorf("%+v, %v, want nothing of another machine", r, err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	e, err := OpenAuto(Job{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if e.Warning == nil || !strings.Contains(e.Warning.Error(), path) ||
		!strings.Contains(e.Warning.Error(), "posttrain version --measure") {
		t.Errorf("%v, want the file and what to do", e.Warning)
	}
}
