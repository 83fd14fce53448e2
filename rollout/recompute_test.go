package rollout

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

// sampler is a Recompute of a model with its own weights.
func sampler(t testing.TB, e *backend.Engine, m *model.Model) *Recompute {
	t.Helper()
	weights := expect.Must(Upload(e, m, model.GraphOptions{}))(t)
	s := NewRecompute(e, m.Config, func() []compute.Buffer { return weights }, Options{})
	t.Cleanup(func() {
		s.Close()
		backend.FinalizeAll(weights...)
	})
	return s
}

func sample(t testing.TB, s Sampler, requests ...Request) []Completion {
	t.Helper()
	c := expect.Must(s.Sample(context.Background(), requests))(t)
	if len(c) != len(requests) {
		t.Fatalf("%d completions of %d requests", len(c), len(requests))
	}
	return c
}

// requests returns n prompts of 1 to 12 tokens without stop tokens.
func requests(n, maxNew int, temperature float64) []Request {
	var rs []Request
	for i, g := range testkit.Groups(3, n, 0) {
		rs = append(rs, Request{Sampling: Sampling{MaxNew: maxNew, Temperature: temperature}, Prompt: g.Prompt,
			Seed: uint64(i), StopTokens: []int32{}})
	}
	return rs
}

// logProbs returns the log-probs of the completions' tokens as training measures them: packed, in one pass, on the go
// engine.
func logProbs(t *testing.T, m *model.Model, rs []Request, cs []Completion) [][]float32 {
	t.Helper()
	e := backendtest.Go(t)
	var groups []batch.Group
	for i, r := range rs {
		groups = append(groups, batch.Group{Prompt: r.Prompt, Answers: [][]int32{cs[i].Tokens}})
	}
	p := batch.Pack(groups, batch.Layout{})
	weights := expect.Must(Upload(e, m, model.GraphOptions{}))(t)
	defer backend.FinalizeAll(weights...)
	ints := func(g *graph.Graph, name string, dims ...int) *graph.Node {
		return graph.Parameter(g, name, shapes.Make(dtypes.Int32, dims...))
	}
	program, err := e.Compile("log-probs", func(g *graph.Graph) []*graph.Node {
		params := m.Config.Parameters(g)
		return []*graph.Node{m.Config.LogProbs(params, model.Inputs{
			Tokens: ints(g, "tokens", p.Rows, p.Len), Positions: ints(g, "positions", p.Rows, p.Len),
			Groups:   ints(g, "groups", p.Rows, p.Len),
			Segments: ints(g, "segments", p.Rows, p.Len), Source: ints(g, "source", p.Slots),
			Target: ints(g, "target", p.Slots),
		}, model.GraphOptions{})}
	})
	expect.OK(t, err)
	defer program.Close()
	inputs := slices.Clone(weights)
	for _, x := range [][]int32{p.Tokens, p.Positions, p.Groups, p.Segments} {
		inputs = append(inputs, expect.Must(e.Int32(x, p.Rows, p.Len))(t))
	}
	inputs = append(inputs, expect.Must(e.Int32(p.Source, p.Slots))(t), expect.Must(e.Int32(p.Target, p.Slots))(t))
	defer backend.FinalizeAll(inputs[len(weights):]...)
	out := expect.Must(program.Run(inputs, nil))(t)
	defer backend.FinalizeAll(out...)
	flat := expect.Must(backend.Floats(out[0]))(t)
	logps := make([][]float32, len(rs))
	for slot, answer := range p.Answer {
		if answer >= 0 {
			logps[answer] = append(logps[answer], flat[slot])
		}
	}
	return logps
}

// TestGreedyIsTheArgmax: every token of a greedy completion has the greatest logit.
func TestGreedyIsTheArgmax(t *testing.T) {
	e := backendtest.Go(t)
	m := testkit.Model(t, "qwen2")
	r := requests(1, 3, 0)[0]
	c := sample(t, sampler(t, e, m), r)[0]
	for k, token := range c.Tokens {
		var rivals []Request
		var firsts []Completion
		for id := range int32(testkit.Vocab) {
			rivals = append(rivals, Request{Prompt: append(slices.Clone(r.Prompt), c.Tokens[:k]...)})
			firsts = append(firsts, Completion{Tokens: []int32{id}})
		}
		logps := logProbs(t, m, rivals, firsts)
		for id := range logps {
			if logps[id][0] > logps[token][0]+1e-6 {
				t.Errorf("token %d: %d has %v, %d was taken with %v", k, id, logps[id][0], token, logps[token][0])
			}
		}
	}
}

func TestFinishedTextsLeaveTheBatch(t *testing.T) {
	s := sampler(t, backendtest.Go(t), testkit.Model(t, "llama"))
	var passes []string
	s.passes = func(rows, length int) { passes = append(passes, fmt.Sprintf("%dx%d", rows, length)) }
	rs := requests(5, 1, 0)
	rs[2].MaxNew = 3
	rs[2].Prompt = make([]int32, 62)
	cs := sample(t, s, rs...)
	if len(cs[2].Tokens) != 3 || len(cs[0].Tokens) != 1 {
		t.Errorf("%d and %d tokens, want 3 and 1", len(cs[2].Tokens), len(cs[0].Tokens))
	}
	if want := []string{"16x64", "1x64", "1x64"}; !reflect.DeepEqual(passes, want) {
		t.Errorf("forward passes %v, want %v", passes, want)
	}
}

func TestBatchesFitTheMemory(t *testing.T) {
	s := &Recompute{config: &model.Config{MaxPositions: 1 << 20}}
	many := func(n, length int) (rs []Request) {
		for range n {
			rs = append(rs, Request{Sampling: Sampling{MaxNew: 10}, Prompt: make([]int32, length-10)})
		}
		return rs
	}
	for _, c := range []struct{ n, length, want int }{{200, 128, 64}, {200, 256, 64}, {200, 257, 16}, {200, 1024, 16},
		{9, 1025, 4}, {3, 64, 3}, {3, 40_000, 1}} {
		if got := s.batch(many(c.n, c.length)); got != c.want {
			t.Errorf("%d requests of %d tokens: %d together, want %d", c.n, c.length, got, c.want)
		}
	}
}
