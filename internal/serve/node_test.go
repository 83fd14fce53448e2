package serve_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/serve"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// TestNodeClient: OpenAI's own Node client works with the server.
func TestNodeClient(t *testing.T) {
	command := testkit.Node(t, "openai-node", "../../scripts/serve/node_client.mjs")
	r := start(t, nil, func(o *serve.Options) { o.Token = "secret" })
	command.Env = append(os.Environ(), "BASE_URL="+r.url+"/v1", "API_KEY=secret", "MODEL=tiny")
	out, err := command.CombinedOutput()
	if err != nil || strings.Count(string(out), "ok ") < 11 {
		t.Errorf("%v:\n%s", err, out)
	}
}

// TestPythonClient: so does the one for Python.
func TestPythonClient(t *testing.T) {
	python := need.Path(t, "openai-python")
	r := start(t, nil, func(o *serve.Options) { o.Token = "secret" })
	command := exec.CommandContext(t.Context(), python, "../../scripts/serve/python_client.py")
	command.Env = append(os.Environ(), "BASE_URL="+r.url+"/v1", "API_KEY=secret", "MODEL=tiny")
	out, err := command.CombinedOutput()
	if err != nil || strings.Count(string(out), "ok ") < 7 {
		t.Errorf("%v:\n%s", err, out)
	}
}
