package gguf

import (
	_ "embed"
	"encoding/binary"
	"math/bits"

	"github.com/posttrain/posttrain/internal/float"
)

// The decoders of the types iq1 to iq3. Eight numbers, or four, are one entry of a grid. grids.bin has the grids of ggml
// (LICENSE.ggml); scripts/oracle/gguf_blocks.py wrote it.

//go:embed grids.bin
var gridBytes []byte

// grid maps an index to width numbers.
type grid struct {
	width   int
	numbers []int8 // [entries * width]
}

// The grids, in the file's order: a signed byte a number.
var gridIQ2XXS, gridIQ2XS, gridIQ2S, gridIQ3XXS, gridIQ3S, gridIQ1 = readGrids()

func readGrids() (a, b, c, d, e, f grid) {
	rest := gridBytes
	next := func(entries, width int) grid {
		g := grid{width, make([]int8, entries*width)}
		for i := range g.numbers {
			g.numbers[i] = int8(rest[i])
		}
		rest = rest[len(g.numbers):]
		return g
	}
	return next(256, 8), next(512, 8), next(1024, 8), next(256, 4), next(512, 4), next(2048, 8)
}

// put writes an entry's numbers times a scale. A bit of signs turns a number's sign.
func (g grid) put(x []float32, d float32, index int, signs byte) {
	for i, n := range g.numbers[index*g.width:][:g.width] {
		x[i] = d * float32(n)
		if signs>>i&1 == 1 {
			x[i] = -x[i]
		}
	}
}

// shift writes an entry's numbers, each with delta added, times a scale.
func (g grid) shift(x []float32, d float32, index int, delta float32) {
	for i, n := range g.numbers[index*g.width:][:g.width] {
		x[i] = d * (float32(n) + delta)
	}
}

// evenSigns are eight signs of seven bits: the number of turned ones is even.
func evenSigns(b uint32) byte {
	b &= 127
	return byte(b) | byte(bits.OnesCount32(b)&1)<<7
}

// decodeIQ2XXS: a float16 scale; for each 32 numbers four indices, four times seven signs and a scale of 4 bits.
func decodeIQ2XXS(b []byte, x []float32) {
	d := half(b)
	for j := range 8 {
		part := b[2+8*j:]
		signs := binary.LittleEndian.Uint32(part[4:])
		db := d * (0.5 + float32(signs>>28)) * 0.25
		for k := range 4 {
			gridIQ2XXS.put(x[32*j+8*k:], db, int(part[k]), evenSigns(signs>>(7*k)))
		}
	}
}

// decodeIQ2XS: a float16 scale, 32 indices of 9 bits with seven signs, and 16 scales of 4 bits.
func decodeIQ2XS(b []byte, x []float32) {
	d := half(b)
	for k := range 32 {
		q := binary.LittleEndian.Uint16(b[2+2*k:])
		db := d * (0.5 + float32(b[66+k/4]>>(k/2%2*4)&15)) * 0.25
		gridIQ2XS.put(x[8*k:], db, int(q&511), evenSigns(uint32(q>>9)))
	}
}

// decodeIQ2S: a float16 scale, the low bytes of 32 indices, their signs, their two high bits, and 16 scales of 4 bits.
func decodeIQ2S(b []byte, x []float32) {
	d := half(b)
	for k := range 32 {
		index := int(b[2+k]) | int(b[66+k/4]>>(k%4*2)&3)<<8
		db := d * (0.5 + float32(b[74+k/4]>>(k/2%2*4)&15)) * 0.25
		gridIQ2S.put(x[8*k:], db, index, b[34+k])
	}
}

// decodeIQ3XXS: a float16 scale, 64 indices; for each 32 numbers four times seven signs and a scale of 4 bits.
func decodeIQ3XXS(b []byte, x []float32) {
	d := half(b)
	for k := range 64 {
		signs := binary.LittleEndian.Uint32(b[66+k/8*4:])
		db := d * (0.5 + float32(signs>>28)) * 0.5
		gridIQ3XXS.put(x[4*k:], db, int(b[2+k]), evenSigns(signs>>(k/2%4*7))>>(k%2*4))
	}
}

// decodeIQ3S: a float16 scale, the low bytes of 64 indices, their ninth bits, their signs, and 8 scales of 4 bits.
func decodeIQ3S(b []byte, x []float32) {
	d := half(b)
	for k := range 64 {
		index := int(b[2+k]) | int(b[66+k/8]>>(k%8)&1)<<8
		db := d * float32(1+2*(b[106+k/16]>>(k/8%2*4)&15))
		gridIQ3S.put(x[4*k:], db, index, b[74+k/2]>>(k%2*4))
	}
}

// eighth is what all numbers of a part of iq1_s and iq1_m are shifted by, up or down.
const eighth = 0.125

// decodeIQ1S: a float16 scale, the low bytes of 32 indices; for each 32 numbers their high bits, a scale of 3 bits and
// the direction of the shift.
func decodeIQ1S(b []byte, x []float32) {
	d := half(b)
	for k := range 32 {
		high := binary.LittleEndian.Uint16(b[34+k/4*2:])
		delta := float32(eighth)
		if high>>15 == 1 {
			delta = -eighth
		}
		dl := d * float32(2*(high>>12&7)+1)
		gridIQ1.shift(x[8*k:], dl, int(b[2+k])|int(high>>(k%4*3)&7)<<8, delta)
	}
}

// decodeIQ1M: the low bytes of 32 indices; for each its high bits and the direction of its shift; 16 scales of 3 bits,
// and in the high bits of their words the float16 scale.
func decodeIQ1M(b []byte, x []float32) {
	var words [4]uint16
	var scale uint16
	for i := range words {
		words[i] = binary.LittleEndian.Uint16(b[48+2*i:])
		scale |= words[i] >> 12 << (4 * i)
	}
	d := float.FromFloat16(scale)
	for k := range 32 {
		high := b[32+k/2] >> (k % 2 * 4)
		delta := float32(eighth)
		if high&8 != 0 {
			delta = -eighth
		}
		dl := d * float32(2*(words[k/8]>>(k/2%4*3)&7)+1)
		gridIQ1.shift(x[8*k:], dl, int(b[k])|int(high&7)<<8, delta)
	}
}
