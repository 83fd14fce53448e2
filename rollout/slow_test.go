package rollout

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/model"
)

// Shapes that forward passes are compiled for: one of rowCounts rows, of a multiple of lengthStep tokens.
const lengthStep = 32

var rowCounts = []int{1, 4, 16, 64}

// batchTokens bounds a forward pass: attention grows with the rows and the square of the length.
const batchTokens = 16384

// Recompute samples with a forward pass over the whole text for every token: slow, but easy to verify.
type Recompute struct {
	engine   *backend.Engine
	config   *model.Config
	options  Options
	weights  func() []compute.Buffer
	programs *backend.Cache
	passes   func(rows, length int) // in tests: called for every forward pass
}

// NewRecompute makes a sampler. weights is as in [NewCached].
func NewRecompute(e *backend.Engine, c *model.Config, weights func() []compute.Buffer, o Options) *Recompute {
	return &Recompute{engine: e, config: c, options: o, weights: weights, programs: e.NewCache(),
		passes: func(int, int) {}}
}

// Close frees the compiled programs; the weights stay.
func (s *Recompute) Close() { s.programs.Close() }

// Sample answers the requests, as many at a time as fit a forward pass.
func (s *Recompute) Sample(ctx context.Context, requests []Request) ([]Completion, error) {
	for i, r := range requests {
		if err := r.check(s.config, s.options.Decoder); err != nil {
			return nil, fmt.Errorf("request %d: %w", i, err)
		}
	}
	completions := make([]Completion, len(requests))
	for at := 0; at < len(requests); {
		n := s.batch(requests[at:])
		if err := s.sample(ctx, requests[at:at+n], completions[at:at+n], at); err != nil {
			return nil, err
		}
		at += n
	}
	return completions, nil
}

// batch returns how many of the requests are answered together.
func (s *Recompute) batch(requests []Request) int {
	length, most := 0, rowCounts[len(rowCounts)-1]
	for n, r := range requests {
		length = max(length, min(len(r.Prompt)+r.MaxNew, s.config.MaxPositions))
		if n == most || n > 0 && rowBucket(n+1)*lengthBucket(length) > batchTokens {
			return n
		}
	}
	return len(requests)
}

// sample answers requests that fit one forward pass; first is the index of the first one.
func (s *Recompute) sample(ctx context.Context, requests []Request, completions []Completion, first int) error {
	answers := make([]*answer, len(requests))
	for i, r := range requests {
		answers[i] = newAnswer(r, first+i, s.config, s.options.Decoder, &completions[i])
	}
	weights := s.weights()
	for len(answers) > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := s.step(answers, weights); err != nil {
			return err
		}
		answers = slices.DeleteFunc(answers, (*answer).isFinished)
	}
	return nil
}

// step draws the next token of every answer.
func (s *Recompute) step(answers []*answer, weights []compute.Buffer) error {
	logits, err := s.logits(answers, weights)
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(logits)
	all, err := backend.Floats(logits)
	if err != nil {
		return err
	}
	v := s.config.VocabSize
	return extend(answers, func(i int) (int32, float32, error) {
		return choose(all[i*v:(i+1)*v], answers[i].request.Sampling, answers[i].draw())
	})
}

// logits runs a forward pass and returns the logits [rows, V] of every answer's next token; further rows are padding.
func (s *Recompute) logits(answers []*answer, weights []compute.Buffer) (compute.Buffer, error) {
	b := pad(answers)
	s.passes(b.rows, b.length)
	p, err := s.programs.Program(fmt.Sprintf("logits/%dx%d", b.rows, b.length), func(g *graph.Graph) []*graph.Node {
		return []*graph.Node{s.build(g, b.rows, b.length)}
	})
	if err != nil {
		return nil, err
	}
	inputs, err := s.feed(b, weights)
	defer backend.FinalizeAll(inputs...)
	if err != nil {
		return nil, err
	}
	out, err := p.Run(append(slices.Clone(weights), inputs...), nil)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// build makes the graph of a forward pass: weights, then the inputs in the order of feed.
func (s *Recompute) build(g *graph.Graph, rows, length int) *graph.Node {
	ints := func(name string, dims ...int) *graph.Node {
		return graph.Parameter(g, name, shapes.Make(dtypes.Int32, dims...))
	}
	c := s.config
	params := c.Parameters(g)
	in := model.Inputs{
		Positions: ints("positions", rows, length), Groups: ints("groups", rows, length),
		Segments: ints("segments", rows, length), Source: ints("source", rows),
	}
	if s.engine.Wants.HostRows {
		in.EmbedRows = graph.Parameter(g, "embed_rows", shapes.Make(dtypes.Float32, rows*length, c.HiddenSize))
	} else {
		in.Tokens = ints("tokens", rows, length)
	}
	return c.Logits(params, in, s.options.Graph)
}

// padded holds answers as rows of one length.
type padded struct {
	rows, length                        int
	tokens, positions, groups, segments []int32 // [rows, length]
	source                              []int32 // [rows] index of each text's last token
}

func pad(answers []*answer) *padded {
	most := 0
	for _, a := range answers {
		most = max(most, len(a.tokens))
	}
	b := &padded{rows: rowBucket(len(answers)), length: lengthBucket(most)}
	n := b.rows * b.length
	b.tokens, b.positions, b.groups, b.segments = make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, n)
	b.source = make([]int32, b.rows)
	for i := range b.groups {
		b.groups[i] = -1
	}
	for row := range b.rows {
		b.source[row] = int32(row * b.length)
	}
	for row, a := range answers {
		b.put(row, a.tokens)
	}
	return b
}

func (b *padded) put(row int, tokens []int32) {
	at := row * b.length
	copy(b.tokens[at:], tokens)
	for i := range tokens {
		b.positions[at+i], b.groups[at+i] = int32(i), 0
	}
	b.source[row] = int32(at + len(tokens) - 1)
}

// rowBucket returns the least compiled number of rows that holds n.
func rowBucket(n int) int {
	i, _ := slices.BinarySearch(rowCounts, n)
	return rowCounts[i]
}

func lengthBucket(n int) int { return (n + lengthStep - 1) / lengthStep * lengthStep }

// feed makes the buffers of a batch.
func (s *Recompute) feed(b *padded, weights []compute.Buffer) (buffers []compute.Buffer, err error) {
	put := func(x compute.Buffer, e error) {
		if e != nil && err == nil {
			err = e
		}
		buffers = append(buffers, x)
	}
	put(s.engine.Int32(b.positions, b.rows, b.length))
	put(s.engine.Int32(b.groups, b.rows, b.length))
	put(s.engine.Int32(b.segments, b.rows, b.length))
	put(s.engine.Int32(b.source, b.rows))
	if s.engine.Wants.HostRows {
		put(s.embed(b.tokens, weights[s.config.EmbedTable()]))
	} else {
		put(s.engine.Int32(b.tokens, b.rows, b.length))
	}
	return buffers, err
}

// embed copies the embedding rows of ids into a new buffer [len(ids), H].
func (s *Recompute) embed(ids []int32, table compute.Buffer) (compute.Buffer, error) {
	from, err := backend.Floats(table)
	if err != nil {
		return nil, err
	}
	h := s.config.HiddenSize
	b, to, err := s.engine.SharedFloat32(len(ids), h)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		copy(to[i*h:(i+1)*h], from[int(id)*h:])
	}
	return b, nil
}

// choose picks the token of a row of logits [V] for the draw u, in float64, and returns its log-prob at temperature 1.
// It sorts and passes over all logits; [row.choose] picks the same tokens faster and is tested against it.
//
// Each of TopK, TopP and MinP amounts to a least logit, so together they keep the tokens from one threshold on.
func choose(logits []float32, s Sampling, u float64) (token int32, logp float32, err error) {
	best, total, err := softmax(logits)
	if err != nil {
		return 0, 0, err
	}
	if token = int32(best); s.Temperature > 0 {
		top := float64(logits[best])
		token = s.inverse(logits, top, s.threshold(logits, top), u)
	}
	return token, float32(float64(logits[token]-logits[best]) - math.Log(total)), nil
}

// threshold returns the least logit that is kept.
func (s Sampling) threshold(logits []float32, top float64) float32 {
	least := float32(math.Inf(-1))
	if !s.truncates(len(logits)) {
		return least
	}
	sorted := slices.Clone(logits)
	slices.SortFunc(sorted, func(a, b float32) int { return cmp.Compare(b, a) })
	if s.TopK > 0 && s.TopK < len(sorted) {
		least = sorted[s.TopK-1]
		for sorted[len(sorted)-1] < least {
			sorted = sorted[:len(sorted)-1]
		}
	}
	if s.usesTopP() {
		least = max(least, s.topPThreshold(sorted, top))
	}
	return max(least, s.minPThreshold(top))
}

// topPThreshold returns the least of the fewest greatest logits whose share of all weights reaches TopP. It sums small
// weights first.
func (s Sampling) topPThreshold(sorted []float32, top float64) float32 {
	total, sum := 0.0, 0.0
	for _, z := range slices.Backward(sorted) {
		total += s.weight(z, top)
	}
	for _, z := range sorted {
		if sum += s.weight(z, top); sum >= s.TopP*total {
			return z
		}
	}
	return sorted[len(sorted)-1]
}

// softmax returns the likeliest token and the sum of exp(logit - its logit).
func softmax(logits []float32) (best int, total float64, err error) {
	for i, z := range logits {
		if z != z || math.IsInf(float64(z), 1) {
			return 0, 0, fmt.Errorf("the logit of token %d is %v: the model's weights are broken", i, z)
		}
		if z > logits[best] {
			best = i
		}
	}
	for _, z := range logits {
		total += float.Exp(float64(z) - float64(logits[best]))
	}
	return best, total, nil
}

// inverse returns the first token, in the order of ids, whose cumulative probability exceeds u, among those whose
// logits are least or more.
func (s Sampling) inverse(logits []float32, top float64, least float32, u float64) int32 {
	total := 0.0
	for _, z := range logits {
		if z >= least {
			total += s.weight(z, top)
		}
	}
	sum, last := 0.0, 0
	for i, z := range logits {
		if z < least {
			continue
		}
		p := s.weight(z, top)
		if sum += p; sum > u*total {
			return int32(i)
		}
		if p > 0 {
			last = i
		}
	}
	return int32(last) // u is close to 1 and rounding cut the sum short
}
