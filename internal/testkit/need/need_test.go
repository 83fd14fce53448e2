package need

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// fake is what a test that has a need did.
type fake struct {
	testing.TB
	log, fatal string
	skipped    bool
}

func (f *fake) Helper() {}

func (f *fake) Logf(format string, args ...any) { f.log += fmt.Sprintf(format, args...) }

func (f *fake) Fatalf(format string, args ...any) {
	f.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (f *fake) SkipNow() {
	f.skipped = true
	runtime.Goexit()
}

// pathOf asks for a need's path with a value of the variable, where nothing is installed.
func pathOf(t *testing.T, needs, name string) (path string, f *fake) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv(Variable, needs)
	f, done := &fake{TB: t}, make(chan bool)
	go func() {
		defer close(done)
		path = Path(f, name)
	}()
	<-done
	return path, f
}

func TestUnlisted(t *testing.T) {
	for _, needs := range []string{"", "onnx,data=/srv"} {
		if path, f := pathOf(t, needs, "model"); path != "" || !f.skipped || f.fatal != "" ||
			!strings.HasPrefix(f.log, "left out for want of model: ") {
			t.Errorf("%q: %+v", needs, f)
		}
	}
}

func TestListed(t *testing.T) {
	_, f := pathOf(t, "onnx,model", "model")
	if f.skipped || !strings.HasPrefix(f.fatal, "POSTTRAIN_NEEDS names model: ") ||
		!strings.HasSuffix(f.fatal, ": run scripts/install-test-needs.sh") || strings.Contains(f.fatal, "\n") {
		t.Errorf("%+v", f)
	}
}

// TestUnknown: a misspelt name, which would leave tests out unseen, is found whatever a test asks for.
func TestUnknown(t *testing.T) {
	for _, name := range []string{"model", "python3"} {
		_, f := pathOf(t, "onnx,modle=/srv,xla", name)
		want := `POSTTRAIN_NEEDS: found "modle": want some of ` + Names() + ", with commas between them"
		if f.fatal != want {
			t.Errorf("%q, want %q", f.fatal, want)
		}
	}
}

func TestGivenPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.json")
	if _, f := pathOf(t, "templates="+file, "templates"); !strings.Contains(f.fatal, file) {
		t.Errorf("%+v", f)
	}
	expect.OK(t, os.WriteFile(file, nil, 0o666))
	if path, f := pathOf(t, "onnx,templates="+file, "templates"); path != file || f.fatal+f.log != "" {
		t.Errorf("%q, %+v", path, f)
	}
}

// TestFound: what is installed changes the variable with which go test's cache looks at it.
func TestFound(t *testing.T) {
	data := t.TempDir()
	t.Setenv("XDG_DATA_HOME", data)
	expect.OK(t, os.MkdirAll(Installed(), 0o777))
	if found := Found(); strings.Contains(found, "templates") {
		t.Error(found)
	}
	for _, name := range []string{"tests/templates.json", "libengine.so.1"} {
		expect.OK(t, os.WriteFile(filepath.Join(data, "posttrain", name), nil, 0o666))
	}
	if found := Found(); !strings.Contains(found, "templates,") || !strings.Contains(found, "libengine.so.1") {
		t.Error(found)
	}
}

// TestDocumented: CONTRIBUTING.md names every need and no other.
func TestDocumented(t *testing.T) {
	if found := listed(t, "CONTRIBUTING.md", "(?m)^- `([a-z0-9_-]+)`: "); found != Names() {
		t.Errorf("CONTRIBUTING.md has the needs\n%s, want\n%s", found, Names())
	}
}

// TestInstalled: the script gets every need that names a script.
func TestInstalled(t *testing.T) {
	var want []string
	for _, n := range Needs {
		if strings.Contains(n.Get, "scripts/") {
			want = append(want, n.Name)
		}
	}
	slices.Sort(want)
	found := strings.Fields(listed(t, "scripts/install-test-needs.sh", `(?m)^names="(.*)"$`))
	if slices.Sort(found); !slices.Equal(found, want) {
		t.Errorf("the script has %v, want %v", found, want)
	}
}

// listed joins what a pattern matches in a file.
func listed(t *testing.T, file, pattern string) string {
	t.Helper()
	text := expect.Bytes(t, filepath.Join(Root, file))
	var all []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	return strings.Join(all, ", ")
}
