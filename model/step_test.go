package model

import (
	"math"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// cachedText decodes given texts by prefill and steps: prompts, each with samples answers, all of one length.
type cachedText struct {
	prompts [][]int32
	answers [][]int32 // [prompts*samples]
	samples int
	shared  bool // samples share their prompt's part of the cache; otherwise each row holds all of its text
	inGraph bool
	padding int // of the prompts, and unused slots of the suffix
	options GraphOptions
	inverse float32 // 1/temperature
}

// texts are prompts of different lengths with answers of 6 tokens.
func texts(samples int) cachedText {
	c := cachedText{samples: samples, padding: 3, inverse: 1.25}
	for i, n := range []int{9, 1, 4} {
		var prompt []int32
		for j := range n {
			prompt = append(prompt, int32(3+(7*i+5*j+j*j)%29))
		}
		c.prompts = append(c.prompts, prompt)
		for s := range samples {
			var answer []int32
			for j := range 6 {
				answer = append(answer, int32(2+(3*i+11*s+j*j*j)%30))
			}
			c.answers = append(c.answers, answer)
		}
	}
	return c
}

// rowHeads are the outputs of the sampling head for one row: after the prompt's last token and after the answer's
// tokens.
type rowHeads struct{ logits, sums, maxima, lse [][]float32 }

func (h *rowHeads) add(c *Config, row int, out [][]float32) {
	v, n := c.VocabSize, c.SampleBlocks()
	h.logits = append(h.logits, out[0][row*v:(row+1)*v])
	h.sums = append(h.sums, out[1][row*n:(row+1)*n])
	h.maxima = append(h.maxima, out[2][row*n:(row+1)*n])
	h.lse = append(h.lse, out[3][row:row+1])
}

// decode runs prefill and steps on the given answers. Without host buffers the cache is in the graph.
func (c cachedText) decode(t testing.TB, e *backend.Engine, m *Model) []rowHeads {
	t.Helper()
	c.inGraph = c.inGraph || !e.Wants.SharedMemory
	prompt := c.prefill(t, e, m)
	rows := make([]rowHeads, len(c.answers))
	for r := range rows {
		rows[r].add(m.Config, r/c.samples, prompt)
	}
	if c.inGraph {
		c.stepsInGraph(t, e, m, prompt[4:], rows)
	} else {
		c.stepsOnHost(t, e, m, prompt[4:], rows)
	}
	return rows
}

func (c cachedText) promptTokens() int {
	n := 0
	for _, p := range c.prompts {
		n = max(n, len(p))
	}
	return n + c.padding
}

func (c cachedText) prefill(t testing.TB, e *backend.Engine, m *Model) [][]float32 {
	t.Helper()
	s := PrefillShape{Prompts: len(c.prompts), Tokens: c.promptTokens(), InGraph: c.inGraph}
	program := compile(t, e, "prefill", func(g *graph.Graph) []*graph.Node {
		params := m.Config.Parameters(g)
		return floats(m.Config.Prefill(params, m.Config.PrefillInputs(g, s, e.Wants.HostRows), c.options).Nodes())
	})
	ids, source := make([]int32, s.Prompts*s.Tokens), make([]int32, s.Prompts)
	for i, p := range c.prompts {
		copy(ids[i*s.Tokens:], p)
		source[i] = int32(i*s.Tokens + len(p) - 1)
	}
	in := weights(t, e, m)
	if h := m.Config.HiddenSize; e.Wants.HostRows {
		in = append(in, must(e.Float32(copyRows(m.Params[0].Data, ids, h), len(ids), h)))
	} else {
		in = append(in, must(e.Int32(ids, s.Prompts, s.Tokens)))
	}
	in = append(in, must(e.Int32(source, s.Prompts)), must(e.Float32(slices.Repeat([]float32{c.inverse}, s.Prompts),
		s.Prompts, 1)))
	defer backend.FinalizeAll(in...)
	return runOnce(t, program, in)
}

// floats converts nodes for the host.
func floats(nodes []*graph.Node) []*graph.Node {
	for i := range nodes {
		nodes[i] = graph.ConvertDType(nodes[i], dtypes.Float32)
	}
	return nodes
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

func compile(t testing.TB, e *backend.Engine, name string, build func(g *graph.Graph) []*graph.Node) *backend.Program {
	t.Helper()
	p := expect.Must(e.Compile(name, build))(t)
	t.Cleanup(p.Close)
	return p
}

func (c cachedText) shape() StepShape {
	s := StepShape{Prompts: len(c.prompts), Samples: c.samples, Prefix: c.promptTokens(),
		Suffix: len(c.answers[0]) + c.padding, InGraph: c.inGraph}
	if c.inGraph && !c.shared {
		s.Prompts, s.Samples = s.Rows(), 1
	} else if !c.shared {
		s.Prompts, s.Samples, s.Suffix, s.Prefix = s.Rows(), 1, s.Prefix+s.Suffix, 0
	}
	return s
}

// feed makes a step's inputs before the cache: the rows' tokens, rotations, masks and temperatures.
func (c cachedText) feed(t testing.TB, e *backend.Engine, m *Model, s StepShape, n int) []compute.Buffer {
	t.Helper()
	ids, positions := make([]int32, s.Rows()), make([]int32, s.Rows())
	masks := make([][]float32, len(m.Config.Windows()))
	for r, a := range c.answers {
		prompt := len(c.prompts[r/c.samples])
		ids[r], positions[r] = a[n], int32(prompt+n)
		inPrefix, inSuffix := c.countFilled(r, n)
		for i, w := range m.Config.Windows() {
			row := slices.Repeat([]float32{7}, s.MaskLen())
			s.Mask(row, inPrefix, inSuffix, w)
			masks[i] = append(masks[i], row...)
		}
	}
	d, h := m.Config.HeadDim, m.Config.HiddenSize
	var in []compute.Buffer
	if e.Wants.HostRows {
		in = append(in, must(e.Float32(copyRows(m.Params[0].Data, ids, h), len(ids), h)))
	} else {
		in = append(in, must(e.Int32(ids, len(ids))))
	}
	for _, r := range m.Config.Rotaries() {
		cos, sin := make([]float32, len(ids)*d), make([]float32, len(ids)*d)
		r.Rows(positions, cos, sin)
		in = append(in, must(e.Float32(cos, len(ids), d)), must(e.Float32(sin, len(ids), d)))
	}
	for _, mask := range masks {
		in = append(in, must(e.Float32(mask, len(ids), s.MaskLen())))
	}
	in = append(in, must(e.Float32(slices.Repeat([]float32{c.inverse}, len(ids)), len(ids), 1)))
	return in
}

// countFilled gives the filled slots of a row before step n.
func (c cachedText) countFilled(row, n int) (inPrefix, inSuffix int) {
	prompt := len(c.prompts[row/c.samples])
	if c.shared {
		return prompt, n
	}
	return 0, prompt + n
}

// hostCache is the cache of one layer in host memory.
type hostCache struct{ keys, values []float32 }

// stepsOnHost decodes with the cache in host memory. Slots that are not filled hold arbitrary numbers.
func (c cachedText) stepsOnHost(t testing.TB, e *backend.Engine, m *Model, prompt [][]float32, rows []rowHeads) {
	t.Helper()
	s, config := c.shape(), m.Config
	program := compile(t, e, "step", func(g *graph.Graph) []*graph.Node {
		return config.Step(config.Parameters(g), config.StepInputs(g, s, e.Wants.HostRows, c.options),
			c.options).Nodes()
	})
	var cache []compute.Buffer
	var own []hostCache
	kv, d := config.KVHeads, config.HeadDim
	for layer := range config.Layers {
		if s.Prefix > 0 {
			cache = append(cache, must(e.Float32(prompt[2*layer], s.Prompts, kv, d, s.Prefix)),
				must(e.Float32(prompt[2*layer+1], s.Prompts, kv, s.Prefix, d)))
		}
		k, keys, err := e.SharedFloat32(s.Prompts, kv, s.Samples, d, s.Suffix)
		expect.OK(t, err)
		v, values, err := e.SharedFloat32(s.Prompts, kv, s.Samples, s.Suffix, d)
		expect.OK(t, err)
		for i := range keys {
			keys[i], values[i] = float32(i), -float32(i)
		}
		cache, own = append(cache, k, v), append(own, hostCache{keys, values})
		if !c.shared {
			c.copyPrompts(config, own[layer], prompt[2*layer], prompt[2*layer+1], s.Suffix)
		}
	}
	params := weights(t, e, m)
	defer backend.FinalizeAll(append(params, cache...)...)
	for n := range c.answers[0] {
		in := c.feed(t, e, m, s, n)
		out := runOnce(t, program, slices.Concat(params, in, cache))
		backend.FinalizeAll(in...)
		for r := range rows {
			rows[r].add(config, r, out)
		}
		for layer, o := range own {
			for r := range rows {
				_, slot := c.countFilled(r, n)
				for h := range kv {
					at := (r/s.Samples*kv+h)*s.Samples + r%s.Samples
					for i := range d {
						o.keys[(at*d+i)*s.Suffix+slot] = out[4+2*layer][at*d+i]
						o.values[(at*s.Suffix+slot)*d+i] = out[5+2*layer][at*d+i]
					}
				}
			}
		}
	}
}

// copyPrompts copies the prompts' keys and values to the start of every row's own cache.
func (c cachedText) copyPrompts(config *Config, own hostCache, keys, values []float32, suffix int) {
	kv, d, tokens := config.KVHeads, config.HeadDim, c.promptTokens()
	for r := range c.answers {
		p := r / c.samples
		for h := range kv {
			for i := range d {
				copy(own.keys[((r*kv+h)*d+i)*suffix:], keys[((p*kv+h)*d+i)*tokens:][:len(c.prompts[p])])
			}
			copy(own.values[(r*kv+h)*suffix*d:], values[(p*kv+h)*tokens*d:][:len(c.prompts[p])*d])
		}
	}
}

// stepsInGraph decodes with the cache on the engine. The first token's slot is late in the ring, and slots hold other
// numbers before.
func (c cachedText) stepsInGraph(t testing.TB, e *backend.Engine, m *Model, prompt [][]float32, rows []rowHeads) {
	t.Helper()
	s, config, dtype := c.shape(), m.Config, c.options.ComputeType()
	program := compile(t, e, "step", func(g *graph.Graph) []*graph.Node {
		return config.Step(config.ParametersIn(g, dtype), config.StepInputs(g, s, false, c.options), c.options).Nodes()
	})
	var prefix, ring []compute.Buffer
	params := weightsIn(t, e, m, dtype)
	row := config.KVHeads * s.Prefix * config.HeadDim
	for _, part := range prompt {
		var all []float32
		for i := range s.Prompts {
			at := i * len(c.prompts) / s.Prompts * row
			all = append(all, part[at:at+row]...)
		}
		prefix = append(prefix, must(e.Floats(dtype, all, s.Prompts, config.KVHeads, s.Prefix, config.HeadDim)))
		dims := []int{s.Prompts, config.KVHeads, s.Samples, s.Suffix, config.HeadDim}
		other := make([]float32, s.Rows()*config.KVHeads*s.Suffix*config.HeadDim)
		for i := range other {
			other[i] = float32(i)
		}
		ring = append(ring, must(e.Floats(dtype, other, dims...)))
	}
	defer backend.FinalizeAll(slices.Concat(params, prefix)...)
	for n := range c.answers[0] {
		state := NewStepState(s.Rows())
		for r, a := range c.answers {
			length := int32(len(c.prompts[r/c.samples]))
			state.Put(r, a[n], length+int32(n), length, c.inverse, 0.5)
		}
		state.SetSlot(int32((s.Suffix - 2 + n) % s.Suffix))
		in := []compute.Buffer{must(e.Int32(state.Ints, 4, s.Rows())), must(e.Float32(state.Reals, 2, s.Rows()))}
		out := expect.Must(program.Run(slices.Concat(params, in, prefix, ring), nil))(t)
		var values [][]float32
		for _, b := range out[:4] {
			values = append(values, slices.Clone(must(backend.Floats(b))))
		}
		for r := range rows {
			rows[r].add(config, r, values)
		}
		backend.FinalizeAll(slices.Concat(in, ring, out[:6])...)
		ring = out[6:]
	}
	backend.FinalizeAll(ring...)
}

// wholeLogits gives the logits of each row's whole text, from the prompt's last token to the answer's last.
func (c cachedText) wholeLogits(t testing.TB, e *backend.Engine, m *Model) [][][]float32 {
	t.Helper()
	var groups []group
	for r, a := range c.answers {
		groups = append(groups, group{c.prompts[r/c.samples], [][]int32{append(slices.Clone(a), 0)}})
	}
	logits := logitsOf(t, e, m, pack(groups, false, 0))
	return slices.Collect(slices.Chunk(logits, len(c.answers[0])+1))
}

// check compares the heads with the logits of whole texts.
func (c cachedText) check(t *testing.T, m *Model, got []rowHeads, want [][][]float32, limit float64) {
	t.Helper()
	for r := range got {
		for i, z := range want[r] {
			near(t, "logits", worst(got[r].logits[i], z), limit)
			sums, maxima, lse := c.blocksOf(m.Config, z)
			near(t, "block sums", worst(got[r].sums[i], sums), 10*limit)
			near(t, "block maxima", worst(got[r].maxima[i], maxima), limit)
			near(t, "log-sum-exp", math.Abs(float64(got[r].lse[i][0])-lse), limit)
			if t.Failed() {
				t.Fatalf("row %d, token %d of the answer", r, i)
			}
		}
	}
}

// blocksOf computes the sampling head from the logits z of a row.
func (c cachedText) blocksOf(config *Config, z []float32) (sums, maxima []float32, lse float64) {
	top := float64(slices.Max(z))
	total := 0.0
	for block := range slices.Chunk(z, SampleBlock) {
		sum := 0.0
		for _, v := range block {
			sum += float.Exp((float64(v) - top) * float64(c.inverse))
			total += float.Exp(float64(v) - top)
		}
		sums, maxima = append(sums, float32(sum)), append(maxima, slices.Max(block))
	}
	return sums, maxima, math.Log(total) + top
}

// Decoding with a cache gives the logits of whole texts, for all four model types, windows shorter than the texts,
// prompts of different lengths, samples that share their prompt's part, both orders of products and both places of the
// cache.
func TestCachedLogits(t *testing.T) {
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		for name, m := range variedModels(t) {
			t.Run(name, func(t *testing.T) {
				for _, samples := range []int{1, 3, 40} {
					c := texts(samples)
					want := c.wholeLogits(t, e, m)
					for _, c.shared = range []bool{true, false} {
						for _, c.inGraph = range []bool{false, true} {
							if c.inGraph && e.Name == "onnx" && samples > 1 {
								continue // other engines have this form
							}
							if !c.inGraph && !e.Wants.SharedMemory {
								continue // it is the other form there
							}
							c.check(t, m, c.decode(t, e, m), want, 2e-5)
						}
					}
				}
			})
		}
	})
}

// One row alone: its products have another form.
func TestCachedLogitsOfOneRow(t *testing.T) {
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		for name, m := range variedModels(t) {
			t.Run(name, func(t *testing.T) {
				c := texts(1)
				c.prompts, c.answers = c.prompts[:1], c.answers[:1]
				want := c.wholeLogits(t, e, m)
				for _, c.shared = range []bool{true, false} {
					c.check(t, m, c.decode(t, e, m), want, 2e-5)
				}
			})
		}
	})
}

// Scaled rotations, and a vocabulary of several blocks whose last one is short.
func TestCachedLogitsOfLongRotations(t *testing.T) {
	llama3 := map[string]any{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
		"original_max_position_embeddings": 16}
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		for name, m := range map[string]*Model{
			"llama3": sharpModel(t, "llama", "rope_scaling", llama3, "vocab_size", 150),
			"linear": sharpModel(t, "llama", "rope_scaling", map[string]any{"rope_type": "linear", "factor": 4.0},
				"vocab_size", 128, "tie_word_embeddings", true),
		} {
			t.Run(name, func(t *testing.T) {
				c := texts(2)
				c.shared = true
				c.check(t, m, c.decode(t, e, m), c.wholeLogits(t, e, m), 2e-5)
			})
		}
	})
}

// bfloat16 stays near float32.
func TestCachedLogitsInBFloat16(t *testing.T) {
	e := backendtest.XLA(t)
	many, one := texts(2), texts(1)
	one.prompts, one.answers = one.prompts[:1], one.answers[:1]
	inGraph := func(c cachedText) cachedText {
		c.inGraph = true
		return c
	}
	eachModel(t, variedModels(t), func(t *testing.T, i int, m *Model) {
		least := 0.99
		if m.Config.Experts > 0 { // rounding makes a router choose another expert
			least = 0.95
		}
		for _, c := range backendtest.Some(t, e, i, many, inGraph(one), one, inGraph(many)) {
			want := c.wholeLogits(t, e, m)
			c.options.DType = dtypes.BFloat16
			got := c.decode(t, e, m)
			for r := range got {
				for i := range want[r] {
					if cosine(got[r].logits[i], want[r][i]) < least {
						t.Fatalf("row %d, token %d: cosine %.4f", r, i, cosine(got[r].logits[i], want[r][i]))
					}
				}
			}
		}
	})
}

// benchModel is the config of the smaller model of internal/speed.
func benchModel() *Config {
	return &Config{ModelType: "llama", VocabSize: 4096, HiddenSize: 256, IntermediateSize: 688, Layers: 6, Heads: 8,
		KVHeads: 4, HeadDim: 32, TieEmbeddings: true, RMSNormEps: 1e-6, RopeTheta: 10000, MaxPositions: 2048}
}

// Turning the logits of many rows back from columns takes long.
func TestLogitsOfManyRowsAreRows(t *testing.T) {
	c := benchModel()
	for rows, columns := range map[int]bool{16: true, 32: false, 64: false, 128: false} {
		compile(t, backendtest.Go(t), "step", func(g *graph.Graph) []*graph.Node {
			in := c.StepInputs(g, StepShape{Prompts: rows, Samples: 1, Suffix: 8}, false, GraphOptions{})
			out := c.Step(c.Parameters(g), in, GraphOptions{}).Nodes()
			if found := slices.ContainsFunc(g.Nodes(), func(n *graph.Node) bool {
				return n.Type() == graph.NodeTypeDotGeneral && n.Shape().Dim(0) == c.VocabSize
			}); found != columns {
				t.Errorf("%d rows: logits as columns: %v, want %v", rows, found, columns)
			}
			return out
		})
	}
}

// XLA has fast products in bfloat16 for four rows or more by a weight, not for a weight by columns.
func TestBFloat16MultipliesRowsByWeights(t *testing.T) {
	c := benchModel()
	o := GraphOptions{DType: dtypes.BFloat16}
	for _, rows := range []int{1, 16, 128} {
		products := 0
		compile(t, backendtest.XLA(t), "step", func(g *graph.Graph) []*graph.Node {
			in := c.StepInputs(g, StepShape{Prompts: rows, Samples: 1, Suffix: 8, InGraph: true}, false, o)
			out := c.Step(c.ParametersIn(g, o.DType), in, o).Nodes()
			for _, n := range g.Nodes() {
				if n.Type() != graph.NodeTypeDotGeneral {
					continue
				}
				x, weight := n.Inputs()[0], n.Inputs()[1]
				if x.Type() == graph.NodeTypeParameter {
					t.Errorf("%d rows: %s times columns %s", rows, x.Shape(), weight.Shape())
				}
				if weight.Type() != graph.NodeTypeParameter || weight.Rank() != 2 {
					continue // of attention
				}
				if products++; x.Shape().Dim(-2) < 4 || x.Shape().Dim(-1) != weight.Shape().Dim(1) {
					t.Errorf("%d rows: %s times the weight %s", rows, x.Shape(), weight.Shape())
				}
			}
			return out
		})
		if want := 7*c.Layers + 1; products != want {
			t.Errorf("%d rows: %d products by weights, want %d", rows, products, want)
		}
	}
}
