package hub

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/hub/hubtest"
	testneed "github.com/posttrain/posttrain/internal/testkit/need"
)

// TestHuggingFaceHub: huggingface_hub finds what this package downloaded, leaves the same cache from the same server,
// and this package finds what huggingface_hub downloaded. It runs in a Python of its own.
func TestHuggingFaceHub(t *testing.T) {
	python := testneed.Path(t, "huggingface_hub")
	hubtest.New(t, map[string]hubtest.Repo{"org/tiny": tiny()})
	call := func(how string) string {
		args := []string{"testdata/hub.py", how, "org/tiny", "config.json", "tokenizer.json", "model.safetensors"}
		text, err := exec.Command(python, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return strings.TrimSpace(string(text))
	}
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	if _, _, err := fetch(t, "org/tiny"); err != nil {
		t.Fatal(err)
	}
	ours, _ := Folder("org/tiny")
	if theirs := call("find"); !strings.HasPrefix(theirs, filepath.Join(ours, "config.json")+"\n") {
		t.Errorf("huggingface_hub finds %s, want files in %s", theirs, ours)
	}
	t.Setenv("HF_HUB_CACHE", filepath.Join(t.TempDir(), "theirs"))
	call("download")
	checkTree(t)
	t.Setenv("HF_HUB_OFFLINE", "1")
	if name, _, err := fetch(t, "org/tiny"); err != nil || name != pinnedTiny {
		t.Error(name, err)
	}
}
