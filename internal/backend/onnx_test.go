//go:build cgo && linux

package backend

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// TestONNXReportsNothing: ONNX Runtime's telemetry would number this device and fill a database in the home folder.
func TestONNXReportsNothing(t *testing.T) {
	path, err := findONNXLibrary("")
	if err != nil {
		need.Lack(t, "onnx", err.Error())
	}
	const child = "POSTTRAIN_BACKEND_TEST_CHILD"
	if os.Getenv(child) != "" {
		e := expect.Must(Open("onnx:" + path))(t)
		if strings.Contains(e.Detail, "spin") {
			t.Errorf("%s: this library has the known table of functions", e.Detail)
		}
		e.Finalize()
		return
	}
	home := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestONNXReportsNothing$")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { // CI switches the telemetry off
		return strings.HasPrefix(s, "CI=") || strings.HasPrefix(s, "XDG_") || strings.HasPrefix(s, "GITHUB_")
	})
	cmd.Env = append(cmd.Env, "HOME="+home, onnxLibraryEnv+"="+path, child+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	err = filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if path != home {
			t.Errorf("ONNX Runtime made %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
