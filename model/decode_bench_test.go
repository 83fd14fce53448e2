package model

import (
	"fmt"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
)

// BenchmarkDecodeStep decodes one token for every row after 127 others. It does not time the inputs. The best run shows
// the time on a quiet machine, the mean that on this one.
//
//	go test ./model -run '^$' -bench DecodeStep/5.4M/onnx -benchtime 300x
func BenchmarkDecodeStep(b *testing.B) {
	for _, name := range []string{"5.4M", "57M"} {
		for _, e := range backendtest.Engines(b) {
			for _, s := range []StepShape{
				{Prompts: 1, Samples: 1, Suffix: 127}, {Prompts: 4, Samples: 1, Suffix: 127},
				{Prompts: 16, Samples: 1, Suffix: 127},
				{Prompts: 32, Samples: 1, Suffix: 127}, {Prompts: 64, Samples: 1, Suffix: 127},
				{Prompts: 128, Samples: 1, Suffix: 127},
				{Prompts: 8, Samples: 16, Prefix: 64, Suffix: 64}, {Prompts: 8, Samples: 16, Prefix: 256, Suffix: 64},
			} {
				b.Run(fmt.Sprintf("%s/%s/%dx%d,%d+%d", name, e.Name, s.Prompts, s.Samples, s.Prefix, s.Suffix),
					func(b *testing.B) {
						m := preset(name)
						benchmarkProgram(b, e, m, s.Rows(), func(g *graph.Graph) []*graph.Node {
							return m.Config.Step(m.Config.Parameters(g),
								m.Config.StepInputs(g, s, e.Wants.HostRows, GraphOptions{}), GraphOptions{}).Nodes()
						})
					})
			}
		}
	}
}

// BenchmarkPrefill is the pass over prompts of 64 tokens.
func BenchmarkPrefill(b *testing.B) {
	for _, name := range []string{"5.4M", "57M"} {
		for _, e := range backendtest.Engines(b) {
			for _, s := range []PrefillShape{{Prompts: 1, Tokens: 64}, {Prompts: 16, Tokens: 64}} {
				b.Run(fmt.Sprintf("%s/%s/%dx%d", name, e.Name, s.Prompts, s.Tokens), func(b *testing.B) {
					m := preset(name)
					benchmarkProgram(b, e, m, s.Prompts*s.Tokens, func(g *graph.Graph) []*graph.Node {
						return m.Config.Prefill(m.Config.Parameters(g), m.Config.PrefillInputs(g, s, e.Wants.HostRows),
							GraphOptions{}).Nodes()
					})
				})
			}
		}
	}
}

// benchmarkProgram runs a program on the model's weights. Its other inputs are zeros, except for the temperature.
func benchmarkProgram(b *testing.B, e *backend.Engine, m *Model, tokens int, build func(g *graph.Graph) []*graph.Node) {
	program := compile(b, e, "bench", build)
	in := weights(b, e, m)
	names, all := program.Inputs()
	for i, s := range all[len(in):] {
		in = append(in, zeros(e, s, names[len(m.Params)+i] == "inverse_temperature"))
	}
	defer backend.FinalizeAll(in...)
	runFreely(b, program, in)
	best := time.Hour
	b.ResetTimer()
	for b.Loop() {
		start := time.Now()
		runFreely(b, program, in)
		best = min(best, time.Since(start))
	}
	b.ReportMetric(float64(best.Microseconds())/1000, "best-ms")
	b.ReportMetric(float64(b.N*tokens)/b.Elapsed().Seconds(), "tokens/s")
}

// zeros is a buffer of zeros, or of ones.
func zeros(e *backend.Engine, s shapes.Shape, ones bool) compute.Buffer {
	if s.DType.IsInt() {
		return must(e.Int32(make([]int32, s.Size()), s.Dimensions...))
	}
	x := make([]float32, s.Size())
	for i := range x {
		if ones {
			x[i] = 1
		}
	}
	return must(e.Float32(x, s.Dimensions...))
}
