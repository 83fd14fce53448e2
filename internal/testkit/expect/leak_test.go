package expect

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(NoLeaks(m)) }

// TestLeaksAreSeen: a goroutine that waits and a file that is open are seen, until they end.
func TestLeaksAreSeen(t *testing.T) {
	before, end, ended := left(nil), make(chan struct{}), make(chan struct{})
	go func() { <-end; close(ended) }()
	f, err := os.Create(filepath.Join(t.TempDir(), "kept open"))
	if err != nil {
		t.Fatal(err)
	}
	found := fmt.Sprint(slices.Collect(maps.Values(left(before))))
	for _, what := range []string{"TestLeaksAreSeen.func1", "kept open"} {
		if !strings.Contains(found, what) {
			t.Errorf("found %s: want %s", found, what)
		}
	}
	close(end)
	<-ended
	f.Close()
}
