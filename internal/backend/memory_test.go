package backend

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
)

// Where memory is short, a cache closes programs before it compiles another, those not used for longest first.
func TestCacheWithLittleMemory(t *testing.T) {
	eachEngine(t, func(t *testing.T, e *Engine) {
		e.Wants.LiveGraphs = 4
		c := e.NewCache()
		defer c.Close()
		c.short = func() bool { return len(c.recent) > 1 }
		trims := 0
		c.trim = func() { trims++ }
		for i, key := range []string{"a", "b", "a", "c", "a"} { // c closes b
			if _, err := c.Program(key, func(g *graph.Graph) []*graph.Node {
				return []*graph.Node{graph.Const(g, float32(i))}
			}); err != nil {
				t.Fatal(err)
			}
		}
		if c.Len() != 2 || c.programs["a"] == nil || c.programs["c"] == nil {
			t.Errorf("%v are held, want c and a", c.recent)
		}
		if c.Close(); trims != 2*3+1 {
			t.Errorf("memory was given back %d times, want twice for each program, and at the end", trims)
		}
	})
}

// Memory is short where little is free and this process has much: another program's need closes nothing here.
func TestShortOfMemory(t *testing.T) {
	for _, c := range []struct {
		free, own, host uint64
		want            bool
	}{
		{free: 8, own: 15, host: 24, want: false},
		{free: 7, own: 15, host: 24, want: true},
		{free: 1, own: 2, host: 24, want: false},
		{free: 0, own: 0, host: 24, want: false},
	} {
		if got := shortOfMemory(c.free, c.own, c.host); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	if own := ResidentMemory(); runtime.GOOS == "linux" && (own < 1<<20 || own > HostMemory()) {
		t.Errorf("this process has %d bytes", own)
	}
}

// A run has the whole memory of a GPU, whatever the machine has free; other engines have what is free and their own.
func TestRoom(t *testing.T) {
	const gpu = 1 << 50
	if e := (&Engine{memory: gpu}); e.Room(0) != gpu || !e.OwnsMemory() {
		t.Errorf("%d bytes, want %d", e.Room(0), uint64(gpu))
	}
	e := &Engine{}
	if room := e.Room(ResidentMemory()); room == 0 || room > HostMemory() || e.OwnsMemory() {
		t.Errorf("%d bytes of %d", room, HostMemory())
	}
}

// The heap is trimmed where it keeps half more than in a round after an earlier trim, and where memory is short.
func TestHeapBound(t *testing.T) {
	var h heapBound
	const mb = 1 << 20
	for i, c := range []struct {
		program     string
		kept        uint64 // MB
		short, trim bool
	}{
		{"norm", 60, false, false}, {"norm", 1000, false, true}, // the round begins
		{"adamw", 0, false, false}, {"norm", 1000, false, false}, // and has shown that 1000 are needed
		{"adamw", 1500, false, false}, {"norm", 1600, false, true},
		{"adamw", 10, false, false}, {"norm", 1000, false, false}, {"adamw", 1600, false, true},
		{"norm", 60, true, false}, {"adamw", 70, true, true},
	} {
		trimmed := false
		h.check(c.program, c.kept*mb, c.short, func() { trimmed = true })
		if trimmed != c.trim {
			t.Errorf("check %d, %d MB: trimmed %v, want %v", i, c.kept, trimmed, c.trim)
		}
	}
}

// A program that does not come again ends no round.
func TestHeapBoundEndsARound(t *testing.T) {
	var h heapBound
	trims := 0
	for i := range uint64(1000) {
		h.check(fmt.Sprint(i), i<<30, false, func() { trims++ })
	}
	if trims < 3 || trims > 10 {
		t.Errorf("%d trims of a heap that grows in 1000 steps", trims)
	}
}
