// Package float has functions of numbers. [Exp] stays fast beside the vector kernels of the engine go.
//
// A kernel leaves values in the upper halves of the processor's vector registers, and so does Go's scheduler where it
// interrupts a function, in a program built with GOEXPERIMENT=simd. Intel's processors then take 70 cycles for each change
// between the two encodings of scalar instructions, and math.Exp has twenty of them: 0.8 µs instead of 5 ns.
package float

import "math"

// IsFinite reports whether x is neither NaN nor infinite.
func IsFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Exp is math.Exp, bit for bit.
func Exp(x float64) float64 {
	clearUpperHalves()
	return math.Exp(x)
}
