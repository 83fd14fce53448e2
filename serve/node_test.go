package serve_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/serve"
)

// The environment variables of TestNodeClient: a folder in which the npm package openai is installed (npm install in a
// copy of scripts/serve), and one that makes the test fail, not skip, without it.
const (
	nodeFolder  = "POSTTRAIN_NODE_OPENAI"
	requireNode = "POSTTRAIN_REQUIRE_NODE"
)

// TestNodeClient: OpenAI's own Node client works with the server.
func TestNodeClient(t *testing.T) {
	node, err := exec.LookPath("node")
	modules := filepath.Join(os.Getenv(nodeFolder), "node_modules")
	if _, missing := os.Stat(filepath.Join(modules, "openai")); err != nil || os.Getenv(nodeFolder) == "" || missing != nil {
		missingNode(t, "want node, and "+nodeFolder+" to name a folder with the npm package openai (npm install in a copy of scripts/serve)")
	}
	script, err := os.ReadFile(filepath.Join("..", "scripts", "serve", "node_client.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir() // the script finds the package beside it
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "client.mjs"), script, 0o666); err != nil {
		t.Fatal(err)
	}
	r := start(t, nil, func(o *serve.Options) { o.Token = "secret" })
	command := exec.CommandContext(t.Context(), node, filepath.Join(dir, "client.mjs"))
	command.Env = append(os.Environ(), "BASE_URL="+r.url+"/v1", "API_KEY=secret", "MODEL=tiny")
	out, err := command.CombinedOutput()
	if err != nil || strings.Count(string(out), "ok ") < 8 {
		t.Errorf("%v:\n%s", err, out)
	}
}

func missingNode(t *testing.T, why string) {
	t.Helper()
	if os.Getenv(requireNode) == "1" {
		t.Fatalf("%s=1: %s", requireNode, why)
	}
	t.Skip(why)
}
