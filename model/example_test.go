package model_test

import (
	"fmt"
	"io/fs"
	"log"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/tokenizer"
)

// Which continuation is more likely under the embedded model?
func ExampleConfig_LogProbs() {
	folder := must(fs.Sub(embedded.Files, embedded.Model))
	m, tok := must(model.LoadFS(folder, "embedded")), must(tokenizer.LoadFS(folder, "embedded"))
	engine := must(backend.Open("go"))
	defer engine.Close()
	for _, text := range []string{"Please write an email to my dentist", "Please write an email two my dentist"} {
		fmt.Printf("%s: %.0f\n", text, sumOfLogProbs(engine, m, must(tok.Encode(text, true))))
	}
	// Output:
	// Please write an email to my dentist: -126
	// Please write an email two my dentist: -148
}

// sumOfLogProbs is the log-probability of ids[1:] after ids[0].
func sumOfLogProbs(e *backend.Engine, m *model.Model, ids []int32) (sum float32) {
	n := len(ids)
	program := must(e.Compile("log-probs", func(g *graph.Graph) []*graph.Node {
		row := shapes.Make(dtypes.Int32, 1, n)
		in := model.Inputs{
			Tokens: graph.Const(g, [][]int32{ids}), Positions: graph.Iota(g, row, 1),
			Groups: graph.Zeros(g, row), Segments: graph.Zeros(g, row),
			Source: graph.Iota(g, shapes.Make(dtypes.Int32, n-1), 0), Target: graph.Const(g, ids[1:]),
		}
		return []*graph.Node{m.Config.LogProbs(m.Config.Parameters(g), in, model.GraphOptions{})}
	}))
	defer program.Close()
	var weights []compute.Buffer
	for _, p := range m.Params {
		weights = append(weights, must(e.Float32(p.Data, p.Shape...)))
	}
	out := must(program.Run(weights, nil))
	defer backend.FinalizeAll(append(weights, out...)...)
	for _, logProb := range must(backend.Floats(out[0])) {
		sum += logProb
	}
	return sum
}

func must[T any](x T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return x
}
