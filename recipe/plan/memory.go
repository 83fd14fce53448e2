package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/train"
)

// Memory is what a run holds at its fullest, in bytes.
type Memory struct {
	Items     []Item `json:"items"`
	Peak      int    `json:"peak"`      // of the items
	Available int    `json:"available"` // to the process; of a GPU, on it
	Devices   int    `json:"devices"`   // on each of which this is: 1, or several GPUs
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

// forecastMemory adds up a run on this machine, or on each device that has memory of its own. A CPU's devices share the
// machine's.
func (p *Plan) forecastMemory(d *recipe.DryRun, in room) (m Memory) {
	m.Available, m.Devices = in.available, 1
	devices := d.Engine.Devices()
	if in.apart {
		m.Devices, devices = devices, 1
	}
	f := d.Learner.Footprint(d.Train.AdamW())
	f.Reference = d.ReferenceBytes
	h := f.Each()
	n := d.Engine.Needs(h.Sum(), h.Gradients, p.uses(always))
	m.add("program, engine, tokenizer and data", in.base)
	m.add("weights", devices*h.Weights)
	m.add("frozen weights", devices*h.Frozen)
	m.add("moments", devices*h.Moments)
	m.add("gradients", devices*h.Gradients)
	m.add("reference", devices*h.Reference)
	m.add("activations", devices*n.Programs/d.Engine.Devices())
	m.add("engine: compiled programs, memory not given back", n.Engine)
	if copied := 12 * f.Parameters; !in.apart && copied <= (m.Available-m.Peak)/train.CopyShare { // else it is not in this memory
		if p.checkpoints(d) == 1 { // after the last step
			copied -= n.Programs - n.Stays
		}
		m.add("copy for a checkpoint, beyond what steps leave", copied)
	}
	if s := d.Sampling; s != nil {
		m.add(fmt.Sprintf("cache of %d rows of %d tokens, beyond what steps leave", s.Rows, s.Tokens),
			devices*s.Bytes()/max(1, s.Devices)-devices*(n.Programs-n.Stays)/d.Engine.Devices())
		m.add("programs of sampling", s.Programs*d.Engine.StepBytes())
	}
	if once := d.ReferenceOnce; once > 0 {
		m.add("reference ahead of training, beyond what steps take", p.measuring(d, h, once, devices)+in.base-m.Peak)
	}
	return m
}

// checkpoints is how many the run writes: by steps, by minutes, and at the end.
func (p *Plan) checkpoints(d *recipe.DryRun) int {
	n := 1
	if every := d.Train.CheckpointEvery; every > 0 {
		n += (p.Steps - 1) / every
	}
	if m := d.Train.CheckpointMinutes; m > 0 {
		n += int(p.Time.Likely / 60 / m)
	}
	return min(n, max(1, p.Steps))
}

// measuring is what the engine holds on some devices while a reference of its own measures: there are no moments and
// gradients yet.
func (p *Plan) measuring(d *recipe.DryRun, h train.DeviceBytes, reference, devices int) int {
	held := devices * (h.Weights + h.Frozen + reference)
	n := d.Engine.Needs(held, 0, p.uses(func(s Shape) bool { return !s.Trains }))
	return held + devices*n.Programs/d.Engine.Devices() + n.Engine
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

// Err is an error for a run that does not fit into the memory, or where a rehearsal found faults.
func (p *Plan) Err() error {
	if d := p.Device; d != nil && d.Peak > p.Memory.Available {
		return fmt.Errorf("the run does not fit into the memory of %s: by its compiler it takes %s at its peak, and there are %s: "+
			"want %d rows at a time or fewer (train.micro_batch_size), lora.rank, train.gradient_checkpointing or more devices",
			d.Name, size(d.Peak), size(p.Memory.Available), d.Rows)
	}
	if m := p.Memory; p.Device == nil && m.Peak > m.Available {
		return fmt.Errorf("the run does not fit into the memory: it takes %s at its peak, %s, and there are %s: "+
			"want a smaller model, lora.rank, train.gradient_checkpointing or fewer tokens at a time "+
			"(train.micro_batch_size, data.max_tokens)", size(m.Peak), m.largest(), size(m.Available))
	}
	if p.Rehearsal != nil {
		return p.Rehearsal.Err()
	}
	return nil
}

// largest names the two largest items.
func (m *Memory) largest() string {
	items := slices.Clone(m.Items)
	slices.SortStableFunc(items, func(a, b Item) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return fmt.Sprintf("of which %s for %s and %s for %s", size(items[0].Bytes), items[0].Name, size(items[1].Bytes),
		items[1].Name)
}
