package model

import (
	"math"
	"strings"

	"github.com/gomlx/compute/dtypes/float16"
)

// Merged says how an adapter changed the weights, and what their rounding to the type in which they are stored adds.
type Merged struct {
	Weights                       int     // that have an adapter
	LargestChange, MeanChange     float64 // absolute
	LargestRounding, MeanRounding float64 // absolute
}

// Merge adds the adapter's product to the weights: W + Scale·B·A, summed in float64 and rounded to float32. The result
// has the tensors of m, which must not be used any more. The report is for weights that are stored as dtype.
func (m *Model) Merge(dtype string) (*Model, Merged) {
	out, trained, weights := m.Base(), m.Trained(), map[string]*Param{}
	for _, p := range out.Params {
		weights[p.Name] = p
	}
	parts := make([]Merged, len(trained)/2)
	eachParallel(len(parts), func(k int) {
		a, b := trained[2*k], trained[2*k+1]
		parts[k] = merge(weights[strings.TrimSuffix(a.Name, loraA)+".weight"], a, b, m.Config.LoRA.Scale(), dtype)
	})
	var all Merged
	for _, part := range parts {
		all.add(part)
	}
	all.MeanChange /= float64(all.Weights)
	all.MeanRounding /= float64(all.Weights)
	return out, all
}

// merge adds scale·b·a to a weight [out, in]. The means of the report are sums.
func merge(weight, a, b *Param, scale float64, dtype string) (report Merged) {
	rank, in := a.Shape[0], a.Shape[1]
	row := make([]float64, in)
	for o := range b.Shape[0] {
		clear(row)
		for r := range rank {
			f := scale * float64(b.Data[o*rank+r])
			for i, x := range a.Data[r*in:][:in] {
				row[i] += f * float64(x)
			}
		}
		w := weight.Data[o*in:][:in]
		for i, x := range row {
			w[i] = float32(float64(w[i]) + x)
			report.count(math.Abs(x), math.Abs(float64(w[i])-float64(roundTo(dtype, w[i]))))
		}
	}
	return report
}

// count adds a weight.
func (m *Merged) count(change, rounding float64) {
	m.add(Merged{1, change, change, rounding, rounding})
}

// add joins the sums of two reports.
func (m *Merged) add(o Merged) {
	m.Weights += o.Weights
	m.LargestChange, m.MeanChange = max(m.LargestChange, o.LargestChange), m.MeanChange+o.MeanChange
	m.LargestRounding, m.MeanRounding = max(m.LargestRounding, o.LargestRounding), m.MeanRounding+o.MeanRounding
}

// roundTo rounds to a dtype.
func roundTo(dtype string, x float32) float32 {
	switch dtype {
	case "bfloat16":
		return math.Float32frombits(uint32(toBFloat16(x)) << 16)
	case "float16":
		return float16.FromBits(toFloat16(x)).Float32()
	}
	return x
}
