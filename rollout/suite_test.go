package rollout

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

func TestMain(m *testing.M) { os.Exit(expect.NoLeaks(m)) }

// implementation makes a sampler of a model whose weights are given, on an engine.
type implementation struct {
	name string
	make func(e *backend.Engine, c *model.Config, weights func() []compute.Buffer, o Options) closer
}

type closer interface {
	Sampler
	Close()
}

var implementations = []implementation{
	{"recompute", func(e *backend.Engine, c *model.Config, weights func() []compute.Buffer, o Options) closer {
		return NewRecompute(e, c, weights, o)
	}},
	{"cached", func(e *backend.Engine, c *model.Config, weights func() []compute.Buffer, o Options) closer {
		return NewCached(e, c, weights, o)
	}},
	{"few slots", func(e *backend.Engine, c *model.Config, weights func() []compute.Buffer, o Options) closer {
		o.Slots = 3
		return NewCached(e, c, weights, o)
	}},
	{"in-graph cache", func(e *backend.Engine, c *model.Config, weights func() []compute.Buffer, o Options) closer {
		return NewCached(onDevice(e), c, weights, o)
	}},
}

// implementationsOn leaves out what an engine has already as "cached".
func implementationsOn(e *backend.Engine) []implementation {
	if !e.Wants.SharedMemory {
		return implementations[:3]
	}
	return implementations
}

// onDevice returns an engine that keeps the cache itself, as engines without shared buffers do.
func onDevice(e *backend.Engine) *backend.Engine {
	device := *e
	device.Wants.SharedMemory, device.Wants.HostRows, device.Wants.Tokens = false, false, 0
	return &device
}

// suite runs a test for every implementation on every available engine.
func suite(t *testing.T, test func(t *testing.T, s setup)) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		for _, i := range implementationsOn(e) {
			t.Run(i.name, func(t *testing.T) { test(t, setup{e, i}) })
		}
	})
}

// setup is an engine and an implementation.
type setup struct {
	engine *backend.Engine
	implementation
}

// some are the models that a test tries. Few slots decide which rows wait, and nothing about a model's graph, so that
// engines that compile try one model with them.
func (s setup) some(models []string) []string {
	if s.name == "few slots" && s.engine.Name != "go" {
		return models[:1]
	}
	return models
}

// of makes a sampler of a model with its own weights.
func (s setup) of(t testing.TB, m *model.Model, o Options) Sampler {
	t.Helper()
	weights := expect.Must(Upload(s.engine, m, model.GraphOptions{}))(t)
	made := s.make(s.engine, m.Config, func() []compute.Buffer { return weights }, o)
	t.Cleanup(func() {
		made.Close()
		backend.FinalizeAll(weights...)
	})
	return made
}

// letters decodes a token to two letters, and the last four tokens to the bytes of one rune.
type letters struct{}

const alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ01234567"

func (letters) Decode(ids []int32, _ bool) string {
	var bytes []byte
	for _, id := range ids {
		if bytes = append(bytes, (alphabet + "🌍")[id]); int(id) < len(alphabet) {
			bytes = append(bytes, alphabet[(int(id)*7+3)%len(alphabet)])
		}
	}
	return strings.ToValidUTF8(string(bytes), "\ufffd")
}

// TestLogpsAreTheTrainers: the log-probs of drawn tokens are those that training measures, for every model type,
// beyond the sliding window and at any temperature.
func TestLogpsAreTheTrainers(t *testing.T) {
	suite(t, func(t *testing.T, s setup) {
		for i, kind := range s.some(model.Types) {
			m := testkit.Model(t, kind)
			rs := requests(5, 9, []float64{0, 0.7, 1, 2}[i%4])
			rs[1].TopK, rs[2].TopP, rs[3].MinP = 5, 0.7, 0.2
			cs := sample(t, s.of(t, m, Options{}), rs...)
			for r, want := range logProbs(t, m, rs, cs) {
				if len(want) != len(cs[r].Logps) || len(want) != 9 {
					t.Fatalf("%s: %d log-probs, want %d", kind, len(cs[r].Logps), len(want))
				}
				for k := range want {
					if d := math.Abs(float64(cs[r].Logps[k] - want[k])); !(d < 2e-5) {
						t.Errorf("%s, request %d, token %d: log-prob %v, trainer %v", kind, r, k, cs[r].Logps[k],
							want[k])
					}
				}
			}
		}
	})
}

// mixedRequests returns requests of all kinds: groups of short and long prompts, greedy or not, truncated or not, of
// several lengths.
func mixedRequests() []Request {
	var rs []Request
	for i, r := range requests(7, 6, 0) {
		if i%2 == 1 {
			r.Prompt = slices.Repeat(r.Prompt, 40/len(r.Prompt)+1)
		}
		r.Temperature = []float64{0, 1, 0.7}[i%3]
		for k, x := range r.Samples([]int{1, 5, 3}[i%3]) {
			x.MaxNew = 1 + (5*i+7*k)%11*2
			switch k {
			case 1:
				x.TopK, x.TopP = 7, 0.8
			case 2:
				x.MinP, x.Temperature = 0.1, 1.5
			case 3:
				x.Temperature = 0
			}
			rs = append(rs, x)
		}
	}
	return rs
}

// TestTokensAreThePlainSamplers: every token and log-prob is as the sampler gives it that recomputes everything.
func TestTokensAreThePlainSamplers(t *testing.T) {
	plain := map[string][]Completion{}
	suite(t, func(t *testing.T, s setup) {
		kinds := model.Types
		if s.name != "cached" {
			kinds = []string{"mistral"}
		}
		for _, kind := range kinds {
			m := testkit.Model(t, kind)
			if s.name == "recompute" || plain[kind] == nil {
				plain[kind] = sample(t, setup{s.engine, implementations[0]}.of(t, m, Options{}), mixedRequests()...)
			}
			equalAnswers(t, sample(t, s.of(t, m, Options{}), mixedRequests()...), plain[kind])
		}
	})
}

// TestGreedyIsTransformers: the likeliest tokens, past the sliding window, are those that transformers generates
// (scripts/oracle/models.py).
func TestGreedyIsTransformers(t *testing.T) {
	files, err := filepath.Glob("../model/testdata/*/oracle.json")
	if err != nil || len(files) < 23 {
		t.Fatalf("found %v (%v)", files, err)
	}
	suite(t, func(t *testing.T, s setup) {
		for _, file := range s.some(files) {
			var o struct {
				Rows   []struct{ IDs []int32 }
				Greedy [][]int32
			}
			text, err := os.ReadFile(file)
			if err == nil {
				err = json.Unmarshal(text, &o)
			}
			m, loaded := model.Load(filepath.Dir(file))
			expect.OK(t, cmp.Or(err, loaded))
			m.Config.EOS = nil
			var rs []Request
			for i, want := range o.Greedy {
				rs = append(rs, Request{Prompt: o.Rows[i].IDs, Sampling: Sampling{MaxNew: len(want)}})
			}
			for i, got := range sample(t, s.of(t, m, Options{}), rs...) {
				if want := o.Greedy[i]; !slices.Equal(got.Tokens, want) {
					t.Errorf("%s, row %d: %v, want %v", file, i, got.Tokens, want)
				}
			}
		}
	})
}

// equalAnswers compares tokens exactly and log-probs within rounding.
func equalAnswers(t *testing.T, got, want []Completion) {
	t.Helper()
	for i := range want {
		if !slices.Equal(got[i].Tokens, want[i].Tokens) || got[i].Reason != want[i].Reason ||
			got[i].Text != want[i].Text {
			t.Errorf("request %d: %v %s %q, want %v %s %q", i, got[i].Tokens, got[i].Reason, got[i].Text,
				want[i].Tokens, want[i].Reason, want[i].Text)
			continue
		}
		for k := range want[i].Logps {
			if d := math.Abs(float64(got[i].Logps[k] - want[i].Logps[k])); !(d < 2e-5) {
				t.Errorf("request %d, token %d: log-prob %v, want %v", i, k, got[i].Logps[k], want[i].Logps[k])
			}
		}
	}
}

// TestBatchesDoNotMatter: a request draws the same tokens alone, among others and in another place.
func TestBatchesDoNotMatter(t *testing.T) {
	suite(t, func(t *testing.T, s setup) {
		sampler := s.of(t, testkit.Model(t, "llama"), Options{})
		rs := mixedRequests()
		together := sample(t, sampler, rs...)
		slices.Reverse(rs)
		reversed := sample(t, sampler, rs...)
		slices.Reverse(rs)
		slices.Reverse(reversed)
		equalAnswers(t, reversed, together)
		for i := 0; i < len(rs); i += 3 {
			equalAnswers(t, sample(t, sampler, rs[i]), together[i:i+1])
		}
	})
}

// TestRunsRepeat: the same requests give the same bits.
func TestRunsRepeat(t *testing.T) {
	suite(t, func(t *testing.T, s setup) {
		sampler := s.of(t, testkit.Model(t, "qwen3"), Options{Decoder: letters{}})
		first := sample(t, sampler, mixedRequests()...)
		for range 2 {
			if again := sample(t, sampler, mixedRequests()...); !reflect.DeepEqual(again, first) {
				t.Fatalf("%v, at first %v", again, first)
			}
		}
		other := s.of(t, testkit.Model(t, "qwen3"), Options{Decoder: letters{}})
		if again := sample(t, other, mixedRequests()...); !reflect.DeepEqual(again, first) {
			t.Fatalf("another sampler: %v, at first %v", again, first)
		}
	})
}

// TestSeedsMatter: other seeds give other tokens; the same seed gives the same tokens.
func TestSeedsMatter(t *testing.T) {
	suite(t, func(t *testing.T, s setup) {
		r := requests(1, 8, 1)[0]
		cs := sample(t, s.of(t, testkit.Model(t, "llama"), Options{}), append(r.Samples(4), r.Samples(1)...)...)
		for i := 1; i < 4; i++ {
			if reflect.DeepEqual(cs[0].Tokens, cs[i].Tokens) {
				t.Errorf("samples 0 and %d are equal: %v", i, cs[0].Tokens)
			}
		}
		if !reflect.DeepEqual(cs[0].Tokens, cs[4].Tokens) {
			t.Errorf("one seed, two completions: %v, %v", cs[0], cs[4])
		}
	})
}

// TestEnds: a stop token ends a completion and is its last token; MaxNew and the model's positions end it too.
func TestEnds(t *testing.T) {
	suite(t, func(t *testing.T, s setup) {
		m := testkit.Model(t, "llama")
		sampler := s.of(t, m, Options{Decoder: letters{}})
		free := sample(t, sampler, requests(1, 6, 1)...)[0]
		if len(free.Tokens) != 6 || free.Reason != Length || free.Text != (letters{}).Decode(free.Tokens, false) {
			t.Fatalf("%+v, want 6 tokens cut by length", free)
		}
		third := slices.Index(free.Tokens, free.Tokens[2]) // where that token comes first
		r := requests(1, 6, 1)[0]
		r.StopTokens = []int32{999, free.Tokens[2]}
		c := sample(t, sampler, r)[0]
		if !reflect.DeepEqual(c.Tokens, free.Tokens[:third+1]) || c.Reason != EOS || len(c.Logps) != third+1 {
			t.Errorf("%+v, want the tokens up to %d", c, third)
		}
		if want := (letters{}).Decode(free.Tokens[:third], false); c.Text != want {
			t.Errorf("text %q, want %q, without the stop token", c.Text, want)
		}

		long := Request{Sampling: Sampling{MaxNew: 50}, Prompt: make([]int32, m.Config.MaxPositions-2),
			StopTokens: []int32{}}
		if c = sample(t, sampler, long)[0]; len(c.Tokens) != 2 || c.Reason != Length {
			t.Errorf("%d tokens, %s, want the 2 that the model has positions for", len(c.Tokens), c.Reason)
		}
		m.Config.EOS = []int{int(free.Tokens[0])}
		r.StopTokens = nil
		if c = sample(t, sampler, r)[0]; len(c.Tokens) != 1 || c.Reason != EOS || c.Text != "" {
			t.Errorf("%+v, want the model's own EOS to end it", c)
		}
	})
}

// TestStopStrings: a stop text ends a completion, also within a token; the first of several counts, and the text
// omits it.
func TestStopStrings(t *testing.T) {
	suite(t, func(t *testing.T, s setup) {
		sampler := s.of(t, testkit.Model(t, "llama"), Options{Decoder: letters{}})
		r := requests(1, 40, 1)[0]
		text := sample(t, sampler, r)[0].Text
		of := func(from, to int) string { return string([]rune(text)[from:to]) }
		for _, stops := range [][]string{{"never there"}, {of(5, 8)}, {of(9, 20), of(5, 8), of(6, 8)}, {of(0, 1)},
			{of(55, 60)}} {
			r.Stop = stops
			want, reason := text, Length
			if at := firstOf(text, stops); at >= 0 {
				want, reason = text[:at], StopString
			}
			if got := sample(t, sampler, r)[0]; got.Text != want || got.Reason != reason ||
				reason == StopString && len(got.Tokens) > (len(want)+12)/2+4 {
				t.Errorf("stops %q: %q, %s after %d tokens, want %q, %s", stops, got.Text, got.Reason, len(got.Tokens),
					want, reason)
			}
		}
	})
}

// TestTokensAreTold: OnToken receives every token of its request, in order, and OnEnd hears once of each end.
func TestTokensAreTold(t *testing.T) {
	suite(t, func(t *testing.T, s setup) {
		rs := mixedRequests()
		heard, ends := make([]Completion, len(rs)), make([]int, len(rs))
		for i := range rs {
			rs[i].OnEnd = func(tokens int) { ends[i] += 1000 + tokens }
			rs[i].OnToken = func(token int32, logp float32) {
				heard[i].Tokens, heard[i].Logps = append(heard[i].Tokens, token), append(heard[i].Logps, logp)
			}
		}
		for i, c := range sample(t, s.of(t, testkit.Model(t, "llama"), Options{}), rs...) {
			if !slices.Equal(heard[i].Tokens, c.Tokens) || !slices.Equal(heard[i].Logps, c.Logps) {
				t.Errorf("request %d: OnToken got %v, drew %v", i, heard[i], c)
			}
			if want := 1000 + len(c.Tokens); ends[i] != want {
				t.Errorf("request %d: OnEnd got %d, want %d", i, ends[i], want)
			}
		}
	})
}

// TestContext: an ended context stops the sampler before its next token, with the context's cause.
func TestContext(t *testing.T) {
	suite(t, func(t *testing.T, s setup) {
		sampler := s.of(t, testkit.Model(t, "llama"), Options{})
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(context.Background())
		rs := requests(2, 100, 1)
		tokens := 0
		rs[1].OnToken = func(int32, float32) {
			if tokens++; tokens == 3 {
				cancel(enough)
			}
		}
		if c, err := sampler.Sample(ctx, rs); err != enough || c != nil || tokens != 3 {
			t.Errorf("%v, %v after %d tokens, want %v after 3", c, err, tokens, enough)
		}
		if _, err := sampler.Sample(ctx, rs); err != enough || tokens != 3 {
			t.Errorf("%v after %d tokens, want nothing done", err, tokens)
		}
		sample(t, sampler, requests(2, 3, 1)...) // it still works
	})
}

// TestWeightsAreLive: the next call samples from what a trainer writes into the buffers.
func TestWeightsAreLive(t *testing.T) {
	suite(t, func(t *testing.T, s setup) {
		m := testkit.Model(t, "llama")
		var weights []compute.Buffer
		var views [][]float32 // of the weights' memory, where the engine shares it
		put := func(params []*model.Param) {
			for _, p := range params {
				b, view, err := compute.Buffer(nil), []float32(nil), error(nil)
				if s.engine.Wants.SharedMemory {
					b, view, err = s.engine.SharedFloat32(p.Shape...)
				} else {
					b, err = s.engine.Float32(p.Data, p.Shape...)
				}
				expect.OK(t, err)
				copy(view, p.Data)
				weights, views = append(weights, b), append(views, view)
			}
		}
		put(m.Params)
		defer func() { backend.FinalizeAll(weights...) }()
		live := s.make(s.engine, m.Config, func() []compute.Buffer { return weights }, Options{})
		defer live.Close()
		r := requests(1, 6, 0)[0]
		before := sample(t, live, r)[0]

		other := model.Init(m.Config, 8)
		if s.engine.Wants.SharedMemory {
			for i, p := range other.Params {
				copy(views[i], p.Data)
			}
		} else {
			backend.FinalizeAll(weights...)
			weights = nil
			put(other.Params)
		}
		after, want := sample(t, live, r)[0], sample(t, s.of(t, other, Options{}), r)[0]
		if reflect.DeepEqual(before.Tokens, after.Tokens) || !reflect.DeepEqual(after, want) {
			t.Errorf("before %v, after %v, want %v", before.Tokens, after.Tokens, want.Tokens)
		}
	})
}

func TestBadRequests(t *testing.T) {
	good := requests(1, 2, 0)[0]
	cases := map[string]func(r *Request){
		"empty prompt":       func(r *Request) { r.Prompt = nil },
		"128 positions":      func(r *Request) { r.Prompt = make([]int32, 128) },
		"token 1 of the":     func(r *Request) { r.Prompt = []int32{0, 64} },
		"token 0 of the":     func(r *Request) { r.Prompt = []int32{-1} },
		"max_new_tokens 0":   func(r *Request) { r.MaxNew = 0 },
		"temperature -1":     func(r *Request) { r.Temperature = -1 },
		"temperature NaN":    func(r *Request) { r.Temperature = math.NaN() },
		"temperature +Inf:":  func(r *Request) { r.Temperature = math.Inf(1) },
		"top_k -1":           func(r *Request) { r.TopK = -1 },
		"top_p 1.1":          func(r *Request) { r.TopP = 1.1 },
		"top_p NaN":          func(r *Request) { r.TopP = math.NaN() },
		"min_p -0.1":         func(r *Request) { r.MinP = -0.1 },
		`stop string "x"`:    func(r *Request) { r.Stop = []string{"x"} },
		"no decoder to find": func(r *Request) { r.Stop = []string{""} },
	}
	suite(t, func(t *testing.T, s setup) {
		sampler := s.of(t, testkit.Model(t, "llama"), Options{})
		check := func(sampler Sampler, want string, spoil func(r *Request)) {
			bad := good
			spoil(&bad)
			_, err := sampler.Sample(context.Background(), []Request{good, bad})
			expect.Error(t, err, "request 1: ", want)
		}
		for want, spoil := range cases {
			check(sampler, want, spoil)
		}
		check(s.of(t, testkit.Model(t, "llama"), Options{Decoder: letters{}}), `stop "": want texts`,
			func(r *Request) { r.Stop = []string{"a", ""} })
		if c, err := sampler.Sample(context.Background(), nil); len(c) != 0 || err != nil {
			t.Errorf("no requests: %v, %v", c, err)
		}
	})
}

func TestBrokenWeights(t *testing.T) {
	suite(t, func(t *testing.T, s setup) {
		m := testkit.Model(t, "llama")
		m.Params[1].Data[0] = float32(math.NaN())
		_, err := s.of(t, m, Options{}).Sample(context.Background(), requests(2, 2, 0))
		expect.Error(t, err, "request 0, token 0: ", "NaN")
	})
}
