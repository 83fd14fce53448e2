package model

import (
	"context"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/float"
)

// SaveMerged is [Model.Save] of the model with the adapter's product in its weights: W + Scale·B·A, summed in float64
// and rounded to float32, one tensor at a time.
func (m *Model) SaveMerged(ctx context.Context, dir, dtype string) error {
	base, memory := m.Base(), make([]float32, m.Largest())
	return Writer{}.SaveFrom(base, dir, dtype, func(i int) ([]float32, error) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		w := memory[:base.Params[i].Size()]
		err := base.Params[i].Read(w)
		name := strings.TrimSuffix(base.Params[i].Name, ".weight") + loraA
		at := slices.IndexFunc(m.Trained(), func(p *Param) bool { return p.Name == name })
		if err == nil && at >= 0 {
			merge(w, m.Trained()[at], m.Trained()[at+1], m.Config.LoRA.Scale())
		}
		return w, err
	})
}

// merge adds scale·b·a to weights [out, in].
func merge(weights []float32, a, b *Param, scale float64) {
	rank, in := a.Shape[0], a.Shape[1]
	float.Parallel(b.Shape[0], func(o int) {
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
		}
	})
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
