package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/float"
)

// Type is how a tensor's numbers are stored, with the format's number for it.
type Type uint32

// The types that can be read. Those up to Q80 in this list can be written.
const (
	F32  Type = 0
	F16  Type = 1
	BF16 Type = 30
	Q80  Type = 8
	Q40  Type = 2
	Q41  Type = 3
	Q4K  Type = 12
	Q6K  Type = 14
)

// Readable lists the types that can be read, Writable those that can be written.
var (
	Readable = []Type{F32, F16, BF16, Q80, Q40, Q41, Q4K, Q6K}
	Writable = Readable[:4]
)

// codec is a type's name, its block and the block's numbers.
type codec struct {
	name   string
	block  int                         // numbers
	bytes  int                         // of a block
	decode func(b []byte, x []float32) // of one block
	encode func(x []float32, b []byte) // of one block; nil: it is not written
	most   float64                     // the largest number that can be stored; 0: any that is finite
}

var codecs = map[Type]codec{
	F32: {name: "f32", block: 1, bytes: 4,
		decode: func(b []byte, x []float32) { x[0] = math.Float32frombits(binary.LittleEndian.Uint32(b)) },
		encode: func(x []float32, b []byte) { binary.LittleEndian.PutUint32(b, math.Float32bits(x[0])) }},
	F16: {name: "f16", block: 1, bytes: 2, most: math.Nextafter(65520, 0),
		decode: func(b []byte, x []float32) { x[0] = half(b) },
		encode: func(x []float32, b []byte) { putHalf(b, x[0]) }},
	BF16: {name: "bf16", block: 1, bytes: 2, most: 0x1.fefffep127,
		decode: func(b []byte, x []float32) { x[0] = float.FromBFloat16(binary.LittleEndian.Uint16(b)) },
		encode: func(x []float32, b []byte) { binary.LittleEndian.PutUint16(b, float.BFloat16(x[0])) }},
	Q80: {name: "q8_0", block: 32, bytes: 34, decode: decodeQ80, encode: encodeQ80, most: 65504 * 127},
	Q40: {name: "q4_0", block: 32, bytes: 18, decode: decodeQ40},
	Q41: {name: "q4_1", block: 32, bytes: 20, decode: decodeQ41},
	Q4K: {name: "q4_K", block: 256, bytes: 144, decode: decodeQ4K},
	Q6K: {name: "q6_K", block: 256, bytes: 210, decode: decodeQ6K},
}

// others are names of types that are not read, for messages.
var others = map[Type]string{6: "q5_0", 7: "q5_1", 9: "q8_1", 10: "q2_K", 11: "q3_K", 13: "q5_K", 15: "q8_K",
	16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs", 19: "iq1_s", 20: "iq4_nl", 21: "iq3_s", 22: "iq2_s", 23: "iq4_xs",
	24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64", 29: "iq1_m", 34: "tq1_0", 35: "tq2_0", 39: "mxfp4"}

// String is the type's name, such as q8_0.
func (t Type) String() string {
	if c, ok := codecs[t]; ok {
		return c.name
	}
	if name := others[t]; name != "" {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Names lists types for a message or a schema, such as f32|f16.
func Names(types []Type, between string) string {
	var names []string
	for _, t := range types {
		names = append(names, t.String())
	}
	return strings.Join(names, between)
}

// ParseType is the type of a name that can be written.
func ParseType(name string) (Type, error) {
	i := slices.IndexFunc(Writable, func(t Type) bool { return t.String() == name })
	if i < 0 {
		return 0, fmt.Errorf("type: found %q, want %s", name, Names(Writable, ", "))
	}
	return Writable[i], nil
}

// Block is the number of numbers that a row's length must be a multiple of.
func (t Type) Block() int { return codecs[t].block }

func half(b []byte) float32 { return float.FromFloat16(binary.LittleEndian.Uint16(b)) }

func putHalf(b []byte, x float32) { binary.LittleEndian.PutUint16(b, float.Float16(x)) }

// A product is rounded to float32 before it is added to, here and below: no engine may fuse the two.

// decodeQ80: a float16 scale, and 32 signed bytes.
func decodeQ80(b []byte, x []float32) {
	d := half(b)
	for i := range x {
		x[i] = d * float32(int8(b[2+i]))
	}
}

// encodeQ80 rounds as ggml's reference does: half away from zero, by the inverse of a scale in float32.
func encodeQ80(x []float32, b []byte) {
	most := float32(0)
	for _, v := range x {
		most = max(most, float32(math.Abs(float64(v))))
	}
	d, inverse := most/127, float32(0)
	if d >= 1/math.MaxFloat32 { // a smaller one is 0 in float16
		inverse = 1 / d
	}
	putHalf(b, d)
	for i, v := range x {
		b[2+i] = byte(int8(math.Round(float64(v * inverse))))
	}
}

// decodeQ40: a float16 scale, and 32 numbers of 4 bits less 8. A byte has numbers i and i+16.
func decodeQ40(b []byte, x []float32) {
	d := half(b)
	for i, q := range b[2:18] {
		x[i], x[i+16] = d*float32(int(q&15)-8), d*float32(int(q>>4)-8)
	}
}

// decodeQ41: a float16 scale, a float16 minimum, and 32 numbers of 4 bits.
func decodeQ41(b []byte, x []float32) {
	d, m := half(b), half(b[2:])
	for i, q := range b[4:20] {
		x[i], x[i+16] = float32(d*float32(q&15))+m, float32(d*float32(q>>4))+m
	}
}

// decodeQ4K: float16 scales of the scales and of the minima, 8 of each in 6 bits, and 8 times 32 numbers of 4 bits.
func decodeQ4K(b []byte, x []float32) {
	d, m := half(b), half(b[2:])
	scales, quants := b[4:16], b[16:144]
	for j := range 8 {
		scale, least := scaleAndMinimum(scales, j)
		ds, dm := d*float32(scale), m*float32(least)
		for i, q := range quants[j/2*32:][:32] {
			x[32*j+i] = float32(ds*float32(q>>(j%2*4)&15)) - dm
		}
	}
}

// scaleAndMinimum unpacks number j of the 6-bit scales and minima of a block of q4_K.
func scaleAndMinimum(b []byte, j int) (scale, least byte) {
	if j < 4 {
		return b[j] & 63, b[j+4] & 63
	}
	return b[j+4]&15 | b[j-4]>>6<<4, b[j+4]>>4 | b[j]>>6<<4
}

// decodeQ6K: 256 numbers of 6 bits less 32 (128 bytes of low halves, 64 of high quarters), 16 signed scales, and their
// float16 scale.
func decodeQ6K(b []byte, x []float32) {
	d := half(b[208:])
	for n := range 2 { // halves of the block
		low, high, scales, out := b[64*n:], b[128+32*n:], b[192+8*n:], x[128*n:]
		for i := range 32 {
			for part := range 4 {
				q := low[i+part%2*32]>>(part/2*4)&15 | high[i]>>(2*part)&3<<4
				scale := d * float32(int8(scales[i/16+2*part]))
				out[32*part+i] = scale * float32(int(q)-32)
			}
		}
	}
}
