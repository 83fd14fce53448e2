package federated

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
)

// TestDiscard: a run whose server could not start leaves no folder, or the empty one that was there.
func TestDiscard(t *testing.T) {
	o, err := ServerSpec.Load(config.Input{})
	if err != nil {
		t.Fatal(err)
	}
	o.TLS = "on"
	empty, fresh := t.TempDir(), filepath.Join(t.TempDir(), "run")
	for dir, want := range map[string]bool{empty: true, fresh: false} {
		o.Dir = recipe.RunDir{Out: dir}
		s := &service{Service: *o, Reporter: run.Listen(nil)}
		if err := s.open(); err != nil {
			t.Fatal(err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) < 3 {
			t.Fatalf("%v, %v", entries, err)
		}
		s.discard()
		s.folder.Close()
		if entries, err := os.ReadDir(dir); (err == nil) != want || len(entries) > 0 {
			t.Errorf("%v, %v", entries, err)
		}
	}
}
