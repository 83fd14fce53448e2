//go:build cgo && linux

package backend_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// TestPluginsThatAreNone: a library that is no PJRT plugin, or has a version that go-xla's calls do not fit, is one
// line that says what was found; nothing of it is called.
func TestPluginsThatAreNone(t *testing.T) {
	compiler := need.Path(t, "cc")
	const table = "#include <stddef.h>\nvoid *GetPjrtApi(void) { static struct { size_t size; void *none; " +
		"struct { size_t size; void *none; int major, minor; } v; } t = {40, 0, {24, 0, %d, %d}}; return &t; }\n"
	dir := t.TempDir()
	for name, c := range map[string]struct{ code, want string }{
		"library": {"int answer(void) { return 42; }\n", "it is no PJRT plugin: found a library without GetPjrtApi: "},
		"empty":   {"void *GetPjrtApi(void) { return 0; }\n", "it is no PJRT plugin: its GetPjrtApi gives nothing: "},
		"old":     {fmt.Sprintf(table, 0, 40), "it has PJRT 0.40: want 0.81 or newer, and below 1.0: "},
		"new":     {fmt.Sprintf(table, 1, 0), "it has PJRT 1.0: want 0.81 or newer, and below 1.0: "},
	} {
		source, plugin := filepath.Join(dir, name+".c"), filepath.Join(dir, name+".so")
		expect.Write(t, source, c.code)
		if out, err := exec.Command(compiler, "-shared", "-fPIC", "-o", plugin, source).CombinedOutput(); err != nil {
			need.Lack(t, "cc", fmt.Sprintf("%v: %s", err, out))
		}
		e, err := backend.Open("xla:" + plugin)
		if err == nil {
			e.Close()
			t.Errorf("%s: got no error", name)
			continue
		}
		if want := "backend xla: " + plugin + ": " + c.want; !strings.HasPrefix(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %q, want one line with %q", name, err, want)
		}
	}
}
