package federated

import (
	"math"
	"slices"
)

// Dot is Σ a_j·b_j.
func Dot(a, b []float64) float64 {
	sum := 0.0
	for j, x := range a {
		sum += x * b[j]
	}
	return sum
}

// Norm is ‖v‖. It is finite wherever the norm itself is: numbers whose squares overflow or vanish are scaled first.
func Norm(v []float64) float64 {
	square := Dot(v, v)
	if square >= 1e-280 && square <= 1e280 || math.IsNaN(square) {
		return math.Sqrt(square)
	}
	largest := 0.0
	for _, x := range v {
		largest = max(largest, math.Abs(x))
	}
	if largest == 0 || math.IsInf(largest, 0) {
		return largest
	}
	sum := 0.0
	for _, x := range v {
		sum += (x / largest) * (x / largest)
	}
	return largest * math.Sqrt(sum)
}

// AddScaled adds c·x to y.
func AddScaled(y []float64, c float64, x []float64) {
	for j := range y {
		y[j] += c * x[j]
	}
}

// Ahead returns x + c·y.
func Ahead(x []float64, c float64, y []float64) []float64 {
	out := slices.Clone(x)
	AddScaled(out, c, y)
	return out
}

// Scaled returns c·v.
func Scaled(c float64, v []float64) []float64 {
	out := make([]float64, len(v))
	for j, x := range v {
		out[j] = c * x
	}
	return out
}

// Difference returns a - b.
func Difference(a, b []float64) []float64 { return Ahead(a, -1, b) }

// Finite reports whether no number is NaN or infinite.
func Finite(v []float64) bool {
	return !slices.ContainsFunc(v, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
}

// RoundFloat32 rounds every number of v to float32, in place. What is sent as float32 is rounded before the sender uses
// it, so both sides hold the same numbers.
func RoundFloat32(v []float64) {
	for j, x := range v {
		v[j] = float64(float32(x))
	}
}

// Narrow is v in float32.
func Narrow(v []float64) []float32 {
	out := make([]float32, len(v))
	for j, x := range v {
		out[j] = float32(x)
	}
	return out
}

// Widen is v in float64.
func Widen(v []float32) []float64 {
	out := make([]float64, len(v))
	for j, x := range v {
		out[j] = float64(x)
	}
	return out
}

// Shares returns sizes divided by their sum: p_i = n_i/Σn.
func Shares(sizes []float64) []float64 {
	total := 0.0
	for _, n := range sizes {
		total += n
	}
	return Scaled(1/total, sizes)
}

// Mean is Σp_iv_i / Σp_i over the vectors that are not nil, so an absent agent's weight is dealt to the others. Without
// any vector it is nil.
func Mean(weights []float64, vectors [][]float64) []float64 {
	total, present := 0.0, -1
	for i, v := range vectors {
		if v != nil {
			total, present = total+weights[i], i
		}
	}
	if present < 0 {
		return nil
	}
	out := make([]float64, len(vectors[present]))
	for i, v := range vectors {
		if v != nil {
			AddScaled(out, weights[i]/total, v)
		}
	}
	return out
}

// median of sorted numbers: the mean of the two in the middle where their count is even.
func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
