package model

import (
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// group is a prompt and its answers, as token ids.
type group struct {
	prompt  []int32
	answers [][]int32
}

// packed is a packed batch on the host, with the fields of Inputs.
type packed struct {
	rows, tokens, blocks             int
	ids, positions, groups, segments []int32 // [rows, tokens]
	source, target, answer, inverse  []int32
}

// pack lays out groups with extra padding tokens and slots: one group per row if share, else one answer per row.
func pack(groups []group, share bool, extra int) packed {
	var rows [][]group
	for _, g := range groups {
		if share {
			rows = append(rows, []group{g})
			continue
		}
		for _, a := range g.answers {
			rows = append(rows, []group{{g.prompt, [][]int32{a}}})
		}
	}
	return packRows(rows, extra)
}

// packRows lays out rows of one or more groups.
func packRows(rows [][]group, extra int) packed {
	p := packed{rows: len(rows)}
	for _, r := range rows {
		n := extra
		for _, g := range r {
			n += len(g.prompt) - 1
			for _, a := range g.answers {
				n += len(a) // without its last token, with a copy of the prompt's last
			}
		}
		p.tokens = max(p.tokens, n)
	}
	p.clear()
	answer := int32(0)
	for r, row := range rows {
		at := r * p.tokens
		for k, g := range row {
			at = p.lay(at, int32(k), g, &answer)
		}
	}
	for s, from := range p.source {
		p.inverse[from] = int32(s)
	}
	for range extra { // all padding slots take position 0
		p.source, p.target, p.answer = append(p.source, 0), append(p.target, 0), append(p.answer, -1)
	}
	for i, s := range p.inverse {
		if s < 0 {
			p.inverse[i] = int32(len(p.source))
		}
	}
	return p
}

func (p *packed) clear() {
	n := p.rows * p.tokens
	p.ids, p.positions, p.segments = make([]int32, n), make([]int32, n), make([]int32, n)
	p.groups, p.inverse = slices.Repeat([]int32{-1}, n), slices.Repeat([]int32{-1}, n)
}

// lay writes one group at flat index at and returns the next free index.
func (p *packed) lay(at int, id int32, g group, answer *int32) int {
	put := func(token int32, position int, segment int32) {
		p.ids[at], p.positions[at], p.groups[at], p.segments[at] = token, int32(position), id, segment
		at++
	}
	last := len(g.prompt) - 1
	for i, token := range g.prompt[:last] {
		put(token, i, 0)
	}
	for k, a := range g.answers {
		for i, token := range a {
			p.source, p.target, p.answer = append(p.source, int32(at)), append(p.target, token),
				append(p.answer, *answer)
			if i == 0 {
				put(g.prompt[last], last, int32(k+1))
			} else {
				put(a[i-1], last+i, int32(k+1))
			}
		}
		*answer++
	}
	return at
}

// inputs are the buffers of a packed batch in the order of Config.Inputs.
func (p packed) inputs(t testing.TB, e *backend.Engine, m *Model) []compute.Buffer {
	t.Helper()
	var out []compute.Buffer
	add := func(b compute.Buffer, err error) {
		t.Helper()
		expect.OK(t, err)
		out = append(out, b)
	}
	for _, x := range [][]int32{p.positions, p.groups, p.segments} {
		add(e.Int32(x, p.rows, p.tokens))
	}
	add(e.Int32(p.source, len(p.source)))
	add(e.Int32(p.inverse, len(p.inverse)))
	if e.Wants.HostRows {
		h := m.Config.HiddenSize
		add(e.Float32(copyRows(m.Params[m.EmbedTable()].Data, p.ids, h), len(p.ids), h))
		add(e.Float32(copyRows(m.Params[m.HeadTable()].Data, p.target, h), len(p.target), h))
	} else {
		add(e.Int32(p.ids, p.rows, p.tokens))
		add(e.Int32(p.target, len(p.target)))
	}
	return out
}

func copyRows(table []float32, ids []int32, h int) []float32 {
	var out []float32
	for _, id := range ids {
		out = append(out, table[int(id)*h:][:h]...)
	}
	return out
}

func addRows(table, rows []float32, ids []int32, h int) {
	for i, id := range ids {
		for j := range h {
			table[int(id)*h+j] += rows[i*h+j]
		}
	}
}

// weights are the buffers of a model's weights.
func weights(t testing.TB, e *backend.Engine, m *Model) []compute.Buffer {
	return weightsIn(t, e, m, dtypes.Float32)
}

// weightsIn are weights whose matrices are in a type.
func weightsIn(t testing.TB, e *backend.Engine, m *Model, dtype dtypes.DType) []compute.Buffer {
	t.Helper()
	var out, scales []compute.Buffer
	held := m.Config.Held()
	for i, p := range m.Params {
		if i == m.Config.baseCount() {
			out = append(out, scales...)
		}
		if held[i].DType == dtypes.Uint8 {
			q := Quantize(p.Data)
			out = append(out, must(e.On(nil).Uint8(q.Codes, held[i].Shape...)))
			scales = append(scales, must(e.Float32(q.Scales, len(q.Scales))))
			continue
		}
		out = append(out, must(e.Floats(MatrixType(p.Shape, dtype), p.Data, p.Shape...)))
	}
	return out
}

// evaluate compiles build for a model and a packed batch and runs it several times. The results are copies.
func evaluate(t testing.TB, e *backend.Engine, m *Model, p packed, times int,
	build func(params []*graph.Node, in Inputs) []*graph.Node) [][][]float32 {
	t.Helper()
	program, err := e.Compile("test", func(g *graph.Graph) []*graph.Node {
		params := m.Config.Parameters(g)
		in := m.Config.Inputs(g, p.rows, p.tokens, len(p.source), e.Wants.HostRows)
		in.Blocks = p.blocks
		return build(params, in)
	})
	expect.OK(t, err)
	defer program.Close()
	in := append(weights(t, e, m), p.inputs(t, e, m)...)
	defer backend.FinalizeAll(in...)
	var runs [][][]float32
	for range times {
		runs = append(runs, runOnce(t, program, in))
	}
	return runs
}

func runOnce(t testing.TB, program *backend.Program, in []compute.Buffer) (out [][]float32) {
	t.Helper()
	buffers := expect.Must(program.Run(in, nil))(t)
	defer backend.FinalizeAll(buffers...)
	for _, b := range buffers {
		x := expect.Must(backend.Floats(b))(t)
		out = append(out, slices.Clone(x))
	}
	return out
}

// logitsOf computes the logits [S][V].
func logitsOf(t testing.TB, e *backend.Engine, m *Model, p packed) [][]float32 {
	t.Helper()
	out := evaluate(t, e, m, p, 1, func(params []*graph.Node, in Inputs) []*graph.Node {
		return []*graph.Node{m.Config.Logits(params, in, GraphOptions{})}
	})[0][0]
	return slices.Collect(slices.Chunk(out, m.Config.VocabSize))
}

// logProbsOf computes log p(target) [S].
func logProbsOf(t testing.TB, e *backend.Engine, m *Model, p packed, o GraphOptions) []float32 {
	t.Helper()
	return evaluate(t, e, m, p, 1, func(params []*graph.Node, in Inputs) []*graph.Node {
		return []*graph.Node{m.Config.LogProbs(params, in, o)}
	})[0][0]
}

// step is the result of a training step: log-probs [S] and the gradients of a weighted sum of them.
type step struct {
	logps []float32
	grads [][]float32 // by parameter
}

// gradientsOf runs a step several times. The loss is the sum over slots of weight times log-prob; padding has weight 0.
func gradientsOf(t testing.TB, e *backend.Engine, m *Model, p packed, o GraphOptions, times int) []step {
	t.Helper()
	runs := evaluate(t, e, m, p, times, func(params []*graph.Node, in Inputs) []*graph.Node {
		logps := m.Config.LogProbs(params, in, o)
		loss := graph.ReduceAllSum(graph.Mul(logps, graph.ConvertDType(graph.Const(logps.Graph(), p.slotWeights()),
			logps.DType())))
		wrt := slices.Clone(params)
		if in.EmbedRows != nil {
			wrt = append(wrt, in.EmbedRows, in.TargetRows)
		}
		out := append([]*graph.Node{logps}, graph.Gradient(loss, wrt...)...)
		for i := range out {
			out[i] = graph.ConvertDType(out[i], dtypes.Float32)
		}
		return out
	})
	var steps []step
	for _, out := range runs {
		s := step{out[0], out[1 : 1+len(m.Params)]}
		if rows := out[1+len(m.Params):]; len(rows) == 2 {
			addRows(s.grads[m.EmbedTable()], rows[0], p.ids, m.Config.HiddenSize)
			addRows(s.grads[m.HeadTable()], rows[1], p.target, m.Config.HiddenSize)
		}
		steps = append(steps, s)
	}
	return steps
}

// slotWeights give the slots different weights: answers differ in sign and size.
func (p packed) slotWeights() []float32 {
	out := make([]float32, len(p.answer))
	for i, a := range p.answer {
		if a >= 0 {
			out[i] = float32([]int{-3, 2, 1, -2}[a%4]) / 4
		}
	}
	return out
}
