package rollout

import (
	"fmt"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/backend"
)

// poolBytes bounds the memory that a sampler keeps from one call to the next.
const poolBytes = 512 << 20

// shared is memory that the host writes and the engine reads.
type shared struct {
	buffer compute.Buffer // nil: none
	view   []float32
	dims   string
}

func (m shared) bytes() int { return 4 * len(m.view) }

// pool keeps memory for the next that needs as much of it: new memory costs a page fault every 4 KiB, which for a large
// cache is as long as several steps.
type pool struct {
	engine *backend.Engine
	free   []shared
	bytes  int
}

// get gives memory of some dimensions, with whatever stands in it: zeros, or what was written there before.
func (p *pool) get(dims []int) (shared, error) {
	name := fmt.Sprint(dims)
	for i, m := range p.free {
		if m.dims == name {
			p.free[i] = p.free[len(p.free)-1]
			p.free = p.free[:len(p.free)-1]
			p.bytes -= m.bytes()
			return m, nil
		}
	}
	b, view, err := p.engine.SharedFloat32(dims...)
	return shared{b, view, name}, err
}

// put takes memory back. Where that is too much, what was kept so far goes first.
func (p *pool) put(m shared) {
	switch {
	case m.buffer == nil:
		return
	case p.bytes+m.bytes() > poolBytes:
		p.empty()
	}
	if m.bytes() > poolBytes {
		backend.FinalizeAll(m.buffer)
		return
	}
	p.free = append(p.free, m)
	p.bytes += m.bytes()
}

// empty frees what is kept.
func (p *pool) empty() {
	for _, m := range p.free {
		backend.FinalizeAll(m.buffer)
	}
	p.free, p.bytes = nil, 0
}
