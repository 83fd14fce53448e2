package float

import "math"

// BFloat16 rounds to the nearest bfloat16, ties to even.
func BFloat16(x float32) uint16 {
	b := math.Float32bits(x)
	if x != x {
		return uint16(b>>16) | 0x40 // keep a NaN a NaN
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// FromBFloat16 is the number of a bfloat16, exactly.
func FromBFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// Float16 rounds to the nearest float16, ties to even. Values that round beyond 65504 become infinite.
func Float16(x float32) uint16 {
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

// FromFloat16 is the number of a float16, exactly.
func FromFloat16(h uint16) float32 {
	sign, mag := uint32(h&0x8000)<<16, uint32(h&0x7fff)
	switch {
	case mag >= 0x7c00: // infinite or NaN
		return math.Float32frombits(sign | 0x7f800000 | mag&0x3ff<<13)
	case mag < 0x400: // units of 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(mag)*0x1p-24))
	}
	return math.Float32frombits(sign | (mag<<13 + 0x38000000))
}
