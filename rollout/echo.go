package rollout

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/model"
)

// Echo says how likely the tokens of a prompt are, at temperature 1. Element k is of the token after the first k+1; the
// last element of Logps has no token and no meaning.
type Echo struct {
	Logps []float32 // of the prompt's own token
	Top   []float32 // of the likeliest token
	Best  []int32   // that token
}

// Echo measures prompts of at least one token. A [Cached.SampleContinuously] may be under way in the same goroutine.
func (s *Cached) Echo(prompts [][]int32) ([]Echo, error) {
	weights, free, err := s.compact(s.weights())
	if err != nil {
		return nil, adviseMemory(err)
	}
	defer free()
	w := &runningBatch{Cached: s, planner: s.planner(), live: weights, arrivals: &arrivals{}, prompts: prompts,
		layout: layout{shape: model.StepShape{Prompts: len(prompts)}}}
	all := make([]Echo, len(prompts))
	for _, c := range w.groups() {
		if err := w.echo(c, all); err != nil {
			return nil, adviseMemory(err)
		}
	}
	return all, nil
}

// echo measures a group of prompts.
func (w *runningBatch) echo(c promptGroup, all []Echo) error {
	c.shape.Echo = true
	p, err := w.echoProgram(c.shape)
	if err != nil {
		return err
	}
	in := inputSet{engine: w.engine}
	defer func() { in.close() }()
	tokens := in.embedding(w.config.HiddenSize, w.live[w.config.EmbedTable()], c.shape.Prompts, c.shape.Tokens)
	next := in.ints(c.shape.Prompts * c.shape.Tokens)
	if in.err != nil {
		return in.err
	}
	for i, prompt := range c.prompts {
		at := i * c.shape.Tokens
		for k, token := range w.prompts[prompt] {
			tokens.put(at+k, token)
		}
		copy(next[at:], w.prompts[prompt][1:])
	}
	out, err := w.execute(p, w.live, in.all, nil)
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(out...)
	return w.readEchoes(c, out, all)
}

func (w *runningBatch) readEchoes(c promptGroup, out []compute.Buffer, all []Echo) error {
	logps, err := backend.Floats(out[0])
	if err != nil {
		return err
	}
	top, err := backend.Floats(out[1])
	if err != nil {
		return err
	}
	best, err := backend.Ints(out[2])
	if err != nil {
		return err
	}
	for i, prompt := range c.prompts {
		from := i * c.shape.Tokens
		to := from + len(w.prompts[prompt])
		if k := slices.IndexFunc(top[from:to], func(x float32) bool { return !(x <= 0) }); k >= 0 {
			return fmt.Errorf("the log-probability after token %d of a prompt is %v: the model's weights are broken", k,
				top[from+k])
		}
		all[prompt] = Echo{slices.Clone(logps[from:to]), slices.Clone(top[from:to]), slices.Clone(best[from:to])}
	}
	return nil
}

func (s *Cached) echoProgram(shape model.PrefillShape) (*backend.Program, error) {
	name := fmt.Sprintf("echo/%dx%d", shape.Prompts, shape.Tokens)
	s.trace(name)
	return s.joins.Program(name, func(g *graph.Graph) []*graph.Node {
		params := s.config.ParametersIn(g, s.matrixType())
		return s.config.Echo(params, s.config.PrefillInputs(g, shape, s.engine.Wants.HostRows), s.options.Graph)
	})
}
