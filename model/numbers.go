package model

import (
	"encoding/binary"
	"math"

	"github.com/gomlx/compute/dtypes/float16"
)

// floatDecoders turn little-endian bytes of a dtype into float32, exactly.
var floatDecoders = map[string]func(b []byte, out []float32){
	"F32": func(b []byte, out []float32) {
		for i := range len(b) / 4 {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	},
	"F16": func(b []byte, out []float32) {
		for i := range len(b) / 2 {
			out[i] = float16.FromBits(binary.LittleEndian.Uint16(b[2*i:])).Float32()
		}
	},
	"BF16": func(b []byte, out []float32) {
		for i := range len(b) / 2 {
			out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16)
		}
	},
}

// floatEncoders turn float32 into little-endian bytes of a dtype, rounded to nearest, ties to even.
var floatEncoders = map[string]func(x []float32, out []byte){
	"F32": func(x []float32, out []byte) {
		for i, v := range x {
			binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(v))
		}
	},
	"F16": func(x []float32, out []byte) {
		for i, v := range x {
			binary.LittleEndian.PutUint16(out[2*i:], toFloat16(v))
		}
	},
	"BF16": func(x []float32, out []byte) {
		for i, v := range x {
			binary.LittleEndian.PutUint16(out[2*i:], toBFloat16(v))
		}
	},
}

// fileDTypes maps the names of config.json to those of safetensors.
var fileDTypes = map[string]string{"float32": "F32", "float16": "F16", "bfloat16": "BF16"}

// configDTypes is the inverse of fileDTypes.
var configDTypes = map[string]string{"F32": "float32", "F16": "float16", "BF16": "bfloat16"}

// toBFloat16 rounds to the nearest bfloat16, ties to even.
func toBFloat16(x float32) uint16 {
	b := math.Float32bits(x)
	if x != x {
		return uint16(b>>16) | 0x40 // keep a NaN a NaN
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// toFloat16 rounds to the nearest float16, ties to even; values beyond 65504 become infinite.
func toFloat16(x float32) uint16 {
	b := math.Float32bits(x)
	sign := uint16(b >> 16 & 0x8000)
	switch mag := b & 0x7fffffff; {
	case mag > 0x7f800000: // NaN
		return sign | 0x7e00
	case mag >= 0x477ff000: // rounds beyond the largest float16
		return sign | 0x7c00
	case mag < 0x38800000: // below the smallest normal float16: units of 2^-24
		return sign | uint16(math.RoundToEven(math.Ldexp(float64(math.Float32frombits(mag)), 24)))
	default:
		return sign | uint16((mag-0x38000000+0xfff+mag>>13&1)>>13)
	}
}
