package backend

import (
	"fmt"
	"testing"
)

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
