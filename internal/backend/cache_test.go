package backend_test

import (
	"errors"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// The cache compiles each key once, keeps the programs used last, and closes a program that it drops.
func TestCacheKeepsTheProgramsUsedLast(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		e.Wants.LiveGraphs = 2
		c := e.NewCache()
		defer c.Close()
		builds := 0
		get := func(key string) *backend.Program {
			t.Helper()
			return expect.Must(c.Program(key, func(g *graph.Graph) []*graph.Node { builds++; return scale(g) }))(t)
		}
		a := get("a")
		b := get("b")
		if get("a") != a || builds != 2 {
			t.Fatalf("%d builds for two keys, want 2", builds)
		}
		get("c") // drops b, which was used before a
		if get("a") != a || builds != 3 || c.Len() != 2 {
			t.Fatalf("a was dropped (%d builds, %d held), want b", builds, c.Len())
		}
		x, w := float32s(t, e, []float32{1, 2}, 2), float32s(t, e, []float32{3})
		defer backend.FinalizeAll(x, w)
		if _, err := b.Run([]compute.Buffer{x, w}, nil); err == nil {
			t.Error("the dropped program still runs: its memory was not freed")
		}
		out, err := a.Run([]compute.Buffer{x, w}, nil)
		if err != nil {
			t.Error(err)
		}
		backend.FinalizeAll(out...)
		if get("b") == b {
			t.Error("the cache gives a closed program")
		}
		c.Close()
		if _, err := a.Run([]compute.Buffer{x, w}, nil); err == nil || c.Len() != 0 {
			t.Errorf("after Close: %d held, error %v: want none held and every program closed", c.Len(), err)
		}
	})
}

// What XLA has freed goes back to the system, also below memory that is in use. A C library that is too
// old for one heap keeps up to 64 MB at the end of each thread's, so 400 MB are freed.
func TestCacheGivesMemoryBack(t *testing.T) {
	e := backendtest.XLA(t)
	c := e.NewCache()
	c.Close()
	before := backend.ResidentMemory()
	buffers, data := make([]compute.Buffer, 4000), make([]float32, 25_000)
	for i := range buffers {
		buffers[i] = float32s(t, e, data, len(data))
	}
	last := buffers[len(buffers)-1] // it holds the heap's end
	defer backend.FinalizeAll(last)
	backend.FinalizeAll(buffers[:len(buffers)-1]...)
	c.Close()
	if after := backend.ResidentMemory(); after > before+200<<20 {
		t.Errorf("400 MB of buffers, freed, left %d MB behind", (after-before)>>20)
	}
}

func TestCacheReturnsErrors(t *testing.T) {
	c := backendtest.Go(t).NewCache()
	cause := errors.New("cause")
	for range 2 {
		if _, err := c.Program("bad", func(*graph.Graph) []*graph.Node { panic(cause) }); !errors.Is(err, cause) ||
			c.Len() != 0 {
			t.Errorf("got %v with %d held, want the cause and none held", err, c.Len())
		}
	}
}
