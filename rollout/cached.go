package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/model"
)

// Cached samples with a cache of keys and values. Neighbouring requests with the same prompt read it once, and every
// token after that costs one row of a decoding step.
//
// A call answers its requests in batches of at most Options.Slots rows, and as many as the cache has memory for. A
// batch's prompts are read in a few prefills, then all its rows step together. When enough rows have ended, the others
// move into a step of fewer rows (compaction); when their texts outgrow the cache, into a longer one. Steps are
// compiled for few shapes (layout.go). On engines with memory of their own a call is one batch, in which waiting
// requests take over the rows of those that have ended.
type Cached struct {
	engine   *backend.Engine
	config   *model.Config // as the programs have the weights
	separate *model.Config // as they are given
	options  Options
	weights  func() []compute.Buffer
	prefills *backend.Cache
	joins    *backend.Cache // prefills of continuous batching
	steps    *backend.Cache
	rotaries []*model.Rotary
	trace    func(program string) // in tests: called for every program that runs, and evictions
	most     int                  // in tests: bytes of the cache
}

// NewCached makes a sampler that answers one call at a time. Each Sample calls weights for the model's weights on the
// engine, in the order of its parameters; with a trainer's live buffers the sampler is always up to date.
func NewCached(e *backend.Engine, c *model.Config, weights func() []compute.Buffer, o Options) *Cached {
	return &Cached{
		engine: e, config: c, separate: c, options: o, weights: weights, prefills: e.NewCache(), joins: moreGraphs(e, 3),
		steps: stepCache(e, c), rotaries: c.Rotaries(), trace: func(string) {},
	}
}

// stepCache keeps more programs than other caches: each batch passes through several as it shrinks. They are small
// unless the vocabulary is large.
func stepCache(e *backend.Engine, c *model.Config) *backend.Cache {
	if c.VocabSize <= 1<<15 {
		return moreGraphs(e, 2)
	}
	return e.NewCache()
}

// moreGraphs is a cache of several times as many programs as the engine wants.
func moreGraphs(e *backend.Engine, times int) *backend.Cache {
	more := *e
	more.Wants.LiveGraphs *= times
	return more.NewCache()
}

// Close frees the compiled programs and the caches; the weights stay.
func (s *Cached) Close() {
	s.prefills.Close()
	s.joins.Close()
	s.steps.Close()
}

// Sample answers the requests.
func (s *Cached) Sample(ctx context.Context, requests []Request) (completions []Completion, err error) {
	if err := s.check(requests); err != nil {
		return nil, err
	}
	defer func() { err = adviseMemory(err) }()
	weights, free, err := s.compact(s.weights())
	if err != nil {
		return nil, err
	}
	defer free()
	numbers := make([]int, len(requests))
	for i := range numbers {
		numbers[i] = i
	}
	completions = make([]Completion, len(requests))
	if err := s.answer(ctx, weights, requests, numbers, completions); err != nil {
		return nil, err
	}
	return completions, nil
}

// adviseMemory adds to the error of a full device what needs less memory.
func adviseMemory(err error) error {
	if !errors.Is(err, backend.ErrMemory) {
		return err
	}
	return fmt.Errorf("%w: lower cache_gb, the memory of keys and values, or sample fewer or shorter answers at once", err)
}

// check names the first request that cannot be answered.
func (s *Cached) check(requests []Request) error {
	p := s.planner()
	for i, r := range requests {
		err := r.check(s.config, s.options.Decoder)
		if err == nil {
			err = p.check(r)
		}
		if err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	return nil
}

// answer answers the requests of a call that have these numbers.
func (s *Cached) answer(ctx context.Context, weights []compute.Buffer, requests []Request, numbers []int,
	completions []Completion) error {
	p, own := s.planner(), data.Pick(requests, numbers)
	for at := 0; at < len(own); {
		n := len(own)
		if s.engine.Wants.SharedMemory {
			n = p.fit(own[at:])
		} else {
			p = p.forAll(requests).forAll(own) // in lengths that suffice for all, which other devices have too
		}
		w := &runningBatch{Cached: s, planner: p, live: weights}
		for i, r := range own[at : at+n] {
			number := numbers[at+i]
			w.wait(newAnswer(r, number, s.config, s.options.Decoder, &completions[number]), nil)
		}
		if err := w.run(ctx); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// planner depends on what no call changes: [Cached.CheckRoom] asks beside one.
func (s *Cached) planner() planner {
	p := planner{
		slots: cmp.Or(s.options.Slots, defaultSlots), inGraph: !s.engine.Wants.SharedMemory,
		positions: s.separate.MaxPositions,
		slotBytes: slotBytes(s.separate, dtypes.Float32), most: cmp.Or(s.most, s.cacheBytes()),
	}
	if p.inGraph {
		p.slots = cmp.Or(s.options.Slots, deviceSlots*s.engine.Devices())
		p.slotBytes = slotBytes(s.separate, s.options.Graph.ComputeType())
	}
	return p
}

// slotBytes is what a token's keys and values take.
func slotBytes(c *model.Config, dtype dtypes.DType) int {
	return 2 * c.Layers * c.KVHeads * c.HeadDim * dtype.Size()
}

// cacheShare is the part of the memory that a cache may take if no option says how much.
const cacheShare = 4

func (s *Cached) cacheBytes() int {
	if s.options.CacheGB > 0 {
		return int(s.options.CacheGB*1e9) * s.engine.Devices() // which have some of the prompts each
	}
	return int(s.engine.Memory()/cacheShare) * s.engine.Devices()
}

// matrixType is the type of the matrices that programs take. On engines with memory of their own it is the type of the
// products: a float32 matrix would be read and converted for every token.
func (s *Cached) matrixType() dtypes.DType {
	if s.engine.Wants.SharedMemory {
		return dtypes.Float32
	}
	return s.options.Graph.ComputeType()
}

// compact returns the weights in the types that programs take, as the sampler's config then lists them. Where it has to
// convert matrices, it joins some, too ([model.Config.Joined]). free frees what it made.
func (s *Cached) compact(weights []compute.Buffer) (compacted []compute.Buffer, free func(), err error) {
	have, err := shapesOf(weights)
	if err != nil {
		return nil, nil, err
	}
	differs := false
	for i, held := range s.separate.Held() {
		differs = differs || have[i].DType != held.Type(s.matrixType())
	}
	if !differs {
		s.use(s.separate)
		return weights, func() {}, nil
	}
	s.use(s.separate.Joined())
	var own []int  // what is converted, and
	var of [][]int // into what
	for i, from := range s.separate.JoinedFrom() {
		compacted = append(compacted, weights[from[0]])
		if len(from) > 1 || have[from[0]].DType != s.config.Held()[i].Type(s.matrixType()) {
			own, of = append(own, i), append(of, from)
		}
	}
	p, err := s.compactor(have, of)
	if err != nil {
		return nil, nil, err
	}
	converted, err := p.Run(data.Pick(weights, slices.Concat(of...)), nil)
	if err != nil {
		return nil, nil, err
	}
	for i, b := range converted {
		compacted[own[i]] = b
	}
	return compacted, func() { backend.FinalizeAll(converted...) }, nil
}

// use sets what the programs are made for. A call's weights are as the last one's, but for tests.
func (s *Cached) use(c *model.Config) {
	if len(c.Held()) != len(s.config.Held()) {
		s.Close()
	}
	s.config = c
}

// compactor is the program that converts weights of these shapes, and joins each list of them.
func (s *Cached) compactor(have []shapes.Shape, lists [][]int) (*backend.Program, error) {
	const name = "weights"
	s.trace(name)
	return s.prefills.Program(name, func(g *graph.Graph) (out []*graph.Node) {
		for _, list := range lists {
			var parts []*graph.Node
			for _, i := range list {
				x := graph.Parameter(g, fmt.Sprint("weight_", i), have[i])
				parts = append(parts, graph.ConvertDType(x, s.matrixType()))
			}
			if len(parts) > 1 {
				parts[0] = graph.Concatenate(parts, 0)
			}
			out = append(out, parts[0])
		}
		return out
	})
}

func shapesOf(buffers []compute.Buffer) (out []shapes.Shape, err error) {
	for _, b := range buffers {
		s, err := b.Shape()
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// execute runs a program on weights, inputs and cache.
func (s *Cached) execute(p *backend.Program, weights []compute.Buffer, inputs []*input,
	cache []compute.Buffer) ([]compute.Buffer, error) {
	all := slices.Clone(weights)
	for _, in := range inputs {
		b, err := in.buffer(s.engine)
		if err != nil {
			return nil, err
		}
		if in.live == nil {
			defer backend.FinalizeAll(b)
		}
		all = append(all, b)
	}
	return p.Run(append(all, cache...), nil)
}

// fewRows is the most rows of a step that costs hardly more than a step of one: moving to fewer rows is not worth it.
const fewRows = 4

// cut is the option of a program whose last outputs are of prompts, or of their samples, on the first axis.
func (s *Cached) cut(outputs, prompts int) backend.Option {
	return backend.CutLast(slices.Repeat([]*distributed.ShardingSpec{model.CutCache(s.engine.Mesh, prompts)}, outputs)...)
}

// prefillProgram returns a prefill from a cache.
func (s *Cached) prefillProgram(from *backend.Cache, shape model.PrefillShape) (*backend.Program, error) {
	name := fmt.Sprintf("prefill/%dx%d", shape.Prompts, shape.Tokens)
	s.trace(name)
	return from.Program(name, func(g *graph.Graph) []*graph.Node {
		params := s.config.ParametersIn(g, s.matrixType())
		in := s.config.PrefillInputs(g, shape, s.engine.Wants.HostRows)
		return s.config.Prefill(params, in, s.options.Graph).Nodes()
	}, s.cut(headOutputs+2*s.config.Layers, shape.Prompts))
}

func (s *Cached) stepProgram(shape model.StepShape) (*backend.Program, error) {
	name := fmt.Sprintf("step/%dx%d/%d+%d", shape.Prompts, shape.Samples, shape.Prefix, shape.Suffix)
	s.trace(name)
	outputs := headOutputs + 2*s.config.Layers
	if shape.InGraph {
		outputs = drawnOutputs + 2*s.config.Layers
	}
	options := []backend.Option{s.cut(outputs, shape.Prompts)}
	if shape.InGraph { // the new ring is written over the old one
		options = append(options, backend.UpdateLast(2*s.config.Layers))
	}
	return s.steps.Program(name, func(g *graph.Graph) []*graph.Node {
		params := s.config.ParametersIn(g, s.matrixType())
		in := s.config.StepInputs(g, shape, s.engine.Wants.HostRows, s.options.Graph)
		return s.config.Step(params, in, s.options.Graph).Nodes()
	}, options...)
}
