package rollout

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/backend/backendtest"
	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/model"
)

// sampler is a Recompute of a model with its own weights.
func sampler(t testing.TB, e *backend.Engine, m *model.Model) *Recompute {
	t.Helper()
	weights, err := Upload(e, m)
	if err != nil {
		t.Fatal(err)
	}
	s := NewRecompute(e, m.Config, func() []compute.Buffer { return weights }, Options{})
	t.Cleanup(func() {
		s.Close()
		backend.FinalizeAll(weights...)
	})
	return s
}

func sample(t testing.TB, s Sampler, requests ...Request) []Completion {
	t.Helper()
	c, err := s.Sample(context.Background(), requests)
	if err != nil {
		t.Fatal(err)
	}
	if len(c) != len(requests) {
		t.Fatalf("%d completions of %d requests", len(c), len(requests))
	}
	return c
}

// requests are n prompts of 1 to 12 tokens; none ends before its length.
func requests(n, maxNew int, temperature float64) []Request {
	var rs []Request
	for i, g := range testkit.Groups(3, n, 0) {
		rs = append(rs, Request{Prompt: g.Prompt, MaxNew: maxNew, Temperature: temperature, Seed: uint64(i), Stop: []int32{}})
	}
	return rs
}

// logProbs are the log-probs of the completions' tokens as training measures them: packed, in one pass.
func logProbs(t *testing.T, e *backend.Engine, m *model.Model, rs []Request, cs []Completion) [][]float32 {
	t.Helper()
	var groups []batch.Group
	for i, r := range rs {
		groups = append(groups, batch.Group{Prompt: r.Prompt, Answers: [][]int32{cs[i].Tokens}})
	}
	p := batch.Pack(groups, batch.Layout{})
	weights, err := Upload(e, m)
	if err != nil {
		t.Fatal(err)
	}
	defer backend.FinalizeAll(weights...)
	ints := func(g *graph.Graph, name string, dims ...int) *graph.Node {
		return graph.Parameter(g, name, shapes.Make(dtypes.Int32, dims...))
	}
	program, err := e.Compile("log-probs", func(g *graph.Graph) []*graph.Node {
		params := m.Config.Parameters(g)
		return []*graph.Node{m.Config.LogProbs(params, model.Inputs{
			Tokens: ints(g, "tokens", p.Rows, p.Len), Positions: ints(g, "positions", p.Rows, p.Len), Groups: ints(g, "groups", p.Rows, p.Len),
			Segments: ints(g, "segments", p.Rows, p.Len), Source: ints(g, "source", p.Slots), Target: ints(g, "target", p.Slots),
		}, model.GraphOptions{})}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	inputs := slices.Clone(weights)
	for _, x := range [][]int32{p.Tokens, p.Positions, p.Groups, p.Segments} {
		inputs = append(inputs, int32s(t, e, x, p.Rows, p.Len))
	}
	inputs = append(inputs, int32s(t, e, p.Source, p.Slots), int32s(t, e, p.Target, p.Slots))
	defer backend.FinalizeAll(inputs[len(weights):]...)
	out, err := program.Run(inputs, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer backend.FinalizeAll(out...)
	flat, err := backend.Floats(out[0])
	if err != nil {
		t.Fatal(err)
	}
	logps := make([][]float32, len(rs))
	for slot, answer := range p.Answer {
		if answer >= 0 {
			logps[answer] = append(logps[answer], flat[slot])
		}
	}
	return logps
}

func int32s(t *testing.T, e *backend.Engine, data []int32, dims ...int) compute.Buffer {
	t.Helper()
	b, err := e.Int32(data, dims...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestLogpsAreTheTrainers: the log-probs of drawn tokens are those that training measures on the same tokens, for
// every model type, beyond the sliding window, at any temperature.
func TestLogpsAreTheTrainers(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		for i, kind := range model.Types {
			m := testkit.Model(t, kind)
			rs := requests(5, 9, []float64{0, 0.7, 1, 2}[i])
			cs := sample(t, sampler(t, e, m), rs...)
			for r, want := range logProbs(t, e, m, rs, cs) {
				if len(want) != len(cs[r].Logps) || len(want) != 9 {
					t.Fatalf("%s: %d log-probs, want %d", kind, len(cs[r].Logps), len(want))
				}
				for k := range want {
					if d := math.Abs(float64(cs[r].Logps[k] - want[k])); !(d < 2e-5) {
						t.Errorf("%s, request %d, token %d: log-prob %v, trainer %v", kind, r, k, cs[r].Logps[k], want[k])
					}
				}
			}
		}
	})
}

// TestGreedyIsTheArgmax: every token of a greedy completion is the likeliest of all that could stand there.
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
		logps := logProbs(t, e, m, rivals, firsts)
		for id := range logps {
			if logps[id][0] > logps[token][0]+1e-6 {
				t.Errorf("token %d: %d has %v, %d was taken with %v", k, id, logps[id][0], token, logps[token][0])
			}
		}
	}
}

// TestBatchesDoNotMatter: a request alone, among others, and in another place, draws the same tokens.
func TestBatchesDoNotMatter(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		s := sampler(t, e, testkit.Model(t, "llama"))
		for _, temperature := range []float64{0, 1} {
			rs := requests(6, 5, temperature)
			together := sample(t, s, rs...)
			slices.Reverse(rs)
			reversed := sample(t, s, rs...)
			slices.Reverse(rs)
			for i, r := range rs {
				alone := sample(t, s, r)[0]
				for _, other := range []Completion{together[i], reversed[len(rs)-1-i]} {
					if !reflect.DeepEqual(alone.Tokens, other.Tokens) || alone.Reason != other.Reason {
						t.Errorf("temperature %v, request %d: %v alone, %v in a batch", temperature, i, alone.Tokens, other.Tokens)
					}
				}
			}
		}
	})
}

// TestSeedsMatter: other seeds, other tokens; the same seed, the same tokens.
func TestSeedsMatter(t *testing.T) {
	s := sampler(t, backendtest.Go(t), testkit.Model(t, "llama"))
	r := requests(1, 8, 1)[0]
	cs := sample(t, s, append(r.Samples(4), r.Samples(1)...)...)
	for i := 1; i < 4; i++ {
		if reflect.DeepEqual(cs[0].Tokens, cs[i].Tokens) {
			t.Errorf("samples 0 and %d are equal: %v", i, cs[0].Tokens)
		}
	}
	if !reflect.DeepEqual(cs[0], cs[4]) {
		t.Errorf("one seed, two completions: %v, %v", cs[0], cs[4])
	}
}

// TestEnds: a stop token ends a completion and is its last, MaxNew and the model's positions cut it; finished texts
// leave the batch.
func TestEnds(t *testing.T) {
	e := backendtest.Go(t)
	m := testkit.Model(t, "llama")
	s := sampler(t, e, m)
	free := sample(t, s, requests(1, 6, 0)...)[0]
	if len(free.Tokens) != 6 || free.Reason != Length {
		t.Fatalf("%+v, want 6 tokens cut by length", free)
	}
	third := slices.Index(free.Tokens, free.Tokens[2]) // where that token comes first
	r := requests(1, 6, 0)[0]
	r.Stop = []int32{999, free.Tokens[2]}
	c := sample(t, s, r)[0]
	if !reflect.DeepEqual(c.Tokens, free.Tokens[:third+1]) || c.Reason != EOS || len(c.Logps) != third+1 {
		t.Errorf("%+v, want the tokens up to %d", c, third)
	}

	m.Config.EOS = []int{int(free.Tokens[0])}
	r.Stop = nil
	if c = sample(t, s, r)[0]; len(c.Tokens) != 1 || c.Reason != EOS {
		t.Errorf("%+v, want the model's own EOS to end it", c)
	}

	long := Request{Prompt: make([]int32, m.Config.MaxPositions-2), MaxNew: 50, Stop: []int32{}}
	if c = sample(t, s, long)[0]; len(c.Tokens) != 2 || c.Reason != Length {
		t.Errorf("%d tokens, %s, want the 2 that the model has positions for", len(c.Tokens), c.Reason)
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
			rs = append(rs, Request{Prompt: make([]int32, length-10), MaxNew: 10})
		}
		return rs
	}
	for _, c := range []struct{ n, length, want int }{{200, 128, 64}, {200, 256, 64}, {200, 257, 16}, {200, 1024, 16}, {9, 1025, 4}, {3, 64, 3}, {3, 40_000, 1}} {
		if got := s.batch(many(c.n, c.length)); got != c.want {
			t.Errorf("%d requests of %d tokens: %d together, want %d", c.n, c.length, got, c.want)
		}
	}
}

// TestWeightsAreLive: what a trainer writes into the buffers is what the next call samples from.
func TestWeightsAreLive(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		if !e.Wants.HostUpdate {
			t.Skip("no live buffers on this engine")
		}
		m := testkit.Model(t, "llama")
		var weights []compute.Buffer
		var views [][]float32
		for _, p := range m.Params {
			b, view, err := e.SharedFloat32(p.Shape...)
			if err != nil {
				t.Fatal(err)
			}
			copy(view, p.Data)
			weights, views = append(weights, b), append(views, view)
		}
		defer backend.FinalizeAll(weights...)
		s := NewRecompute(e, m.Config, func() []compute.Buffer { return weights }, Options{})
		defer s.Close()
		r := requests(1, 6, 0)[0]
		before := sample(t, s, r)[0]

		other := model.Init(m.Config, 8)
		for i, p := range other.Params {
			copy(views[i], p.Data)
		}
		after, want := sample(t, s, r)[0], sample(t, sampler(t, e, other), r)[0]
		if reflect.DeepEqual(before.Tokens, after.Tokens) || !reflect.DeepEqual(after, want) {
			t.Errorf("before %v, after %v, want %v", before.Tokens, after.Tokens, want.Tokens)
		}
	})
}

func TestBadRequests(t *testing.T) {
	s := sampler(t, backendtest.Go(t), testkit.Model(t, "llama"))
	good := requests(1, 2, 0)[0]
	cases := map[string]func(r *Request){
		"empty prompt":      func(r *Request) { r.Prompt = nil },
		"128 positions":     func(r *Request) { r.Prompt = make([]int32, 128) },
		"token 1 of the":    func(r *Request) { r.Prompt = []int32{0, 64} },
		"token 0 of the":    func(r *Request) { r.Prompt = []int32{-1} },
		"0 new tokens":      func(r *Request) { r.MaxNew = 0 },
		"temperature -1":    func(r *Request) { r.Temperature = -1 },
		"temperature NaN":   func(r *Request) { r.Temperature = math.NaN() },
		"temperature +Inf:": func(r *Request) { r.Temperature = math.Inf(1) },
	}
	for want, spoil := range cases {
		bad := good
		spoil(&bad)
		_, err := s.Sample(context.Background(), []Request{good, bad})
		if err == nil || !strings.Contains(err.Error(), "request 1: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q, want %q", err, want)
		}
	}
	if c, err := s.Sample(context.Background(), nil); len(c) != 0 || err != nil {
		t.Errorf("no requests: %v, %v", c, err)
	}
}

func TestBrokenWeights(t *testing.T) {
	m := testkit.Model(t, "llama")
	m.Params[1].Data[0] = float32(math.NaN())
	_, err := sampler(t, backendtest.Go(t), m).Sample(context.Background(), requests(2, 2, 0))
	if err == nil || !strings.Contains(err.Error(), "request 0, token 0: ") || !strings.Contains(err.Error(), "NaN") {
		t.Error(err)
	}
}
