package recipe_test

import (
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/train"
)

// TestAutoSaysWhichEngineAndWhy, and how to get a faster one than go; a named engine stays and needs none.
func TestAutoSaysWhichEngineAndWhy(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("ONNXRUNTIME_SHARED_LIBRARY_PATH", "")
	t.Setenv("PJRT_PLUGIN_LIBRARY_PATH", t.TempDir())
	var s testkit.Recorder
	for given, want := range map[string]string{"auto": "go", "onnx:/lib/x.so": "onnx:/lib/x.so"} {
		spec := given
		if recipe.ChooseBackend(&spec, "nowhere", train.Defaults(), recipe.Devices{}, false, &s); spec != want {
			t.Errorf("%s: %s, want %s", given, spec, want)
		}
	}
	want := []string{"engine go: no other engine is here", "engine onnx would take a third to an eighth of the time: "}
	if len(s.Said) != 2 || s.Said[0] != want[0] || !strings.HasPrefix(s.Said[1], want[1]) ||
		!strings.Contains(s.Said[1], "scripts/install-onnxruntime.sh") {
		t.Errorf("%q, want %q", s.Said, want)
	}
}
