package gguf

import (
	"encoding/binary"
	"math"
)

// The decoders of blocks, each with the arithmetic of gguf-py's to the bit: a product is rounded to float32 before it is
// added to, so that no engine fuses the two.

// decodeQ80: a float16 scale, and 32 signed bytes.
func decodeQ80(b []byte, x []float32) {
	d := half(b)
	for i := range x {
		x[i] = d * float32(int8(b[2+i]))
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

// fifthBits is the fifth bit of number i of 32 numbers of 5 bits.
func fifthBits(b []byte, i int) byte { return b[i/8] >> (i % 8) & 1 << 4 }

// decodeQ50: a float16 scale, the fifth bits of 32 numbers, and their other four bits. The numbers are less 16.
func decodeQ50(b []byte, x []float32) {
	d := half(b)
	for i, q := range b[6:22] {
		x[i] = d * float32(int(q&15|fifthBits(b[2:6], i))-16)
		x[i+16] = d * float32(int(q>>4|fifthBits(b[2:6], i+16))-16)
	}
}

// decodeQ51: a float16 scale, a float16 minimum, and 32 numbers of 5 bits as in q5_0.
func decodeQ51(b []byte, x []float32) {
	d, m := half(b), half(b[2:])
	for i, q := range b[8:24] {
		x[i] = float32(d*float32(q&15|fifthBits(b[4:8], i))) + m
		x[i+16] = float32(d*float32(q>>4|fifthBits(b[4:8], i+16))) + m
	}
}

// decodeQ2K: 16 scales and minima of 4 bits each, 256 numbers of 2 bits, and float16 scales of the scales and minima.
func decodeQ2K(b []byte, x []float32) {
	d, m := half(b[80:]), half(b[82:])
	for i := range x {
		scale := b[i/16]
		q := b[16+i/128*32+i%32] >> (i / 32 % 4 * 2) & 3
		x[i] = float32(float32(d*float32(scale&15))*float32(q)) - float32(m*float32(scale>>4))
	}
}

// decodeQ3K: the third bits of 256 numbers, their other two, 16 scales of 6 bits less 32, and their float16 scale. A
// number is less 4 where its third bit is 0.
func decodeQ3K(b []byte, x []float32) {
	d, scales := half(b[108:]), b[96:108]
	for i := range x {
		part := i / 16
		scale := scales[part%8]>>(part/8*4)&15 | scales[8+part%4]>>(part/4*2)&3<<4
		q := int(b[32+i/128*32+i%32] >> (i / 32 % 4 * 2) & 3)
		if b[i%32]>>(i/32)&1 == 0 {
			q -= 4
		}
		x[i] = d * float32(int(scale)-32) * float32(q)
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

// decodeQ5K: as q4_K, with the fifth bits of the numbers before their other four.
func decodeQ5K(b []byte, x []float32) {
	d, m := half(b), half(b[2:])
	scales, high, quants := b[4:16], b[16:48], b[48:176]
	for j := range 8 {
		scale, least := scaleAndMinimum(scales, j)
		ds, dm := d*float32(scale), m*float32(least)
		for i, q := range quants[j/2*32:][:32] {
			number := q>>(j%2*4)&15 | high[i]>>j&1<<4
			x[32*j+i] = float32(ds*float32(number)) - dm
		}
	}
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

// decodeTQ10: 256 numbers of -1, 0 and 1, five in a byte (the last 16: four) as a fraction of three's powers, and their
// float16 scale.
func decodeTQ10(b []byte, x []float32) {
	d, at := half(b[52:]), 0
	for _, part := range []struct{ first, bytes, digits int }{{0, 32, 5}, {32, 16, 5}, {48, 4, 4}} {
		power := byte(1)
		for range part.digits {
			for _, q := range b[part.first:][:part.bytes] {
				x[at] = d * float32(int(uint16(q*power)*3>>8)-1)
				at++
			}
			power *= 3
		}
	}
}

// decodeTQ20: 256 numbers of 2 bits less 1, and their float16 scale.
func decodeTQ20(b []byte, x []float32) {
	d := half(b[64:])
	for i := range x {
		x[i] = d * float32(int(b[i/128*32+i%32]>>(i/32%4*2)&3)-1)
	}
}

// fourBits are twice the numbers of a float of 4 bits: a sign, two bits of exponent, one of mantissa.
var fourBits = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// decodeMXFP4: an exponent of two, and 32 floats of 4 bits.
func decodeMXFP4(b []byte, x []float32) {
	d := float32(math.Ldexp(0.5, int(b[0])-127))
	for i, q := range b[1:17] {
		x[i], x[i+16] = d*fourBits[q&15], d*fourBits[q>>4]
	}
}

// decodeNVFP4: four scales of 8 bits (four of exponent, three of mantissa), and four times 16 floats of 4 bits.
func decodeNVFP4(b []byte, x []float32) {
	for j, scale := range b[:4] {
		d := eightBits(scale) / 2
		for i, q := range b[4+8*j:][:8] {
			x[16*j+i], x[16*j+i+8] = d*fourBits[q&15], d*fourBits[q>>4]
		}
	}
}

// eightBits is a float of 8 bits without a sign. The largest, which is no number, is 0.
func eightBits(b byte) float32 {
	exponent, mantissa := int(b>>3&15), float64(b&7)
	switch {
	case b == 0x7f:
		return 0
	case exponent == 0:
		return float32(math.Ldexp(mantissa, -9))
	}
	return float32(math.Ldexp(1+mantissa/8, exponent-7))
}

// curve are the numbers that 4 bits stand for in iq4_nl and iq4_xs.
var curve = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// decodeIQ4NL: a float16 scale, and 32 numbers of the curve.
func decodeIQ4NL(b []byte, x []float32) {
	d := half(b)
	for i, q := range b[2:18] {
		x[i], x[i+16] = d*curve[q&15], d*curve[q>>4]
	}
}

// decodeIQ4XS: a float16 scale, 8 scales of 6 bits less 32 (the high two of all first), and 8 times 32 numbers of the
// curve.
func decodeIQ4XS(b []byte, x []float32) {
	d, high := half(b), binary.LittleEndian.Uint16(b[2:])
	for j := range 8 {
		scale := int(b[4+j/2]>>(j%2*4)&15) | int(high>>(2*j)&3)<<4
		dl := d * float32(scale-32)
		for i, q := range b[8+16*j:][:16] {
			x[32*j+i], x[32*j+i+16] = dl*curve[q&15], dl*curve[q>>4]
		}
	}
}
