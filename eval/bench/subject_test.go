package bench

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/rollout"
)

// TestOpened: a beginning opens the think block, and so does a chat template. Of a server's nobody knows unless the
// user says so.
func TestOpened(t *testing.T) {
	asked := rollout.Conversation{Messages: []data.Message{{Role: "user", Content: "Hello"}}}
	begun := asked
	begun.Prefill = ci.ThinkPrefill
	server := Agent{Server: Server{BaseURL: "http://localhost:1/v1", Parallel: 1}, APIModel: "m"}
	opening := server
	opening.ThinkOpened = true
	for name, c := range map[string]struct {
		model Agent
		want  bool
	}{
		"opens":   {Agent{Model: folder(t, "{{ messages[0].content }}<think>\n"), Backend: "go"}, true},
		"another": {Agent{Model: folder(t, "<think>{{ messages[0].content }}:"), Backend: "go"}, false},
		"server":  {server, false}, "server that opens": {opening, true},
	} {
		s, err := OpenSubject(c.model, false, run.Listen(nil))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if inside, err := s.opened(asked); err != nil || inside != c.want {
			t.Errorf("%s: %v, %v", name, inside, err)
		}
		if inside, err := s.opened(begun); err != nil || !inside {
			t.Errorf("%s, begun: %v, %v", name, inside, err)
		}
	}
}

// TestThen: the first conversation of two is asked without the beginning that the options give to answers.
func TestThen(t *testing.T) {
	e := &benching{o: Options{Agent: Agent{Prefill: true}}}
	item := &Item{ID: "x", Messages: []data.Message{{Role: "user", Content: "Select."}},
		Then: func(first Answer) []data.Message { return []data.Message{{Role: "user", Content: first.Output + "!"}} }}
	first, second := e.conversation(item, nil), e.conversation(item, []Answer{{Output: "2"}})
	if first.Prefill != "" || first.Messages[0].Content != "Select." || second.Prefill != ci.ThinkPrefill ||
		second.Messages[0].Content != "2!" || item.turns() != 2 {
		t.Errorf("%+v, %+v", first, second)
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

// TestSubjectSaysItsEngine, when the model is loaded and auto has chosen.
func TestSubjectSaysItsEngine(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv("ONNXRUNTIME_SHARED_LIBRARY_PATH", "")
	t.Setenv("PJRT_PLUGIN_LIBRARY_PATH", t.TempDir())
	said := &testkit.Ear{}
	s, err := OpenSubject(Agent{Model: folder(t, "{{ messages[0].content }}"), Backend: "auto"}, true, said)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if len(said.Said) != 1 || !strings.HasPrefix(said.Said[0], "engine go: ") {
		t.Errorf("found %q, want the engine and the reason", said.Said)
	}
}

// TestWholePaths: all paths of a model under test are those from the root in the config of its run.
func TestWholePaths(t *testing.T) {
	o := exampleOptions{}
	paths := []*string{&o.Agent.Chat.Template, &o.Agent.Model, &o.Agent.Adapter, &o.Agent.Answers, &o.Judge.Cache}
	for _, path := range paths {
		*path = "x"
	}
	wholePaths(reflect.ValueOf(&o).Elem())
	for i, path := range paths {
		if !filepath.IsAbs(*path) || filepath.Base(*path) != "x" {
			t.Errorf("%d: %s", i, *path)
		}
	}
}
