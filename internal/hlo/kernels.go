package hlo

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Kernel is a piece of work of the device, as often as it runs.
type Kernel struct {
	Name  string  `json:"name"`
	Kind  string  `json:"kind"`                  // the opcode, or the name of the library's function
	Times float64 `json:"times"`                 // in a run of the program
	Flops float64 `json:"flops"`                 // of its products, once: two for each multiplication
	Bytes float64 `json:"bytes"`                 // that it reads and writes, once
	Moved float64 `json:"moved_bytes,omitempty"` // bytes that a device sends to the others, once
	Short bool    `json:"short,omitempty"`       // its products are of values of 16 bits
}

// free are opcodes that are no work of the device.
var free = []string{"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id",
	"add-dependency", "opt-barrier", "domain"}

// moving are opcodes that move values between devices.
var moving = []string{"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"}

// Kernels lists the work of the program on one device of a number of them. Of branches the first counts.
func (m *Module) Kernels(devices int) []Kernel {
	var all []Kernel
	m.walk(m.computations[m.entry], 1, devices, &all)
	return all
}

// mostKernels bounds the list, so that a damaged program comes to an end.
const mostKernels = 1 << 20

func (m *Module) walk(c *computation, times float64, devices int, all *[]Kernel) {
	for _, i := range c.instructions {
		if len(*all) == mostKernels {
			return
		}
		opcode := strings.TrimSuffix(i.opcode, "-start")
		switch {
		case slices.Contains(free, opcode), strings.HasSuffix(opcode, "-done"), strings.HasSuffix(opcode, "-update"):
		case opcode == "while" && len(i.called) > 0:
			m.walk(m.body(i), times*i.trips(), devices, all)
		case (opcode == "call" || opcode == "conditional" || opcode == "async") && len(i.called) > 0:
			m.walk(m.computations[i.called[0]], times, devices, all)
		default:
			k := Kernel{Name: i.name, Kind: opcode, Times: times}
			if i.target != "" {
				k.Kind = i.target
			}
			if slices.Contains(moving, opcode) {
				k.Moved = i.moved(c, devices)
			}
			m.measure(&k, c, i)
			*all = append(*all, k)
		}
	}
}

// body is the computation of a loop that runs most: its condition has one instruction or few.
func (m *Module) body(i *instruction) (body *computation) {
	for _, id := range i.called {
		if c := m.computations[id]; body == nil || len(c.instructions) > len(body.instructions) {
			body = c
		}
	}
	return body
}

// trips is how often the body of a loop runs; 1 where the compiler does not know.
func (i *instruction) trips() float64 {
	var config struct {
		Known struct{ N string } `json:"known_trip_count"`
	}
	_ = json.Unmarshal(i.config, &config)
	if n, err := strconv.ParseFloat(config.Known.N, 64); err == nil {
		return n
	}
	return 1
}

// moved is what a device sends: of a ring of n, each value once but for an n-th; of a sum twice.
func (i *instruction) moved(c *computation, n int) float64 {
	largest := i.shape.bytes()
	if len(i.shape.parts) > 0 { // of a start: operands and results
		largest = i.shape.parts[len(i.shape.parts)-1].bytes()
	}
	for _, o := range i.operands {
		largest = max(largest, c.byID[o].shape.bytes())
	}
	share := float64(n-1) / float64(n)
	if strings.HasPrefix(i.opcode, "all-reduce") {
		share *= 2
	}
	return share * largest
}

// measure fills in operations and bytes.
func (m *Module) measure(k *Kernel, c *computation, i *instruction) {
	if i.opcode == "fusion" && len(i.called) > 0 {
		m.computations[i.called[0]].measureFused(k)
		return
	}
	seen := map[int64]bool{}
	for _, o := range i.operands {
		if !seen[o] {
			seen[o] = true
			k.Bytes += c.byID[o].shape.bytes()
		}
	}
	out := i.shape
	if i.target != "" && len(out.parts) > 0 {
		out = out.parts[0] // the others are a library's workspace
	}
	switch i.opcode {
	case "dynamic-slice", "slice", "gather", "broadcast", "iota":
		k.Bytes = 2 * out.bytes()
	case "dynamic-update-slice":
		k.Bytes = 2 * c.byID[i.operands[1]].shape.bytes()
	default:
		k.Bytes += out.bytes()
	}
	if i.opcode == "dot" {
		k.addProduct(out, c.byID[i.operands[0]].shape, i.contracted)
	} else if strings.HasPrefix(i.target, "__cublas") && len(i.operands) > 0 {
		k.addProduct(out, c.byID[i.operands[0]].shape, i.gemmAxes())
	}
}

// addProduct counts a product whose left side is summed over some axes.
func (k *Kernel) addProduct(out, left shape, axes []int64) {
	n := 2 * out.elements()
	for _, a := range axes {
		if int(a) < len(left.dims) {
			n *= float64(left.dims[a])
		}
	}
	k.Flops, k.Short = k.Flops+n, left.element == typeBF16 || left.element == typeF16
}

// gemmAxes are the axes of the left side over which a call of cuBLAS sums.
func (i *instruction) gemmAxes() (axes []int64) {
	var config struct {
		Gemm struct {
			Dot struct {
				Left []json.Number `json:"lhs_contracting_dimensions"`
			} `json:"dot_dimension_numbers"`
		} `json:"gemm_backend_config"`
	}
	decoder := json.NewDecoder(strings.NewReader(string(i.config)))
	decoder.UseNumber()
	_ = decoder.Decode(&config)
	for _, n := range config.Gemm.Dot.Left {
		if a, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
			axes = append(axes, a)
		}
	}
	return axes
}

// measureFused counts what a fusion reads, writes and multiplies. Of an array that it takes slices of it reads the slices;
// of one that it updates in place it writes the update.
func (c *computation) measureFused(k *Kernel) {
	readers := map[int64][]*instruction{}
	for _, i := range c.instructions {
		for _, o := range i.operands {
			readers[o] = append(readers[o], i)
		}
		if i.opcode == "dot" {
			k.addProduct(i.shape, c.byID[i.operands[0]].shape, i.contracted)
		}
	}
	for _, i := range c.instructions {
		if i.opcode == "parameter" {
			k.Bytes += c.read(i, readers)
		}
	}
	k.Bytes += c.written(c.byID[c.root])
}

// read is what a fusion reads of a value.
func (c *computation) read(i *instruction, readers map[int64][]*instruction) (bytes float64) {
	whole := i.shape.bytes()
	for _, r := range readers[i.id] {
		switch first := r.operands[0] == i.id; {
		case first && (r.opcode == "dynamic-slice" || r.opcode == "slice" || r.opcode == "gather"):
			bytes += r.shape.bytes()
		case first && r.opcode == "dynamic-update-slice":
		case r.opcode == "bitcast":
			bytes += c.read(r, readers)
		default:
			return whole
		}
	}
	return min(bytes, whole)
}

// written is what a fusion writes as a root.
func (c *computation) written(i *instruction) (bytes float64) {
	switch {
	case i == nil:
	case i.opcode == "tuple":
		for _, o := range i.operands {
			if part := c.byID[o]; part.opcode != "tuple" {
				bytes += c.written(part)
			}
		}
	case i.opcode == "bitcast":
		bytes = c.written(c.byID[i.operands[0]])
	case i.opcode == "dynamic-update-slice":
		bytes = c.byID[i.operands[1]].shape.bytes()
	default:
		bytes = i.shape.bytes()
	}
	return bytes
}
