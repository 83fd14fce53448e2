package rollout

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/model"
)

// peakBlocks is how many blocks of a row leave the device for a peak. They decide 93 of 100 draws of SmolLM2-135M at
// temperature 1 and top-p 0.9.
const peakBlocks = 128

// peak is the part of a row that leaves the device for a draw whose rules drop tokens: all logits above a limit, in the
// order of their ids. It decides the draw if the rules drop all others.
type peak struct {
	row   // logits are those of the peak; without maxima
	ids   []int32
	limit float32
	top   float64 // the greatest logit
}

// choose is [row.choose], with the same bits, or nil if the peak does not decide the draw.
func (p peak) choose(s Sampling, u float64) *drawnToken {
	least, ok := p.threshold(s)
	if lse := float64(p.logSumExp); !ok || least <= p.limit || math.IsNaN(lse) || math.IsInf(lse, 0) {
		return nil
	}
	i := s.inverse(p.logits, p.top, least, u)
	return &drawnToken{p.ids[i], float32(float64(p.logits[i]) - float64(p.logSumExp))}
}

// threshold is [row.threshold], or false if the peak does not show it.
func (p peak) threshold(s Sampling) (least float32, ok bool) {
	least, likely := s.minPThreshold(p.top), slices.Clone(p.logits)
	switch {
	case s.usesTopK(p.vocabulary):
		if len(likely) < s.TopK {
			return 0, false
		}
		least = max(least, s.topKThreshold(likely, p.top))
	case s.usesTopP():
		if s.Temperature != p.temperature {
			return 0, false // of the sums, of which the share is
		}
		target := s.TopP * p.total(s, p.top)
		if s.sum(likely, p.top) < target {
			return 0, false
		}
		least = max(least, s.edge(likely, p.top, target))
	}
	return least, true
}

// peaks are those of a program's rows.
type peaks struct {
	head                       // without logits and maxima
	blocks, greatest []float32 // [rows, n, block] and [rows, n+1], as model.Config.LikeliestBlocks gives them
	numbers          []int32   // [rows, n]
}

// hasPeaks says whether peaks are read: if they are less than half of the logits, on an engine that
// sorts by a function.
func (s *Cached) hasPeaks() bool {
	return !s.engine.Wants.SharedMemory && s.config.SampleBlocks() > 2*s.peak &&
		s.engine.Capabilities().Functions
}

// readPeaks reads the peaks of the rows of a program's outputs.
func (w *wave) readPeaks(out []compute.Buffer, temperatures []float64) (*peaks, error) {
	found, err := w.onHead("peaks", out, len(temperatures), func(in []*graph.Node) []*graph.Node {
		blocks, numbers, greatest := w.config.LikeliestBlocks(in[logitsOutput], in[maximaOutput], w.peak)
		return []*graph.Node{blocks, greatest, numbers}
	})
	if err != nil {
		return nil, err
	}
	defer backend.FinalizeAll(found...)
	p := &peaks{head: head{temperatures: temperatures, vocabulary: w.config.VocabSize}}
	err = cmp.Or(w.read(&p.blocks, found[0]), w.read(&p.greatest, found[1]), w.read(&p.sums, out[sumsOutput]),
		w.read(&p.logSumExp, out[logSumExpOutput]))
	if err == nil {
		p.numbers, err = backend.Ints(found[2])
		w.fetched += len(p.numbers)
	}
	return p, err
}

// peak gives that of row i.
func (p *peaks) peak(i int) peak {
	rows := len(p.temperatures)
	blocks, greatest, numbers := nth(p.blocks, i, rows), nth(p.greatest, i, rows), nth(p.numbers, i, rows)
	x := peak{row: p.row(i), top: float64(greatest[0]), limit: greatest[len(greatest)-1]}
	for _, n := range orderOf(numbers) {
		for k, z := range blocks[n*block : (n+1)*block] {
			if z > x.limit {
				x.ids, x.logits = append(x.ids, numbers[n]*block+int32(k)), append(x.logits, z)
			}
		}
	}
	return x
}

// orderOf gives the indices of numbers from the least to the greatest.
func orderOf(numbers []int32) []int {
	order := make([]int, len(numbers))
	for n := range order {
		order[n] = n
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(numbers[a], numbers[b]) })
	return order
}

// drawFromPeaks draws for seats whose rules drop tokens, where a row's peak decides the draw.
func (w *wave) drawFromPeaks(out []compute.Buffer, temperatures []float64, seats []*seat, place func(s *seat) int,
	drawn []*drawnToken) error {
	byPeak := func(s *seat) bool { return s.request.Temperature > 0 && s.request.truncates(w.config.VocabSize) }
	if !w.hasPeaks() || !slices.ContainsFunc(seats, byPeak) {
		return nil
	}
	p, err := w.readPeaks(out, temperatures)
	if err != nil {
		return err
	}
	backend.Parallel(len(seats), func(i int) {
		if s := seats[i]; byPeak(s) {
			drawn[i] = p.peak(place(s)).choose(s.request.Sampling, s.draw())
		}
	})
	return nil
}

// nth is part i of n equal parts.
func nth[T any](x []T, i, n int) []T { return x[i*len(x)/n : (i+1)*len(x)/n] }

// readRows reads rows of a program's outputs: one by one, or all if these are not few.
func (w *wave) readRows(out []compute.Buffer, temperatures []float64, wanted []int) (map[int]row, error) {
	rows := map[int]row{}
	if len(wanted) == 0 {
		return rows, nil
	}
	if !w.hasPeaks() || fewWanted*len(wanted) > len(temperatures) {
		h, err := w.readHead(out, temperatures)
		for _, i := range wanted {
			if err == nil {
				rows[i] = h.row(i)
			}
		}
		return rows, err
	}
	for _, i := range wanted {
		var err error
		if rows[i], err = w.readRow(out, temperatures, i); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// fewWanted is how many rows a program has for each that is read by itself; where more are wanted, all are read.
const fewWanted = 4

// readRow reads one row.
func (w *wave) readRow(out []compute.Buffer, temperatures []float64, i int) (row, error) {
	index, err := w.engine.Int32([]int32{int32(i)}, 1)
	if err != nil {
		return row{}, err
	}
	defer backend.FinalizeAll(index)
	found, err := w.onHead("row", out, len(temperatures), func(in []*graph.Node) []*graph.Node {
		return model.RowOf(graph.Parameter(in[0].Graph(), "index", shapes.Make(dtypes.Int32, 1)), in...)
	}, index)
	if err != nil {
		return row{}, err
	}
	defer backend.FinalizeAll(found...)
	h, err := w.readHead(found, temperatures[i:i+1])
	if err != nil {
		return row{}, err
	}
	return h.row(0), nil
}

// onHead runs a small program on the head's part of a program's outputs and more inputs.
func (w *wave) onHead(name string, out []compute.Buffer, rows int, build func(in []*graph.Node) []*graph.Node,
	more ...compute.Buffer) ([]compute.Buffer, error) {
	name = fmt.Sprintf("%s/%d", name, rows)
	w.trace(name)
	p, err := w.prefills.Program(name, func(g *graph.Graph) []*graph.Node {
		in := make([]*graph.Node, headOutputs)
		for i, dims := range [headOutputs][]int{
			logitsOutput: {rows, w.config.VocabSize}, sumsOutput: {rows, w.config.SampleBlocks()},
			maximaOutput: {rows, w.config.SampleBlocks()}, logSumExpOutput: {rows},
		} {
			in[i] = graph.Parameter(g, fmt.Sprint("head_", i), shapes.Make(dtypes.Float32, dims...))
		}
		return build(in)
	})
	if err != nil {
		return nil, err
	}
	return p.Run(append(slices.Clone(out[:headOutputs]), more...), nil)
}

// read reads an output and counts its numbers.
func (w *wave) read(to *[]float32, from compute.Buffer) (err error) {
	*to, err = backend.Floats(from)
	w.fetched += len(*to)
	return err
}
