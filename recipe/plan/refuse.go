package plan

import (
	"cmp"
	"fmt"
	"slices"
)

// Refusal is an error for a run that does not fit into the memory or onto the disk, or for limits that nothing keeps;
// nil: it fits.
func (p *Plan) Refusal() error {
	if p.Choice != nil {
		return p.Choice.refusal()
	}
	if m := p.Memory; m.Peak > m.Available {
		return fmt.Errorf("the run does not fit into the memory: it takes %s at its peak, %s, and there are %s: "+
			"want a smaller model, lora.rank, train.gradient_checkpointing or fewer tokens at a time "+
			"(train.micro_batch_size, data.max_tokens)", size(m.Peak), m.largest(), size(m.Available))
	}
	if d := p.Disk; d.Free >= 0 && d.Most > d.Free {
		return fmt.Errorf("the run does not fit onto the disk: its folder takes up to %s, and %s are free: want a "+
			"smaller train.checkpoint_keep, or --out on another disk", size(d.Most), size(d.Free))
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
