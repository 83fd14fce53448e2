package backend

import (
	"fmt"

	"github.com/posttrain/posttrain/internal/hlo"
)

// Compiled is what a compiler made of a program for a device that is not there: bytes, operations and seconds of one of
// the devices on which it would run.
type Compiled struct {
	Name      string  `json:"name"`
	Runs      int     `json:"runs"`            // so far
	Seconds   float64 `json:"compile_seconds"` // that compiling it took here
	Arguments int     `json:"argument_bytes"`
	Results   int     `json:"result_bytes"`
	Aliased   int     `json:"aliased_bytes"` // of the results, which lie in the memory of arguments
	Temporary int     `json:"temporary_bytes"`
	Kernels   float64 `json:"kernels"`
	Flops     float64 `json:"flops"`       // of products: two for each multiplication
	Traffic   float64 `json:"bytes"`       // read and written
	Moved     float64 `json:"moved_bytes"` // sent to other devices
	Floor     float64 `json:"floor_seconds"`

	work []hlo.Kernel
	chip Chip
}

// Peak is the device's memory while the program runs, arguments included.
func (c *Compiled) Peak() int { return c.Arguments + c.Results - c.Aliased + c.Temporary }

// newCompiled measures an optimised program. No kernel is faster than its products at the chip's rate, nor than its reading
// and writing at the memory's, and a start of each takes time.
func newCompiled(name string, optimized []byte, d Device) (*Compiled, error) {
	m, err := hlo.Read(optimized)
	if err != nil {
		return nil, fmt.Errorf("backend: %s: %w", name, err)
	}
	c := &Compiled{Name: name, work: m.Kernels(d.Devices()), chip: d.Chip}
	for _, k := range c.work {
		c.Kernels += k.Times
		c.Flops += k.Times * k.Flops
		c.Traffic += k.Times * k.Bytes
		c.Moved += k.Times * k.Moved
		c.Floor += k.Times * d.floor(k)
	}
	return c, nil
}

// floor is the least time that a kernel takes, in seconds.
func (c Chip) floor(k hlo.Kernel) float64 {
	rate := c.Flops32
	if k.Short {
		rate = c.Flops16
	}
	return max(k.Flops/rate, k.Bytes/c.Bandwidth, k.Moved/c.Link) + c.Launch
}
