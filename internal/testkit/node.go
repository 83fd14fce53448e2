package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// Node is the command that runs a script with an npm package, which is a need of the test.
func Node(t *testing.T, pkg, script string, args ...string) *exec.Cmd {
	t.Helper()
	modules := filepath.Join(need.Path(t, pkg), "node_modules")
	dir := t.TempDir() // the script finds the package beside it
	copied := filepath.Join(dir, filepath.Base(script))
	expect.Write(t, copied, expect.Bytes(t, script))
	expect.OK(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	return exec.CommandContext(t.Context(), "node", append([]string{copied}, args...)...)
}
