package rollout

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/model"
)

// Cached samples with a cache of keys and values. A prompt is read once for all requests in a row that have it, and
// every token after that costs one row of a decoding step.
//
// A call goes through the requests in waves of at most Options.Slots rows. A wave's prompts are read in chunks, then all
// of its rows step together; when enough of them have ended, the others move into a step of fewer rows (compaction), and
// when their texts outgrow the cache, into a longer one. Steps are compiled for few shapes: layout says which.
type Cached struct {
	engine   *backend.Engine
	config   *model.Config
	options  Options
	weights  func() []compute.Buffer
	prefills *backend.Cache
	steps    *backend.Cache
	rotary   *model.Rotary
	pool     *pool
	told     func(program string) // for tests: of every program that runs
}

// NewCached makes a sampler. weights gives the model's weights on the engine, in the order of its parameters, each time
// that Sample is called: where they are a trainer's live buffers, the sampler is never stale. A sampler answers one
// call at a time.
func NewCached(e *backend.Engine, c *model.Config, weights func() []compute.Buffer, o Options) *Cached {
	return &Cached{
		engine: e, config: c, options: o, weights: weights, prefills: e.NewCache(), steps: stepCache(e, c), rotary: c.Rotary(),
		pool: &pool{engine: e},
		told: func(string) {},
	}
}

// stepCache keeps more programs than other caches do: a wave that shrinks goes through several, and the next one through
// them all again. They are small, unless the vocabulary is large.
func stepCache(e *backend.Engine, c *model.Config) *backend.Cache {
	more := *e
	if c.VocabSize <= 1<<15 {
		more.Wants.LiveGraphs *= 2
	}
	return more.NewCache()
}

// Close gives the compiled programs and the memory of the caches back; the weights stay.
func (s *Cached) Close() {
	s.prefills.Close()
	s.steps.Close()
	s.pool.empty()
}

// Sample answers the requests.
func (s *Cached) Sample(ctx context.Context, requests []Request) ([]Completion, error) {
	l := limits{s.config.VocabSize, s.config.MaxPositions, s.options.Decoder != nil}
	if err := l.checkAll(requests); err != nil {
		return nil, err
	}
	completions := make([]Completion, len(requests))
	weights := s.weights()
	for at := 0; at < len(requests); {
		n := s.plan().together(requests[at:])
		if err := s.wave(ctx, weights, requests[at:at+n], completions[at:at+n], at); err != nil {
			return nil, err
		}
		at += n
	}
	return completions, nil
}

// plan is what layouts are made with.
func (s *Cached) plan() plan {
	p := plan{slots: s.options.Slots, noSharing: s.options.NoSharing, inGraph: !s.engine.Wants.SharedMemory, positions: s.config.MaxPositions}
	if p.slots == 0 {
		p.slots = defaultSlots
	}
	p.slotBytes = 8 * s.config.Layers * s.config.KVHeads * s.config.HeadDim
	return p
}

// wave answers requests that fit one layout; first is the index of the first of them.
func (s *Cached) wave(ctx context.Context, weights []compute.Buffer, requests []Request, completions []Completion, first int) (err error) {
	w := &wave{Cached: s, plan: s.plan(), live: weights}
	for i, r := range requests {
		w.add(newAnswer(r, first+i, s.config, s.options.Decoder, &completions[i]))
	}
	defer func() {
		w.close()
		if err != nil {
			s.pool.empty() // there may be numbers in it that are none
		}
	}()
	if err := w.begin(ctx); err != nil {
		return err
	}
	for w.drop(); len(w.seats) > 0; w.drop() {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := w.arrange(); err != nil {
			return err
		}
		if err := w.step(); err != nil {
			return err
		}
	}
	return nil
}

// run executes a program on the weights, the inputs and the cache, which with donate is given away.
func (s *Cached) run(p *backend.Program, weights []compute.Buffer, inputs []*input, cache []compute.Buffer, donate bool) ([]compute.Buffer, error) {
	all := append([]compute.Buffer(nil), weights...)
	for _, in := range inputs {
		b, err := in.buffer(s.engine)
		if err != nil {
			if donate {
				backend.FinalizeAll(cache...)
			}
			return nil, err
		}
		if in.live == nil {
			defer backend.FinalizeAll(b)
		}
		all = append(all, b)
	}
	var given []bool
	if donate {
		given = append(make([]bool, len(all)), slices.Repeat([]bool{true}, len(cache))...)
	}
	return p.Run(append(all, cache...), given)
}

// fewRows is how many rows a step has that costs next to no more than a step of one: a prefill with threads of its own
// slows such steps down by more than it gains, and a change to fewer rows is not worth it.
const fewRows = 4

// prefillProgram is a prefill that so many rows' steps follow.
func (s *Cached) prefillProgram(shape model.PrefillShape, rows int) (*backend.Program, error) {
	name := fmt.Sprintf("prefill/%dx%d", shape.Prompts, shape.Tokens)
	s.told(name)
	var options []backend.Option
	if rows <= fewRows {
		name, options = name+"/few", append(options, backend.OneThread)
	}
	return s.prefills.Program(name, func(g *graph.Graph) []*graph.Node {
		params := s.config.Parameters(g)
		return s.config.Prefill(params, s.config.PrefillInputs(g, shape, s.engine.Wants.HostRows), s.options.Graph).Nodes()
	}, options...)
}

func (s *Cached) stepProgram(shape model.StepShape) (*backend.Program, error) {
	name := fmt.Sprintf("step/%dx%d/%d+%d", shape.Prompts, shape.Samples, shape.Prefix, shape.Suffix)
	s.told(name)
	return s.steps.Program(name, func(g *graph.Graph) []*graph.Node {
		params := s.config.Parameters(g)
		return s.config.Step(params, s.config.StepInputs(g, shape, s.engine.Wants.HostRows, s.options.Graph), s.options.Graph).Nodes()
	})
}
