//go:build goexperiment.simd && amd64

package float

import "simd/archsimd"

var hasAVX = archsimd.X86.AVX()

func clearUpperHalves() {
	if hasAVX {
		archsimd.ClearAVXUpperBits()
	}
}
