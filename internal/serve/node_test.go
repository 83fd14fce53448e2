package serve_test

import (
	"os"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/serve"
	"github.com/posttrain/posttrain/internal/testkit"
)

// TestNodeClient: OpenAI's own Node client works with the server.
func TestNodeClient(t *testing.T) {
	command := testkit.Node(t, "openai-node", "../../scripts/serve/node_client.mjs")
	r := start(t, nil, func(o *serve.Options) { o.Token = "secret" })
	command.Env = append(os.Environ(), "BASE_URL="+r.url+"/v1", "API_KEY=secret", "MODEL=tiny")
	out, err := command.CombinedOutput()
	if err != nil || strings.Count(string(out), "ok ") < 8 {
		t.Errorf("%v:\n%s", err, out)
	}
}
