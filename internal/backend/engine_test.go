package backend_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// hideInstalled hides the machine's libraries and plugins: the environment and the home directory name none.
func hideInstalled(t *testing.T) (home string) {
	t.Helper()
	home = t.TempDir()
	t.Setenv("HOME", home)
	for _, key := range []string{"XDG_DATA_HOME", "ONNXRUNTIME_SHARED_LIBRARY_PATH", "PJRT_PLUGIN_LIBRARY_PATH",
		"LD_LIBRARY_PATH", "XLA_FLAGS"} {
		t.Setenv(key, "")
	}
	return home
}

func TestOpenErrorsAreOneLineAndSayWhatToDo(t *testing.T) {
	home := hideInstalled(t)
	for _, tc := range []struct {
		spec string
		want []string
	}{
		{"tpu", []string{`"tpu"`, "auto", "go", "onnx", "xla"}},
		{"Go", []string{`"Go"`, "auto, go"}},
		{"go:parallelism=4", []string{"go takes no argument"}},
		{"auto:onnx", []string{"auto takes no argument"}},
		{"onnx:", []string{"nothing after the colon"}},
		{"xla:", []string{"nothing after the colon"}},
		{"onnx", []string{"install-onnxruntime.sh", filepath.Join(home, ".local", "share", "posttrain")}},
		{"onnx:/no/such/lib.so", []string{"/no/such/lib.so", "libonnxruntime.so"}},
		{"onnx:" + home, []string{"directory"}},
		{"xla", []string{"PJRT", "PJRT_PLUGIN_LIBRARY_PATH"}},
		{"xla:cpu", []string{"PJRT"}},
		{"xla:cuda,tf32=false", []string{"PJRT"}},
		{"xla:/no/such/plugin.so,tf32=false", []string{"/no/such/plugin.so:"}},
		{"xla:" + home + "/", []string{"directory"}},
	} {
		e, err := backend.Open(tc.spec)
		if err == nil {
			e.Close()
			t.Errorf("%s: got no error", tc.spec)
			continue
		}
		if !backendtest.Cgo && (strings.HasPrefix(tc.spec, "onnx") || strings.HasPrefix(tc.spec, "xla")) &&
			!strings.HasSuffix(tc.spec, ":") {
			tc.want = []string{"not built in", "CGO_ENABLED=1"}
		}
		for _, w := range tc.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %q, want %q in it", tc.spec, err, w)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error has several lines: %q", tc.spec, err)
		}
	}
}

// A file that is not a library is an error with its name, not a download or the end of the process.
func TestOpenNamesABrokenLibrary(t *testing.T) {
	needCgo(t)
	home := hideInstalled(t)
	broken := filepath.Join(home, "broken.so")
	expect.Write(t, broken, "no library")
	for _, spec := range []string{"onnx:" + broken, "xla:" + broken} {
		if e, err := backend.Open(spec); err == nil {
			e.Close()
			t.Errorf("%s: got no error", spec)
		} else if !strings.Contains(err.Error(), broken) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %q, want one line that names the file", spec, err)
		}
	}
}

func TestAutoIsGoIfNothingIsInstalled(t *testing.T) {
	hideInstalled(t)
	for _, spec := range []string{"", "auto", "go"} {
		e := expect.Must(backend.Open(spec))(t)
		if e.Name != "go" || !e.Wants.SharedMemory || !e.Wants.HostRows || e.Wants.BFloat16 || e.Wants.LiveGraphs < 1 {
			t.Errorf("%q: got %s, %+v: want go with SharedMemory and HostRows", spec, e.Name, e.Wants)
		}
		e.Close()
	}
}

// If the environment names a library that does not exist, auto is an error, not the slow engine.
func TestAutoWantsTheNamedLibrary(t *testing.T) {
	home := hideInstalled(t)
	for path, want := range map[string]string{filepath.Join(home, "none.so"): "no file", home: "is a directory"} {
		t.Setenv("ONNXRUNTIME_SHARED_LIBRARY_PATH", path)
		e, err := backend.Open("auto")
		if err == nil {
			e.Close()
		}
		if pinned, _, _ := backend.Auto(backend.Job{}); backendtest.Cgo != (pinned == "onnx") {
			t.Errorf("%s: auto is %s, want onnx if and only if it is built in", path, pinned)
		}
		if !backendtest.Cgo {
			if err != nil || e.Name != "go" {
				t.Errorf("built without cgo: %v", err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: got the engine %s, want an error", path, e.Name)
			continue
		}
		for _, part := range []string{"ONNXRUNTIME_SHARED_LIBRARY_PATH: ", path, want, "unset it",
			"go needs no library"} {
			if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one line with %q", err, part)
			}
		}
	}
}

// TestAutoIsGoIfTheLibraryDoesNotLoad: the warning names the file.
func TestAutoIsGoIfTheLibraryDoesNotLoad(t *testing.T) {
	needCgo(t)
	home := hideInstalled(t)
	broken := filepath.Join(home, ".local", "share", "posttrain", "libonnxruntime.so.99")
	expect.Write(t, broken, "no library")
	for _, named := range []string{"", broken} {
		t.Setenv("ONNXRUNTIME_SHARED_LIBRARY_PATH", named)
		e := expect.Must(backend.Open("auto"))(t)
		defer e.Close()
		name, _, warning := backend.Auto(backend.Job{})
		if e.Name != "go" || name != "go" || warning == nil || e.Warning == nil ||
			warning.Error() != e.Warning.Error() || !strings.Contains(warning.Error(), broken) ||
			!strings.HasSuffix(warning.Error(), ": the slower backend go is used instead") ||
			strings.Contains(warning.Error(), "\n") {
			t.Errorf("%s, %s: warnings %v, %v", e.Name, name, e.Warning, warning)
		}
	}
}

// TestNothingIsSearchedInTheCurrentFolder: not without HOME, and not where a variable has a relative path.
func TestNothingIsSearchedInTheCurrentFolder(t *testing.T) {
	needCgo(t)
	hideInstalled(t)
	t.Chdir(t.TempDir())
	for _, folder := range []string{".", "posttrain", ".local/share/posttrain", ".local/lib/go-xla"} {
		expect.OK(t, os.MkdirAll(folder, 0o755))
		for _, name := range []string{"libonnxruntime.so.99", "pjrt_c_api_evil_plugin.so"} {
			expect.Write(t, filepath.Join(folder, name), "")
		}
	}
	for _, c := range []struct{ home, data, plugins string }{
		{"", "", ""}, {"", ".", ""}, {".", "", ""}, {".", ".", "."}, {"", "", "posttrain:."}, {"/none", "./", ":"},
	} {
		t.Setenv("HOME", c.home)
		t.Setenv("XDG_DATA_HOME", c.data)
		t.Setenv("PJRT_PLUGIN_LIBRARY_PATH", c.plugins)
		for _, status := range backend.List()[1:] {
			if status.Present || status.Detail == "" {
				t.Errorf("%+v: %+v", c, status)
			}
		}
		if _, err := backend.Open("xla:evil"); err == nil || strings.Contains(err.Error(), "invalid ELF") ||
			strings.Contains(err.Error(), "too short") {
			t.Errorf("%+v: xla: %v", c, err)
		}
		if name, _, warning := backend.Auto(backend.Job{}); name != "go" || warning != nil {
			t.Errorf("%+v: auto is %s, %v", c, name, warning)
		}
	}
}

func TestAutoIsONNXIfItsLibraryIsInstalled(t *testing.T) {
	backendtest.ONNX(t)
	e := expect.Must(backend.Open("auto"))(t)
	defer e.Close()
	if e.Name != "onnx" || !e.Wants.SharedMemory || !e.Wants.HostRows || e.Wants.LiveGraphs < 2 ||
		e.Wants.LiveGraphs > 6 {
		t.Errorf("got %s, %+v: want onnx with 2 to 6 live graphs", e.Name, e.Wants)
	}
}

func TestListSaysWhatIsMissingAndHowToGetIt(t *testing.T) {
	hideInstalled(t)
	var names []string
	for _, s := range backend.List() {
		names = append(names, s.Name)
		if s.Detail == "" || s.Present != (s.HowToGet == "") ||
			s.State() != map[bool]string{true: "present", false: "missing"}[s.Name == "go"] {
			t.Errorf("got %+v: want go present, the others missing with a way to get them", s)
		}
	}
	if got := strings.Join(names, " "); got != "go onnx xla" {
		t.Errorf("got %s, want go onnx xla", got)
	}
}

func TestListFindsInstalledFiles(t *testing.T) {
	needCgo(t)
	home := hideInstalled(t)
	data := filepath.Join(home, "data", "posttrain")
	expect.OK(t, os.MkdirAll(data, 0o755))
	for _, name := range []string{"libonnxruntime.so.1.9.0", "libonnxruntime.so.1.31.1", "pjrt_c_api_amx_plugin.so",
		"pjrt_c_api_cuda_plugin.so"} {
		expect.Write(t, filepath.Join(data, name), "")
	}
	t.Setenv("XDG_DATA_HOME", filepath.Join(home, "data"))
	t.Setenv("PJRT_PLUGIN_LIBRARY_PATH", data)
	list := backend.List()
	for i, want := range []string{"go present", "onnx found", "xla:amx found", "xla:cuda found"} { // but not loaded
		if got := list[i].Name + " " + list[i].State(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, s := range list[1:] {
		if s = s.Load(); s.State() != "broken" || !strings.Contains(s.Detail, data) {
			t.Errorf("an empty file loads as %+v, want broken with its path", s)
		}
	}
	if onnx := list[1]; !onnx.Present || !strings.HasSuffix(onnx.Detail, "1.31.1") {
		t.Errorf("got %+v, want the newer of two libraries", onnx)
	}
	if xla := list[3]; !xla.Present || !strings.Contains(xla.Detail, "pjrt_c_api_cuda_plugin.so") {
		t.Errorf("got %+v, want the plugin", xla)
	}
}

func needCgo(t *testing.T) {
	t.Helper()
	if !backendtest.Cgo {
		need.Lack(t, "cc", "the engines onnx and xla are not built in")
	}
}
