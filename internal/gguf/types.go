package gguf

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/float"
)

// Type is how a tensor's numbers are stored, with the format's number for it.
type Type uint32

// The types that can be written.
const (
	F32  Type = 0
	F16  Type = 1
	BF16 Type = 30
	Q80  Type = 8
)

// Writable lists the types that can be written, Readable all that can be read: those too.
var (
	Writable = []Type{F32, F16, BF16, Q80}
	Readable = slices.Sorted(maps.Keys(codecs))
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
	2:   {name: "q4_0", block: 32, bytes: 18, decode: decodeQ40},
	3:   {name: "q4_1", block: 32, bytes: 20, decode: decodeQ41},
	6:   {name: "q5_0", block: 32, bytes: 22, decode: decodeQ50},
	7:   {name: "q5_1", block: 32, bytes: 24, decode: decodeQ51},
	10:  {name: "q2_K", block: 256, bytes: 84, decode: decodeQ2K},
	11:  {name: "q3_K", block: 256, bytes: 110, decode: decodeQ3K},
	12:  {name: "q4_K", block: 256, bytes: 144, decode: decodeQ4K},
	13:  {name: "q5_K", block: 256, bytes: 176, decode: decodeQ5K},
	14:  {name: "q6_K", block: 256, bytes: 210, decode: decodeQ6K},
	16:  {name: "iq2_xxs", block: 256, bytes: 66, decode: decodeIQ2XXS},
	17:  {name: "iq2_xs", block: 256, bytes: 74, decode: decodeIQ2XS},
	18:  {name: "iq3_xxs", block: 256, bytes: 98, decode: decodeIQ3XXS},
	19:  {name: "iq1_s", block: 256, bytes: 50, decode: decodeIQ1S},
	20:  {name: "iq4_nl", block: 32, bytes: 18, decode: decodeIQ4NL},
	21:  {name: "iq3_s", block: 256, bytes: 110, decode: decodeIQ3S},
	22:  {name: "iq2_s", block: 256, bytes: 82, decode: decodeIQ2S},
	23:  {name: "iq4_xs", block: 256, bytes: 136, decode: decodeIQ4XS},
	29:  {name: "iq1_m", block: 256, bytes: 56, decode: decodeIQ1M},
	34:  {name: "tq1_0", block: 256, bytes: 54, decode: decodeTQ10},
	35:  {name: "tq2_0", block: 256, bytes: 66, decode: decodeTQ20},
	39:  {name: "mxfp4", block: 32, bytes: 17, decode: decodeMXFP4},
	40:  {name: "nvfp4", block: 64, bytes: 36, decode: decodeNVFP4},
}

// others are names of types that are not read, for messages: no weights are stored in them.
var others = map[Type]string{9: "q8_1", 15: "q8_K", 24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64"}

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
