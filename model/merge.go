package model

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/float"
)

// Merged says how an adapter changed the weights, and what their rounding to the type in which they are stored adds.
type Merged struct {
	Weights                       int     // that have an adapter
	LargestChange, MeanChange     float64 // absolute
	LargestRounding, MeanRounding float64 // absolute
	LargestError, MeanError       float64 // absolute, of the quantised weights on which the adapter was trained
}

// SaveMerged is [Model.Save] of the model with the adapter's product in its weights: W + Scale·B·A, summed in float64
// and rounded to float32, one tensor at a time.
func (m *Model) SaveMerged(ctx context.Context, dir, dtype string) (all Merged, err error) {
	base, memory, seen := m.Base(), make([]float32, m.Largest()), map[*Param]bool{}
	err = Writer{}.SaveFrom(base, dir, dtype, func(i int) ([]float32, error) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		w := memory[:base.Params[i].Size()]
		err := base.Params[i].Read(w)
		a, b := m.adapterOf(base.Params[i])
		if err != nil || a == nil {
			return w, err
		}
		missed := quantizationError(m.Config.LoRA.TrainedOn, w)
		report := merge(w, a, b, m.Config.LoRA.Scale(), cmp.Or(dtype, m.Config.DType))
		if !seen[a] {
			seen[a] = true
			all.add(report)
			all.add(missed)
		}
		return w, nil
	})
	all.MeanChange /= float64(all.Weights)
	all.MeanRounding /= float64(all.Weights)
	all.MeanError /= float64(all.Weights)
	return all, err
}

// adapterOf finds A and B of a weight; nil: it has none.
func (m *Model) adapterOf(weight *Param) (a, b *Param) {
	module := strings.TrimSuffix(weight.Name, ".weight")
	i := slices.IndexFunc(m.Trained(), func(p *Param) bool { return p.Name == module+loraA })
	if i < 0 {
		return nil, nil
	}
	return m.Trained()[i], m.Trained()[i+1]
}

// merge adds scale·b·a to weights [out, in]. The means of the report are sums.
func merge(weights []float32, a, b *Param, scale float64, dtype string) (report Merged) {
	rank, in := a.Shape[0], a.Shape[1]
	rows := make([]Merged, b.Shape[0])
	eachParallel(len(rows), func(o int) {
		row := make([]float64, in)
		for r := range rank {
			f := scale * float64(b.Data[o*rank+r])
			for i, x := range a.Data[r*in:][:in] {
				row[i] += f * float64(x)
			}
		}
		w := weights[o*in:][:in]
		for i, x := range row {
			w[i] = float32(float64(w[i]) + x)
			rows[o].count(math.Abs(x), math.Abs(float64(w[i])-float64(RoundTo(dtype, w[i]))))
		}
	})
	for _, r := range rows {
		report.add(r)
	}
	return report
}

// quantizationError says how far a quantised weight is from the weight. The mean of the report is a sum.
func quantizationError(quantization string, weights []float32) (report Merged) {
	if quantization == "" {
		return report
	}
	for i, x := range Quantize(weights).Dequantize(len(weights)) {
		by := math.Abs(float64(x) - float64(weights[i]))
		report.LargestError, report.MeanError = max(report.LargestError, by), report.MeanError+by
	}
	return report
}

// count adds a weight.
func (m *Merged) count(change, rounding float64) {
	m.add(Merged{Weights: 1, LargestChange: change, MeanChange: change, LargestRounding: rounding,
		MeanRounding: rounding})
}

// add joins the sums of two reports.
func (m *Merged) add(o Merged) {
	m.Weights += o.Weights
	m.LargestChange, m.MeanChange = max(m.LargestChange, o.LargestChange), m.MeanChange+o.MeanChange
	m.LargestRounding, m.MeanRounding = max(m.LargestRounding, o.LargestRounding), m.MeanRounding+o.MeanRounding
	m.LargestError, m.MeanError = max(m.LargestError, o.LargestError), m.MeanError+o.MeanError
}

// RoundTo gives the number of a dtype, such as bfloat16, that is nearest to x.
func RoundTo(dtype string, x float32) float32 {
	switch dtype {
	case "bfloat16":
		return float.FromBFloat16(float.BFloat16(x))
	case "float16":
		return float.FromFloat16(float.Float16(x))
	}
	return x
}
