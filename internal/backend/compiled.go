package backend

import (
	"cmp"
	"fmt"
	"slices"

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
	Costs     []Cost  `json:"costs"` // of kernels that do the same, the largest first
}

// Cost is of kernels that do the same.
type Cost struct {
	hlo.Kernel         // one of them; Times are of all
	Floor      float64 `json:"floor_seconds"` // of all
}

// mostCosts is how many kinds of kernels are kept of a program.
const mostCosts = 40

// newCompiled measures an optimised program. No kernel is faster than its products at the chip's rate, nor than its reading
// and writing at the memory's, and a start of each takes time.
func newCompiled(name string, optimized []byte, d Device) (*Compiled, error) {
	m, err := hlo.Read(optimized)
	if err != nil {
		return nil, fmt.Errorf("backend: %s: %w", name, err)
	}
	c, same := &Compiled{Name: name}, map[hlo.Kernel]int{}
	for _, k := range m.Kernels(d.Devices()) {
		like := k
		like.Name, like.Times = "", 0
		i, known := same[like]
		if !known {
			i, same[like] = len(c.Costs), len(c.Costs)
			c.Costs = append(c.Costs, Cost{Kernel: k})
			c.Costs[i].Times = 0
		}
		c.Costs[i].Times += k.Times
		c.Costs[i].Floor += k.Times * d.floor(k)
		c.Kernels += k.Times
		c.Flops += k.Times * k.Flops
		c.Traffic += k.Times * k.Bytes
		c.Moved += k.Times * k.Moved
		c.Floor += k.Times * d.floor(k)
	}
	slices.SortStableFunc(c.Costs, func(a, b Cost) int { return cmp.Compare(b.Floor, a.Floor) })
	c.Costs = c.Costs[:min(mostCosts, len(c.Costs))]
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
