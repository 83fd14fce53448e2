package rollout

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/backend"
)

// headOutputs is how many outputs of a program are its head.
const headOutputs = 4

// head is what tokens are drawn from: the outputs of a program as rows.
type head struct {
	logits, sums, maxima, logSumExp []float32
	temperatures                    []float64 // [rows] of the sums
	vocabulary                      int
}

// readHead reads what a program gave, but for the logits.
func (w *wave) readHead(out []compute.Buffer, temperatures []float64) (*head, error) {
	h := &head{temperatures: temperatures, vocabulary: w.config.VocabSize}
	for i, to := range []*[]float32{&h.sums, &h.maxima, &h.logSumExp} {
		var err error
		if *to, err = backend.Floats(out[i+1]); err != nil {
			return nil, fmt.Errorf("output %d: %w", i+1, err)
		}
	}
	return h, nil
}

// extend draws a token for every seat from what a program gave; place tells the seats' rows.
func (w *wave) extend(out []compute.Buffer, temperatures []float64, seats []*seat, place func(s *seat) int) error {
	h, err := w.readHead(out, temperatures)
	if err != nil {
		return err
	}
	rows := make([]row, len(seats))
	answers := make([]*answer, len(seats))
	for i, s := range seats {
		rows[i], answers[i] = h.row(place(s)), s.answer
	}
	if err := w.readLogits(out[0], h, rows, seats, place); err != nil {
		return err
	}
	return extend(answers, func(i int) (int32, float32, error) {
		return rows[i].choose(ruleOf(answers[i].request), answers[i].draw())
	})
}

// readLogits completes the seats' rows. Logits that lie on a device stay there, all but the blocks that decide, unless
// there is a seat that needs more.
func (w *wave) readLogits(logits compute.Buffer, h *head, rows []row, seats []*seat, place func(s *seat) int) (err error) {
	blocks, ok := make([]int32, powerOf(len(seats))), w.plan.inGraph
	for i := 0; ok && i < len(seats); i++ {
		var at int
		at, _, ok = rows[i].decisive(ruleOf(seats[i].request), seats[i].draw())
		ok = ok && rows[i].sound() == nil
		blocks[i] = int32(place(seats[i])*len(rows[i].sums) + at)
	}
	if ok {
		picked, err := w.pick(logits, len(h.temperatures), blocks)
		for i := 0; err == nil && i < len(seats); i++ {
			rows[i].only = picked[i*block : (i+1)*block]
		}
		return err
	}
	if h.logits, err = backend.Floats(logits); err != nil {
		return err
	}
	for i, s := range seats {
		rows[i].logits = h.row(place(s)).logits
	}
	return nil
}

// pick reads some blocks of logits [rows, V] on a device, counted through all rows: [len(blocks), block].
func (w *wave) pick(logits compute.Buffer, rows int, blocks []int32) ([]float32, error) {
	index, err := w.engine.Int32(blocks, len(blocks), 1)
	if err != nil {
		return nil, err
	}
	defer backend.FinalizeAll(index)
	v := w.config.VocabSize
	p, err := w.prefills.Program(fmt.Sprintf("pick/%d/%d", rows, len(blocks)), func(g *graph.Graph) []*graph.Node {
		z := graph.Parameter(g, "logits", shapes.Make(dtypes.Float32, rows, v))
		i := graph.Parameter(g, "blocks", shapes.Make(dtypes.Int32, len(blocks), 1))
		if missing := (block - v%block) % block; missing > 0 {
			z = graph.Pad(z, graph.Infinity(g, dtypes.Float32, -1), graph.PadAxis{}, graph.PadAxis{End: missing})
		}
		return []*graph.Node{graph.Gather(graph.Reshape(z, -1, block), i)}
	})
	if err != nil {
		return nil, err
	}
	out, err := p.Run([]compute.Buffer{logits, index}, nil)
	if err != nil {
		return nil, err
	}
	defer backend.FinalizeAll(out...)
	picked, err := backend.Floats(out[0])
	return slices.Clone(picked), err // the outputs go
}

// row is row number i.
func (h *head) row(i int) row {
	of := func(x []float32) []float32 {
		if x == nil {
			return nil
		}
		n := len(x) / len(h.temperatures)
		return x[i*n : (i+1)*n]
	}
	return row{of(h.logits), nil, of(h.sums), of(h.maxima), h.logSumExp[i], h.temperatures[i], h.vocabulary}
}
