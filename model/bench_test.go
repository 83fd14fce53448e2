package model

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
)

// presets are the models of the benchmarks, Llama-like with a tied head.
var presets = map[string]Config{
	"5.4M": {VocabSize: 4096, HiddenSize: 256, IntermediateSize: 688, Layers: 6, Heads: 8, KVHeads: 4, HeadDim: 32},
	"57M":  {VocabSize: 16384, HiddenSize: 640, IntermediateSize: 1728, Layers: 10, Heads: 10, KVHeads: 5, HeadDim: 64},
}

func preset(name string) *Model {
	c := presets[name]
	c.ModelType, c.TieEmbeddings, c.RMSNormEps, c.RopeTheta, c.InitRange, c.MaxPositions = "llama", true, 1e-6, 10000,
		0.02, 2048
	return Init(&c, 1)
}

// randomBatch is rows of 128 tokens; all but the first are targets.
func randomBatch(m *Model, rows int) packed {
	r := rand.New(rand.NewPCG(1, 1))
	var groups []group
	for range rows {
		ids := make([]int32, 129)
		for i := range ids {
			ids[i] = int32(r.IntN(m.Config.VocabSize))
		}
		groups = append(groups, group{ids[:1], [][]int32{ids[1:]}})
	}
	return pack(groups, false, 0)
}

// BenchmarkStep is forward and backward of 8x128 tokens, without the optimiser.
//
//	go test ./model -run '^$' -bench Step/5.4M -benchtime 10x
func BenchmarkStep(b *testing.B) {
	for _, name := range []string{"5.4M", "57M"} {
		for _, e := range backendtest.Engines(b) {
			for _, o := range []GraphOptions{{}, {Checkpoint: true}, {HeadChunk: 256}} {
				b.Run(fmt.Sprintf("%s/%s/checkpoint=%v,chunk=%d", name, e.Name, o.Checkpoint, o.HeadChunk),
					func(b *testing.B) {
						benchmarkStep(b, e, preset(name), o)
					})
			}
		}
	}
}

func benchmarkStep(b *testing.B, e *backend.Engine, m *Model, o GraphOptions) {
	p := randomBatch(m, 8)
	program, err := e.Compile("step", func(g *graph.Graph) []*graph.Node {
		params := m.Config.Parameters(g)
		in := m.Config.Inputs(g, p.rows, p.tokens, len(p.source), e.Wants.HostRows)
		loss := graph.ReduceAllMean(m.Config.LogProbs(params, in, o))
		wrt := params
		if in.EmbedRows != nil {
			wrt = append(wrt, in.EmbedRows, in.TargetRows)
		}
		return append([]*graph.Node{loss}, graph.Gradient(loss, wrt...)...)
	})
	if err != nil {
		b.Fatal(err)
	}
	defer program.Close()
	in := append(weights(b, e, m), p.inputs(b, e, m)...)
	defer backend.FinalizeAll(in...)
	runFreely(b, program, in)
	for b.Loop() {
		runFreely(b, program, in)
	}
	b.ReportMetric(float64(b.N*len(p.ids))/b.Elapsed().Seconds(), "tokens/s")
}

func runFreely(b *testing.B, program *backend.Program, in []compute.Buffer) {
	out, err := program.Run(in, nil)
	if err != nil {
		b.Fatal(err)
	}
	backend.FinalizeAll(out...)
}
