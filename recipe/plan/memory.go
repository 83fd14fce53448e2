package plan

import (
	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/recipe"
)

// Memory is what a run holds at its fullest, in bytes.
type Memory struct {
	Items     []Item `json:"items"`
	Peak      int    `json:"peak"`      // of the items
	Available int    `json:"available"` // to the process; of a GPU, on it
}

// Item is a part of a sum.
type Item struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
}

func (m *Memory) add(name string, bytes int) {
	if bytes > 0 {
		m.Items, m.Peak = append(m.Items, Item{name, bytes}), m.Peak+bytes
	}
}

// memory adds up a run on this machine; base is what the process has before anything of the model's size.
func (p *Plan) memory(d *recipe.Draft, base int) (m Memory) {
	f := d.Learner.Footprint(d.Train.Rule())
	m.Available = int(min(d.Engine.Memory(), backend.FreeMemory()+uint64(base)))
	m.add("program, engine, tokenizer and data", base)
	m.add("weights", f.Weights*f.Parameters)
	m.add("frozen weights", f.FrozenBytes)
	m.add("moments", f.Moments*f.Parameters)
	m.add("gradients", f.Gradients*f.Parameters)
	m.add("activations", p.activations(d))
	m.add("copy for a checkpoint", 12*f.Parameters)
	return m
}

// activations is the memory of the programs: that of the largest, or of all that the engine keeps beside it.
func (p *Plan) activations(d *recipe.Draft) (bytes int) {
	kept := 1
	if d.Engine.Wants.HoldsMemory {
		kept = d.Engine.Wants.LiveGraphs
	}
	for i, s := range p.Shapes {
		if i < kept {
			bytes += s.Bytes
		}
	}
	return bytes
}
