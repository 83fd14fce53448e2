package bench

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/rollout/remote"
)

// TestOpened: a beginning opens the think block, and so does a chat template. Of a server's nobody knows unless the
// user says so.
func TestOpened(t *testing.T) {
	asked := ask.Question{Prompt: data.Text{Messages: []data.Message{{Role: "user", Content: "Hello"}}}}
	begun := asked
	begun.Prefill = ci.ThinkPrefill
	server := Agent{Served: remote.Served{Server: remote.Server{BaseURL: "http://localhost:1/v1", Parallel: 1}, APIModel: "m"}}
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

// TestThen: of conversations that follow from answers the last alone has the beginning that the options give to answers;
// an item may end early, and an error is the run's.
func TestThen(t *testing.T) {
	e := &evaluation{o: Options{Agent: Agent{Prefill: true}}}
	broken := errors.New("broken")
	item := &Item{ID: "x", Messages: []data.Message{{Role: "user", Content: "Select."}}, Seed: 1, Most: 2,
		Then: func(said []Answer) ([]data.Message, error) {
			switch said[0].Output {
			case "end":
				return nil, nil
			case "break":
				return nil, broken
			}
			return []data.Message{{Role: "user", Content: said[0].Output + "!"}}, nil
		}}
	first, err := e.conversation(item, nil)
	second, err2 := e.conversation(item, []Answer{{Output: "2"}})
	if first.Prefill != "" || first.Prompt.Messages[0].Content != "Select." || second.Prefill != ci.ThinkPrefill ||
		second.Prompt.Messages[0].Content != "2!" || first.Seed == second.Seed || err != nil || err2 != nil {
		t.Errorf("%+v, %+v, %v, %v", first, second, err, err2)
	}
	for output, spared := range map[string]int{"2": 0, "end": 1, "break": 0} {
		if got := item.spared([]Answer{{Output: output}}); got != spared {
			t.Errorf("%s: %d turns are spared, want %d", output, got, spared)
		}
	}
	if _, err := e.conversation(item, []Answer{{Output: "break"}}); err != broken {
		t.Errorf("%v, want %v", err, broken)
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
	if err != nil {
		t.Fatal(err)
	}
	expect.Write(t, filepath.Join(dir, "chat_template.jinja"), template)
	return dir
}

// TestSubjectSaysItsEngine, when the model is loaded and auto has chosen.
func TestSubjectSaysItsEngine(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv("ONNXRUNTIME_SHARED_LIBRARY_PATH", "")
	t.Setenv("PJRT_PLUGIN_LIBRARY_PATH", t.TempDir())
	said := &testkit.Recorder{}
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
