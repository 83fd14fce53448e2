package model

import (
	"math"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/float"
)

// NF4 keeps the frozen weights of linear layers in 4 bits, as bitsandbytes lays them out: codes, which a table maps to
// numbers, and a scale for 64 weights in a row of all, their largest absolute weight (Dettmers et al. 2023, QLoRA).
// Embedding, head, norms and biases stay as they are.
const NF4 = "nf4"

const nf4Block = 64 // weights that share a scale

// nf4Numbers are the 16 numbers of NF4: quantiles of the normal distribution, scaled to -1 to 1.
var nf4Numbers = [16]float32{-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
	-0.18477343022823334, -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
	0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1}

// Quantized is a matrix in 4 bits.
type Quantized struct {
	Codes  []uint8   // [blocks, 32], two weights a byte, the first in the high bits; the last block is filled with zeros
	Scales []float32 // [blocks]
}

// NewQuantized has room for n weights in 4 bits, all zero.
func NewQuantized(n int) Quantized {
	blocks := nf4Blocks(n)
	return Quantized{make([]uint8, blocks*nf4Block/2), make([]float32, blocks)}
}

// Quantize gives the weights of a matrix in 4 bits.
func Quantize(data []float32) Quantized {
	q := NewQuantized(len(data))
	float.Parallel(len(q.Scales), func(b int) {
		from := data[b*nf4Block : min((b+1)*nf4Block, len(data))]
		for _, x := range from {
			q.Scales[b] = max(q.Scales[b], float32(math.Abs(float64(x))))
		}
		scale := func(x float32) float32 { return x * (1 / max(q.Scales[b], 1e-38)) }
		if len(from) < nf4Block { // bitsandbytes divides in the last block
			scale = func(x float32) float32 { return x / max(q.Scales[b], 1e-38) }
		}
		for i := range nf4Block {
			code := nf4Code(0)
			if i < len(from) {
				code = nf4Code(scale(from[i]))
			}
			q.Codes[(b*nf4Block+i)/2] |= code << (4 * (1 - i%2))
		}
	})
	return q
}

// nf4Blocks is the number of blocks of n weights.
func nf4Blocks(n int) int { return (n + nf4Block - 1) / nf4Block }

// nf4Bounds are in the middle between neighbours of nf4Numbers.
var nf4Bounds = func() (b [15]float32) {
	for i := range b {
		b[i] = (nf4Numbers[i] + nf4Numbers[i+1]) / 2
	}
	return b
}()

// nf4Code is the number of NF4 that is nearest to x, the smaller one of two.
func nf4Code(x float32) (code uint8) {
	for code < 15 && x > nf4Bounds[code] {
		code++
	}
	return code
}

// Dequantize gives the n weights of a matrix.
func (q Quantized) Dequantize(n int) []float32 {
	all := make([]float32, 0, 2*len(q.Codes))
	for _, code := range q.Codes {
		scale := q.Scales[len(all)/nf4Block]
		all = append(all, nf4Numbers[code>>4]*scale, nf4Numbers[code&15]*scale)
	}
	return all[:n]
}

// quantizes says whether the frozen matrices are held in few bits.
func (c *Config) quantizes() bool { return c.LoRA != nil && c.LoRA.Quantization != "" }

// IsQuantized says whether a tensor is held in few bits: the matrices of linearModules.
func (c *Config) IsQuantized(name string, shape []int) bool {
	return c.quantizes() && len(shape) == 2 && strings.HasPrefix(name, "model.layers.") &&
		!strings.HasSuffix(name, loraA) && !strings.HasSuffix(name, loraB) &&
		!isRouter(strings.TrimSuffix(name, ".weight"))
}

// scalesEnd is the end of the name of a quantised matrix's scales.
const scalesEnd = ".absmax"

// Held is a tensor as an engine holds it.
type Held struct {
	ParamSpec
	DType dtypes.DType // of codes; InvalidDType: float32, or for a matrix the type of the products
	added bool         // a bias that has the type of the products to which it is added
}

// Held lists the tensors that an engine holds of a model, the inputs of its programs: what ParamSpecs lists, with codes
// in the place of quantised matrices, whose scales are between the frozen tensors and the trained ones.
func (c *Config) Held() []Held {
	var frozen, scales, trained []Held
	for i, s := range c.ParamSpecs() {
		switch {
		case c.LoRA != nil && i >= c.Frozen():
			trained = append(trained, Held{ParamSpec: s})
		case c.IsQuantized(s.Name, s.Shape):
			blocks := nf4Blocks(s.Size())
			frozen = append(frozen, Held{ParamSpec: ParamSpec{s.Name, []int{blocks, nf4Block / 2}, s.NoDecay}, DType: dtypes.Uint8})
			scales = append(scales, Held{ParamSpec: ParamSpec{s.Name + scalesEnd, []int{blocks}, true}})
		default:
			frozen = append(frozen, Held{ParamSpec: s, added: c.joined && strings.HasSuffix(s.Name, ".bias")})
		}
	}
	return slices.Concat(frozen, scales, trained)
}

// Type is the tensor's, where matrices that are not quantised have dtype.
func (h Held) Type(dtype dtypes.DType) dtypes.DType {
	switch {
	case h.DType != dtypes.InvalidDType:
		return h.DType
	case h.added:
		return dtype
	}
	return MatrixType(h.Shape, dtype)
}

// FrozenBytes is what an engine holds of the frozen tensors, where matrices that are not quantised have dtype.
func (c *Config) FrozenBytes(dtype dtypes.DType) (bytes int) {
	for _, h := range c.Held()[:c.Frozen()+c.Layers*c.quantizedOfLayer()] {
		bytes += h.Size() * h.Type(dtype).Size()
	}
	return bytes
}

// quantizedOfLayer is the number of quantised matrices of a layer.
func (c *Config) quantizedOfLayer() int {
	if !c.quantizes() {
		return 0
	}
	return len(c.linearModules())
}

// linearWeight is the weight of a linear layer.
type linearWeight struct {
	weight, scales *Node // codes and their scales, or the weight [out, in] and nil
	shape          []int // [out, in]
}

// weight gives the weight of the linear layer of a name.
func (c *Config) weight(w layerWeights, name string) linearWeight {
	f := linearWeight{weight: w[name+".weight"], scales: w[name+".weight"+scalesEnd]}
	for _, m := range c.linearModules() {
		if m.Name == name {
			f.shape = m.Shape
		}
	}
	return f
}

// as gives the weight [out, in] for a product with x. A quantised one has x's type and is computed after x: the forward
// and the backward pass each compute it for themselves, since otherwise an engine would keep all of them in between.
func (f linearWeight) as(x *Node) *Node {
	if f.scales == nil {
		return f.weight
	}
	numbers := make([][]float32, 256) // the two of each byte of codes
	for code := range numbers {
		numbers[code] = []float32{nf4Numbers[code>>4], nf4Numbers[code&15]}
	}
	table := computeAfter(Const(x.Graph(), numbers), x)
	blocks := f.scales.Shape().Dim(0)
	y := Mul(Reshape(Gather(table, Reshape(f.weight, -1, 1)), blocks, -1), Reshape(f.scales, -1, 1))
	y = sliceAxis(Reshape(y, -1), 0, 0, f.shape[0]*f.shape[1])
	return ConvertDType(Reshape(y, f.shape...), x.DType())
}

// linear is x [N, in] times the transposed weight: [N, out] in x's dtype. A quantised weight has no gradient.
func (f linearWeight) linear(x *Node) *Node {
	if f.scales == nil {
		return linear(x, f.weight)
	}
	y := dot(x, 1, f.as(x), 1, 0, x.DType())
	return ownGradient(y, []*Node{x}, func(v *Node) []*Node { return []*Node{dot(v, 1, f.as(v), 0, 0, x.DType())} })
}
