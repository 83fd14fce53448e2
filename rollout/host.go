package rollout

import (
	"slices"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/model"
)

// store holds the keys and values of a wave's rows.
type store interface {
	// open makes room for a layout.
	open(l layout) error
	// fill takes the keys and values of some prompts from a prefill: row i of them is the i-th of prompts.
	fill(keysAndValues []compute.Buffer, shape model.PrefillShape, prompts []int) error
	// inputs are the cache's inputs of a step.
	inputs() []compute.Buffer
	// write takes what a step gives, which is the store's from then on, before its tokens are added to the answers.
	write(keysAndValues []compute.Buffer) error
	// move changes the layout.
	move(to layout) error
	close()
}

// part is keys and values of some rows in memory that the host and the engine share: per layer keys [prompts, kv,
// samples, D, slots] and values [prompts, kv, samples, slots, D].
type part struct {
	prompts, samples, slots int
	kv, d                   int
	memory                  []shared    // keys and values of every layer; none of a part that is only read
	keys, values            [][]float32 // [Layers]
}

// hostStore is a cache that the host writes.
type hostStore struct {
	pool           *pool
	config         *model.Config
	layout         layout
	prefix, suffix part
}

func (h *hostStore) open(l layout) error {
	h.layout = l
	h.prefix, h.suffix = h.parts(l)
	for range h.config.Layers {
		if err := h.add(); err != nil {
			return err
		}
	}
	return nil
}

// parts are the parts of a layout, without memory.
func (h *hostStore) parts(l layout) (prefix, suffix part) {
	s, c := l.shape, h.config
	return part{prompts: s.Prompts, samples: 1, slots: s.Prefix, kv: c.KVHeads, d: c.HeadDim},
		part{prompts: s.Prompts, samples: s.Samples, slots: s.Suffix, kv: c.KVHeads, d: c.HeadDim}
}

// add makes room for one layer more. What nothing was written to is zero or of another wave: nobody sees it, but it must
// be a number.
func (h *hostStore) add() error {
	p, s := &h.prefix, &h.suffix
	if p.slots > 0 {
		if err := p.add(h.pool, []int{p.prompts, p.kv, p.d, p.slots}, []int{p.prompts, p.kv, p.slots, p.d}); err != nil {
			return err
		}
	}
	return s.add(h.pool, []int{s.prompts, s.kv, s.samples, s.d, s.slots}, []int{s.prompts, s.kv, s.samples, s.slots, s.d})
}

func (p *part) add(from *pool, keys, values []int) error {
	for _, dims := range [][]int{keys, values} {
		m, err := from.get(dims)
		if err != nil {
			return err
		}
		p.memory = append(p.memory, m)
	}
	n := len(p.memory)
	p.keys, p.values = append(p.keys, p.memory[n-2].view), append(p.values, p.memory[n-1].view)
	return nil
}

// free gives a layer's memory back.
func (p *part) free(to *pool, layer int) {
	for i := 2 * layer; i < min(2*layer+2, len(p.memory)); i++ {
		to.put(p.memory[i])
		p.memory[i] = shared{}
	}
}

func (h *hostStore) close() {
	for layer := range h.config.Layers {
		h.prefix.free(h.pool, layer)
		h.suffix.free(h.pool, layer)
	}
}

func (h *hostStore) inputs() (out []compute.Buffer) {
	for i := range h.config.Layers {
		if h.prefix.slots > 0 {
			out = append(out, h.prefix.memory[2*i].buffer, h.prefix.memory[2*i+1].buffer)
		}
		out = append(out, h.suffix.memory[2*i].buffer, h.suffix.memory[2*i+1].buffer)
	}
	return out
}

// head is the place of a row's head among all heads of the part.
func (p *part) head(row, head int) int {
	return (row/p.samples*p.kv+head)*p.samples + row%p.samples
}

// copyRow copies n slots of a row of another part, from slot from on, to slot at on.
func (p *part) copyRow(layer, row, at int, from *part, fromRow, fromAt, n int) {
	for head := range p.kv {
		to, source := p.head(row, head)*p.d*p.slots, from.head(fromRow, head)*p.d*from.slots
		for d := range p.d {
			copy(p.keys[layer][to+d*p.slots+at:][:n], from.keys[layer][source+d*from.slots+fromAt:][:n])
		}
		copy(p.values[layer][to+at*p.d:][:n*p.d], from.values[layer][source+fromAt*p.d:][:n*p.d])
	}
}

func (h *hostStore) fill(keysAndValues []compute.Buffer, shape model.PrefillShape, prompts []int) error {
	from := part{prompts: shape.Prompts, samples: 1, slots: shape.Tokens, kv: h.config.KVHeads, d: h.config.HeadDim}
	if err := from.read(keysAndValues); err != nil {
		return err
	}
	h.forRows(h.layout, func(layer int, s *seat, first bool) {
		i, n := slices.Index(prompts, s.prompt), len(s.request.Prompt)
		switch {
		case i < 0:
		case h.prefix.slots == 0:
			h.suffix.copyRow(layer, s.row, 0, &from, i, 0, n)
		case first:
			h.prefix.copyRow(layer, s.row/h.suffix.samples, 0, &from, i, 0, n)
		}
	})
	return nil
}

// read looks at keys and values that a program gave.
func (p *part) read(keysAndValues []compute.Buffer) error {
	for i := 0; i < len(keysAndValues); i += 2 {
		k, err := backend.Floats(keysAndValues[i])
		if err != nil {
			return err
		}
		v, err := backend.Floats(keysAndValues[i+1])
		if err != nil {
			return err
		}
		p.keys, p.values = append(p.keys, k), append(p.values, v)
	}
	return nil
}

// forRows calls f for every layer and row of a layout on all cores; first tells that a row is its prompt's first.
func (h *hostStore) forRows(l layout, f func(layer int, s *seat, first bool)) {
	parallel(h.config.Layers, func(layer int) { forSeats(l, func(s *seat, first bool) { f(layer, s, first) }) })
}

func forSeats(l layout, f func(s *seat, first bool)) {
	for row, s := range l.seats {
		if s != nil {
			f(s, row%l.shape.Samples == 0)
		}
	}
}

func (h *hostStore) write(keysAndValues []compute.Buffer) error {
	defer backend.FinalizeAll(keysAndValues...)
	news := part{prompts: h.suffix.prompts, samples: h.suffix.samples, slots: 1, kv: h.config.KVHeads, d: h.config.HeadDim}
	if err := news.read(keysAndValues); err != nil {
		return err
	}
	h.forRows(h.layout, func(layer int, s *seat, _ bool) {
		h.suffix.put(layer, s.row, h.layout.own(s), &news)
	})
	return nil
}

// put copies the one slot of a row of another part.
func (p *part) put(layer, row, at int, from *part) {
	keys, values := p.keys[layer], p.values[layer]
	for head := range p.kv {
		place := p.head(row, head)
		to, source := place*p.d*p.slots, place*p.d
		for d, k := range from.keys[layer][source : source+p.d] {
			keys[to+d*p.slots+at] = k
		}
		copy(values[to+at*p.d:][:p.d], from.values[layer][source:])
	}
}

// move copies one layer after the other, so that two caches never stand in for one.
func (h *hostStore) move(to layout) error {
	next := &hostStore{pool: h.pool, config: h.config, layout: to}
	next.prefix, next.suffix = next.parts(to)
	for layer := range h.config.Layers {
		if err := next.add(); err != nil {
			next.close()
			return err
		}
		parallel(len(to.seats), func(row int) {
			if s := to.seats[row]; s != nil {
				next.take(layer, row, h, s)
			}
		})
		h.prefix.free(h.pool, layer)
		h.suffix.free(h.pool, layer)
	}
	*h = *next
	return nil
}

// take copies a row from the store where it stands so far.
func (h *hostStore) take(layer, row int, from *hostStore, s *seat) {
	prompt := len(s.request.Prompt)
	switch shared := from.prefix.slots > 0; {
	case !shared:
		h.suffix.copyRow(layer, row, 0, &from.suffix, s.row, 0, s.cached())
	case h.prefix.slots > 0:
		if row%h.suffix.samples == 0 {
			h.prefix.copyRow(layer, row/h.suffix.samples, 0, &from.prefix, s.row/from.suffix.samples, 0, prompt)
		}
		h.suffix.copyRow(layer, row, 0, &from.suffix, s.row, 0, s.suffix())
	default:
		h.suffix.copyRow(layer, row, 0, &from.prefix, s.row/from.suffix.samples, 0, prompt)
		h.suffix.copyRow(layer, row, prompt, &from.suffix, s.row, 0, s.suffix())
	}
}
