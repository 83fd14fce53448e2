package stages

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/embedded"
	"github.com/posttrain/posttrain/rollout"
)

// TestOpened: a beginning opens the think block, and so does a chat template. Of a server's nobody knows unless the
// user says so.
func TestOpened(t *testing.T) {
	asked := rollout.Conversation{Messages: []data.Message{{Role: "user", Content: "Hello"}}}
	begun := asked
	begun.Prefill = ci.ThinkPrefill
	server := ModelConfig{BaseURL: "http://localhost:1/v1", APIModel: "m", Parallel: 1}
	opening := server
	opening.ThinkOpened = true
	for name, c := range map[string]struct {
		model ModelConfig
		want  bool
	}{
		"opens":   {ModelConfig{Model: folder(t, "{{ messages[0].content }}<think>\n"), Backend: "go"}, true},
		"another": {ModelConfig{Model: folder(t, "<think>{{ messages[0].content }}:"), Backend: "go"}, false},
		"server":  {server, false}, "server that opens": {opening, true},
	} {
		s, err := OpenSubject(c.model, false, t.Logf)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		a := s.Asking(0)
		if inside, err := a.BeginsInside(asked); err != nil || inside != c.want {
			t.Errorf("%s: %v, %v", name, inside, err)
		}
		if inside, err := a.BeginsInside(begun); err != nil || !inside {
			t.Errorf("%s, begun: %v, %v", name, inside, err)
		}
	}
}

// folder has the embedded model with another chat template.
func folder(t *testing.T, template string) string {
	t.Helper()
	dir := t.TempDir()
	files, err := fs.Sub(embedded.Files, embedded.Model)
	if err == nil {
		err = os.CopyFS(dir, files)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(template), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
