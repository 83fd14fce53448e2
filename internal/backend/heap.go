package backend

import (
	"runtime/metrics"
	"sync"
)

// heapBound bounds what the C library keeps of freed memory. Blocks of many sizes, such as programs of several shapes
// need, leave holes between them that the next block does not fit into, so that the heap would grow from run to run.
type heapBound struct {
	mu    sync.Mutex
	need  uint64 // the most that was kept in a round
	next  string // the program that ends the round
	round int    // checks that are left of it at most; 0: it has ended
}

// theHeap is the process's.
var theHeap heapBound

// roundChecks are more than the programs of a training step.
const roundChecks = 100

// check trims the heap before a program runs that is not the last one. It trims if half more is kept than programs
// need, or if memory is short: a program that does not fit into what is kept takes as much again. What they need shows in
// the round after a trim, until the same program's turn.
func (h *heapBound) check(program string, kept uint64, short bool, trim func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.round > 0 {
		h.need = max(h.need, kept)
		if h.round--; program == h.next {
			h.round = 0
		}
	}
	if kept > h.need+h.need/2+spareHeap || short && kept > spareHeap {
		trim()
		h.next, h.round = program, roundChecks
	}
}

// spareHeap is kept in any case.
const spareHeap = 64 << 20

// keptHeap is what of the process's memory neither engines nor Go use, in bytes; 0: unknown.
func keptHeap() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	ofGo := less(samples[0].Value.Uint64(), samples[1].Value.Uint64())
	return less(less(ResidentMemory(), usedHeap()), ofGo)
}

// less is a - b, at least 0.
func less(a, b uint64) uint64 { return a - min(a, b) }
