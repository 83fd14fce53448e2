package plan

import (
	"fmt"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/train"
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

// memory adds up a run on this machine.
func (p *Plan) memory(d *recipe.Draft, b *bench) (m Memory) {
	f := d.Learner.Footprint(d.Train.Rule())
	m.Available = b.available
	m.add("program, engine, tokenizer and data", b.base)
	m.add("weights", f.Weights*f.Parameters)
	m.add("frozen weights", f.FrozenBytes)
	m.add("moments", f.Moments*f.Parameters)
	m.add("gradients", f.Gradients*f.Parameters)
	m.add("reference", d.ReferenceBytes*f.Parameters)
	f.Reference = d.ReferenceBytes
	n := d.Engine.Needs(f.Bytes()*f.Parameters+f.FrozenBytes, f.Gradients*f.Parameters, p.uses(always))
	m.add("activations", n.Programs)
	m.add("engine: compiled programs, memory not given back", n.Engine)
	if copied := 12 * f.Parameters; copied <= (m.Available-m.Peak)/2 { // else steps wait, and nothing is copied
		if p.checkpoints(d) == 1 { // after the last step
			copied -= n.Programs - n.Stays
		}
		m.add("copy for a checkpoint, beyond what steps leave", copied)
	}
	if s := d.Sampling; s != nil {
		m.add(fmt.Sprintf("cache of %d rows of %d tokens", s.Rows, s.Tokens), s.Bytes())
		m.add("programs of sampling", s.Programs*d.Engine.StepBytes())
	}
	if once := d.ReferenceOnce; once > 0 {
		m.add("reference ahead of training, beyond what steps take", p.measuring(d, f, once)+b.base-m.Peak)
	}
	return m
}

// measuring is what the engine holds while a reference of its own measures: there are no moments and gradients yet.
func (p *Plan) measuring(d *recipe.Draft, f train.Footprint, reference int) int {
	held := f.Weights*f.Parameters + f.FrozenBytes + reference
	n := d.Engine.Needs(held, 0, p.uses(func(s Shape) bool { return !s.Trains }))
	return held + n.Programs + n.Engine
}

func always(Shape) bool { return true }

// uses are the programs of some shapes.
func (p *Plan) uses(of func(Shape) bool) (uses []backend.Use) {
	for _, s := range p.Shapes {
		if of(s) {
			uses = append(uses, backend.Use{Sketch: s.Sketch, Runs: s.Batches})
		}
	}
	return uses
}
