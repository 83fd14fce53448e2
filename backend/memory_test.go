package backend

import (
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
		if c.Close(); trims != 3+1 {
			t.Errorf("memory was given back %d times, want once for each program, and at the end", trims)
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
