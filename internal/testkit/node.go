package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// requireNode, set to 1, makes tests fail instead of skip if Node or a package is missing.
const requireNode = "POSTTRAIN_REQUIRE_NODE"

// Node is the command that runs a script with an npm package. The package must be installed in the folder that an
// environment variable names (npm install in a copy of the script's own folder). Without Node or the package the test
// is skipped.
func Node(t *testing.T, variable, pkg, script string, args ...string) *exec.Cmd {
	t.Helper()
	node, err := exec.LookPath("node")
	modules := filepath.Join(os.Getenv(variable), "node_modules")
	if _, missing := os.Stat(filepath.Join(modules, pkg)); err != nil || os.Getenv(variable) == "" || missing != nil {
		withoutNode(t, "want node, and "+variable+" to name a folder with the npm package "+pkg+
			" (npm install in a copy of "+filepath.Dir(script)+")")
	}
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir() // the script finds the package beside it
	copied := filepath.Join(dir, filepath.Base(script))
	if err := os.WriteFile(copied, text, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(t.Context(), node, append([]string{copied}, args...)...)
}

func withoutNode(t *testing.T, why string) {
	t.Helper()
	if os.Getenv(requireNode) == "1" {
		t.Fatalf("%s=1: %s", requireNode, why)
	}
	t.Skip(why)
}
