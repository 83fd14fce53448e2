package rollout

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

// newCached makes a Cached with its own weights that records the programs it runs, without repetitions.
func newCached(t testing.TB, e *backend.Engine, m *model.Model, o Options) (*Cached, *[]string) {
	t.Helper()
	s := setup{e, implementations[1]}.of(t, m, o).(*Cached)
	programs := new([]string)
	s.trace = func(program string) {
		if n := len(*programs); n == 0 || (*programs)[n-1] != program {
			*programs = append(*programs, program)
		}
	}
	return s, programs
}

// sampleGroups returns samples of prompts of one length; sample k of prompt i draws lengths(i, k) tokens.
func sampleGroups(prompts, samples, length int, lengths func(i, k int) int) (out []Request) {
	for i := range prompts {
		r := Request{Sampling: Sampling{Temperature: 1}, Seed: uint64(i), StopTokens: []int32{}}
		for k := range length {
			r.Prompt = append(r.Prompt, int32(7*i+k*k)%testkit.Vocab)
		}
		for k, x := range r.Samples(samples) {
			x.MaxNew = lengths(i, k)
			out = append(out, x)
		}
	}
	return out
}

// TestGroupsShareTheirPrompt: a prompt is read once, its samples are neighbours, and unfinished ones move to fewer
// rows.
func TestGroupsShareTheirPrompt(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		m := testkit.Model(t, "mistral")
		rs := sampleGroups(4, 16, 40, func(i, k int) int { return 2 + k + i })
		s, programs := newCached(t, e, m, Options{})
		shared := sample(t, s, rs...)
		want := []string{"prefill/4x64", "step/4x16/64+32", "step/32x1/0+64", "step/16x1/0+64", "step/4x1/0+64"}
		if e.Wants.SharedMemory && !reflect.DeepEqual(*programs, want) {
			t.Errorf("programs %v, want %v", *programs, want)
		}
		var alone []Completion
		for _, r := range rs[:20] {
			alone = append(alone, sample(t, s, r)...)
		}
		equalAnswers(t, shared[:20], alone)
		for i, logps := range logProbs(t, m, rs, shared) {
			for k, want := range logps {
				if d := math.Abs(float64(shared[i].Logps[k] - want)); !(d < 2e-5) {
					t.Errorf("request %d, token %d: log-prob %v, trainer %v", i, k, shared[i].Logps[k], want)
				}
			}
		}
	})
}

func first[A, B any](a A, _ B) A { return a }

// TestPromptsAreReadInChunks: chunks have about 1,024 tokens, long prompts first.
func TestPromptsAreReadInChunks(t *testing.T) {
	s, programs := newCached(t, backendtest.Go(t), testkit.Model(t, "llama"), Options{})
	rs := sampleGroups(20, 1, 60, func(int, int) int { return 1 })
	for i := range 9 {
		rs[2*i].Prompt = rs[2*i].Prompt[:10+i]
	}
	sample(t, s, rs...)
	if want := []string{"prefill/16x64", "prefill/4x32"}; !reflect.DeepEqual(*programs, want) {
		t.Errorf("programs %v, want %v", *programs, want)
	}
	*programs = nil
	sample(t, s, sampleGroups(11, 1, 90, func(int, int) int { return 1 })...)
	if want := []string{"prefill/8x96", "prefill/4x96"}; !reflect.DeepEqual(*programs, want) {
		t.Errorf("programs %v, want %v", *programs, want)
	}
}

// TestWaves: more requests than slots are answered in several batches, even if that splits a group.
func TestWaves(t *testing.T) {
	m := testkit.Model(t, "llama")
	rs := sampleGroups(3, 8, 40, func(i, k int) int { return 5 })
	s, programs := newCached(t, backendtest.Go(t), m, Options{Slots: 12})
	batches := sample(t, s, rs...)
	want := []string{"prefill/2x64", "step/3x4/64+32", "prefill/2x64", "step/3x4/64+32"}
	if !reflect.DeepEqual(*programs, want) {
		t.Errorf("programs %v, want %v", *programs, want)
	}
	equalAnswers(t, batches, sample(t, first(newCached(t, backendtest.Go(t), m, Options{})), rs...))
}

// TestCachesGrow: a full cache moves into a longer one, with shared and with separate prompts.
func TestCachesGrow(t *testing.T) {
	e := backendtest.Go(t)
	m := testkit.Model(t, "mistral")
	m.Config.MaxPositions = 512
	for _, prompt := range []int{9, 40} {
		for _, engine := range []*backend.Engine{e, onDevice(e)} {
			rs := sampleGroups(1, 4, prompt, func(_, k int) int { return 290 + k })
			s, programs := newCached(t, engine, m, Options{})
			cs := sample(t, s, rs...)
			if len(*programs) < 3 {
				t.Errorf("programs %v, want several lengths", *programs)
			}
			for i, logps := range logProbs(t, m, rs, cs) {
				if len(logps) != rs[i].MaxNew {
					t.Fatalf("request %d: %d log-probs, want %d", i, len(logps), rs[i].MaxNew)
				}
				for k, want := range logps {
					if d := math.Abs(float64(cs[i].Logps[k] - want)); !(d < 5e-5) {
						t.Fatalf("prompt %d, request %d, token %d: log-prob %v, trainer %v", prompt, i, k,
							cs[i].Logps[k], want)
					}
				}
			}
		}
	}
}

// TestVocabularies: sizes that are not a multiple of the block work.
func TestVocabularies(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		for _, v := range []int{65, 100} {
			config := testkit.Config(t, "llama")
			config.VocabSize = v
			m := model.Init(config, 3)
			want := sample(t, setup{e, implementations[0]}.of(t, m, Options{}), mixedRequests()...)
			for _, i := range implementationsOn(e)[1:] {
				equalAnswers(t, sample(t, setup{e, i}.of(t, m, Options{}), mixedRequests()...), want)
			}
		}
	})
}

// TestGreedyWithACacheIsGreedyWithout: tokens are equal, alone and in a batch.
func TestGreedyWithACacheIsGreedyWithout(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		m := testkit.Model(t, "qwen2")
		rs := requests(5, 60, 0)
		want := sample(t, setup{e, implementations[0]}.of(t, m, Options{}), rs...)
		s := first(newCached(t, e, m, Options{}))
		equalAnswers(t, sample(t, s, rs...), want)
		equalAnswers(t, sample(t, s, rs[3]), want[3:4])
	})
}

func TestLayouts(t *testing.T) {
	p := planner{slots: 128, positions: 4096, slotBytes: 1 << 10}
	group := func(sizes ...int) (sequences []*sequence) {
		for i, n := range sizes {
			for range n {
				a := newAnswer(Request{Sampling: Sampling{MaxNew: 60}, Prompt: make([]int32, 100)}, 0,
					&model.Config{MaxPositions: 4096}, nil, &Completion{})
				sequences = append(sequences, &sequence{answer: a, prompt: i})
			}
		}
		return sequences
	}
	cases := []struct {
		name      string
		sequences []*sequence
		shared    bool
		want      string
	}{
		{"a group of 16", group(16), true, "1x16/128+64"},
		{"alone", group(1), true, "1x1/0+192"},
		{"8 groups of 16", group(16, 16, 16, 16, 16, 16, 16, 16), true, "8x16/128+64"},
		{"no sharing", group(16, 16), false, "32x1/0+192"},
		{"groups of 5", group(5, 5, 5, 5), true, "4x8/128+64"},
		{"pairs", group(2, 2, 2, 2), true, "4x4/128+64"},
		{"one each", group(1, 1, 1, 1, 1), true, "16x1/0+192"},
		{"one large, small ones", group(40, 1, 1), true, "8x8/128+64"},
	}
	for _, c := range cases {
		l := p.plan(c.sequences, c.shared)
		if got := fmt.Sprintf("%dx%d/%d+%d", l.shape.Prompts, l.shape.Samples, l.shape.Prefix,
			l.shape.Suffix); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		prompts, seen := map[int]int{}, 0
		for row, s := range l.sequences {
			if s == nil {
				continue
			}
			seen++
			if other, ok := prompts[row/l.shape.Samples]; ok && other != s.prompt {
				t.Errorf("%s: row %d has prompt %d among samples of %d", c.name, row, s.prompt, other)
			}
			prompts[row/l.shape.Samples] = s.prompt
		}
		if seen != len(c.sequences) {
			t.Errorf("%s: %d rows placed of %d", c.name, seen, len(c.sequences))
		}
	}
}

func TestWavesFitTheMemory(t *testing.T) {
	many := slices.Repeat([]Request{{Sampling: Sampling{MaxNew: 24}, Prompt: make([]int32, 1000)}}, 300)
	for _, c := range []struct {
		plan planner
		want int
	}{
		{planner{slots: 128, slotBytes: 1 << 10}, 128},
		{planner{slots: 300, slotBytes: 1 << 10}, 300},
		{planner{slots: 128, slotBytes: 1 << 15}, 32},
		{planner{slots: 128, slotBytes: 1 << 19}, 1},
		{planner{slots: 300, slotBytes: 1 << 15, inGraph: true}, 16},
		{planner{slots: 512, slotBytes: 1 << 10, inGraph: true}, 512},
		{planner{slots: 512, slotBytes: 1 << 19, inGraph: true}, 1},
	} {
		c.plan.positions, c.plan.most = 4096, 1<<30
		got := c.plan.fit(many)
		if c.plan.inGraph {
			got = c.plan.forAll(many).slots
		}
		if got != c.want {
			t.Errorf("%+v: %d together, want %d", c.plan, got, c.want)
		}
	}
}

// TestSamplingDoesNotLeak: Go's collector does not see ONNX Runtime's tensors. A call makes 10 MB of logits and
// several caches of 1 MB; one call in four is stopped halfway.
func TestSamplingDoesNotLeak(t *testing.T) {
	config := testkit.Config(t, "llama")
	config.VocabSize = 8000
	m := model.Init(config, 1)
	for name, e := range map[string]*backend.Engine{"host": backendtest.ONNX(t),
		"in-graph": onDevice(backendtest.ONNX(t))} {
		s := first(newCached(t, e, m, Options{}))
		calls := func(n int) {
			for i := range n {
				ctx, cancel := context.WithCancel(context.Background())
				rs := sampleGroups(4, 8, 40, func(_, k int) int { return 4 + k })
				if i%4 == 3 {
					rs[0].OnToken = func(int32, float32) { cancel() }
				}
				if _, err := s.Sample(ctx, rs); (err != nil) != (i%4 == 3) {
					t.Fatal(err)
				}
				cancel()
			}
		}
		calls(8)
		before := testkit.Resident(t)
		calls(20)
		if grown := testkit.Resident(t) - before; grown > 30<<20 {
			t.Errorf("%s: 20 calls left %d MB behind", name, grown>>20)
		}
	}
}

// TestMomentsOfWeights: each call asks for the weights exactly once.
func TestMomentsOfWeights(t *testing.T) {
	e := backendtest.Go(t)
	m := testkit.Model(t, "llama")
	weights := expect.Must(Upload(e, m, model.GraphOptions{}))(t)
	defer backend.FinalizeAll(weights...)
	asked := 0
	s := NewCached(e, m.Config, func() []compute.Buffer { asked++; return weights }, Options{Slots: 2})
	defer s.Close()
	sample(t, s, requests(5, 3, 1)...)
	sample(t, s, requests(1, 3, 1)...)
	if asked != 2 {
		t.Errorf("weights were asked for %d times in 2 calls", asked)
	}
}
