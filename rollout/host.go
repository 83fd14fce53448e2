package rollout

import (
	"slices"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/model"
)

// store holds the keys and values of a batch's rows.
type store interface {
	// open allocates a layout.
	open(l layout) error
	// fill takes the keys and values of sequences from a prefill.
	fill(keysAndValues []compute.Buffer, c promptGroup, sequences []*sequence) error
	// move changes the layout. Seats that are new in it keep what their rows hold.
	move(to layout) error
	close()
}

// part holds keys and values of rows, per layer: keys [prompts, kv, samples, D, slots] and values [prompts, kv,
// samples, slots, D].
type part struct {
	prompts, samples, slots int
	kv, d                   int
	memory                  []sharedMemory // keys and values of every layer; nil if the part is only read
	keys, values            [][]float32    // [layers]
}

// hostStore is a cache that the host writes.
type hostStore struct {
	engine         *backend.Engine
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

// parts returns a layout's parts without memory.
func (h *hostStore) parts(l layout) (prefix, suffix part) {
	s, c := l.shape, h.config
	return part{prompts: s.Prompts, samples: 1, slots: s.Prefix, kv: c.KVHeads, d: c.HeadDim},
		part{prompts: s.Prompts, samples: s.Samples, slots: s.Suffix, kv: c.KVHeads, d: c.HeadDim}
}

// add allocates another layer. Slots not written yet hold zeros or numbers of another batch: they are masked, but must
// be finite.
func (h *hostStore) add() error {
	p, s := &h.prefix, &h.suffix
	if p.slots > 0 {
		keys, values := []int{p.prompts, p.kv, p.d, p.slots}, []int{p.prompts, p.kv, p.slots, p.d}
		if err := p.add(h.engine, keys, values); err != nil {
			return err
		}
	}
	keys, values := []int{s.prompts, s.kv, s.samples, s.d, s.slots}, []int{s.prompts, s.kv, s.samples, s.slots, s.d}
	return s.add(h.engine, keys, values)
}

func (p *part) add(e *backend.Engine, keys, values []int) error {
	for _, dims := range [][]int{keys, values} {
		b, view, err := e.SharedFloat32(dims...)
		if err != nil {
			return err
		}
		p.memory = append(p.memory, sharedMemory{b, view})
	}
	n := len(p.memory)
	p.keys, p.values = append(p.keys, p.memory[n-2].view), append(p.values, p.memory[n-1].view)
	return nil
}

// free frees a layer's memory.
func (p *part) free(layer int) {
	for i := 2 * layer; i < min(2*layer+2, len(p.memory)); i++ {
		backend.FinalizeAll(p.memory[i].buffer)
		p.memory[i] = sharedMemory{}
	}
}

func (h *hostStore) close() {
	for layer := range h.config.Layers {
		h.prefix.free(layer)
		h.suffix.free(layer)
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

// head returns the index of a row's head among all heads of the part.
func (p *part) head(row, head int) int {
	return (row/p.samples*p.kv+head)*p.samples + row%p.samples
}

// copyRow copies the first n slots of another part's row to at.
func (p *part) copyRow(layer, row, at int, from *part, fromRow, n int) {
	for head := range p.kv {
		to, source := p.head(row, head)*p.d*p.slots, from.head(fromRow, head)*p.d*from.slots
		for d := range p.d {
			copy(p.keys[layer][to+d*p.slots+at:][:n], from.keys[layer][source+d*from.slots:][:n])
		}
		copy(p.values[layer][to+at*p.d:][:n*p.d], from.values[layer][source:][:n*p.d])
	}
}

func (h *hostStore) fill(keysAndValues []compute.Buffer, c promptGroup, sequences []*sequence) error {
	from := part{prompts: c.shape.Prompts, samples: 1, slots: c.shape.Tokens, kv: h.config.KVHeads, d: h.config.HeadDim}
	if err := from.read(keysAndValues); err != nil {
		return err
	}
	rows := layout{shape: h.layout.shape, sequences: make([]*sequence, len(h.layout.sequences))}
	for _, s := range sequences {
		rows.sequences[s.row] = s
	}
	h.forRows(rows, func(layer int, s *sequence, first bool) {
		i, n := slices.Index(c.prompts, s.prompt), len(s.tokens)
		if h.prefix.slots == 0 {
			h.suffix.copyRow(layer, s.row, 0, &from, i, n)
		} else if first {
			h.prefix.copyRow(layer, s.row/h.suffix.samples, 0, &from, i, n)
		}
	})
	return nil
}

// read views a program's keys and values.
func (p *part) read(keysAndValues []compute.Buffer) error {
	for i, b := range keysAndValues {
		view, err := backend.Floats(b)
		if err != nil {
			return err
		}
		if i%2 == 0 {
			p.keys = append(p.keys, view)
		} else {
			p.values = append(p.values, view)
		}
	}
	return nil
}

// forRows calls f for every layer and row of a layout on all cores; first marks a prompt's first row.
func (h *hostStore) forRows(l layout, f func(layer int, s *sequence, first bool)) {
	float.Parallel(h.config.Layers, func(layer int) {
		for row, s := range l.sequences {
			if s != nil {
				f(layer, s, row%l.shape.Samples == 0)
			}
		}
	})
}

func (h *hostStore) write(keysAndValues []compute.Buffer) error {
	defer backend.FinalizeAll(keysAndValues...)
	s := h.suffix
	from := part{prompts: s.prompts, samples: s.samples, slots: 1, kv: s.kv, d: s.d}
	if err := from.read(keysAndValues); err != nil {
		return err
	}
	h.forRows(h.layout, func(layer int, s *sequence, _ bool) {
		h.suffix.put(layer, s.row, h.layout.ownSlots(s), &from)
	})
	return nil
}

// put copies the only slot of another part's row.
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

// move copies one layer after the other, so that two whole caches never exist at once.
func (h *hostStore) move(to layout) error {
	next := &hostStore{engine: h.engine, config: h.config, layout: to}
	next.prefix, next.suffix = next.parts(to)
	for layer := range h.config.Layers {
		if err := next.add(); err != nil {
			next.close()
			return err
		}
		float.Parallel(len(to.sequences), func(row int) {
			if s := to.sequences[row]; s != nil && s.read {
				next.take(layer, row, h, s)
			}
		})
		h.prefix.free(layer)
		h.suffix.free(layer)
	}
	*h = *next
	return nil
}

// take copies a row from its present store.
func (h *hostStore) take(layer, row int, from *hostStore, s *sequence) {
	prompt := len(s.request.Prompt)
	switch shared := from.prefix.slots > 0; {
	case !shared:
		h.suffix.copyRow(layer, row, 0, &from.suffix, s.row, s.cachedTokens())
	case h.prefix.slots > 0:
		if row%h.suffix.samples == 0 {
			h.prefix.copyRow(layer, row/h.suffix.samples, 0, &from.prefix, s.row/from.suffix.samples, prompt)
		}
		h.suffix.copyRow(layer, row, 0, &from.suffix, s.row, s.suffix())
	default:
		h.suffix.copyRow(layer, row, 0, &from.prefix, s.row/from.suffix.samples, prompt)
		h.suffix.copyRow(layer, row, prompt, &from.suffix, s.row, s.suffix())
	}
}

// sharedMemory is written by the host and read by the engine.
type sharedMemory struct {
	buffer compute.Buffer
	view   []float32
}
