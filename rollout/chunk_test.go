package rollout

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/model"
)

// longRequests are greedy and drawn samples of prompts of several lengths. Some are long: more than four chunks of 4.
func longRequests() (rs []Request) {
	for i, n := range []int{70, 9, 41, 33, 30} {
		group := sampleGroups(i+1, 5, n, func(i, k int) int { return 3 + i + k })
		group[5*i].Temperature = 0
		rs = append(rs, group[5*i:]...)
	}
	return rs
}

// TestLongPromptsAreReadInChunks: the answers are those of whole prefills, on every engine and with the cache in both
// places, for samples that share their prompt and those that have a row each.
func TestLongPromptsAreReadInChunks(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		for _, e := range places(e) {
			m := testkit.Model(t, "mistral")
			m.Config.MaxPositions = 128
			want := sample(t, first(newCached(t, e, m, Options{})), longRequests()...)
			for i, o := range []Options{{Slots: 7}, {}, {NoSharing: true}} {
				if i > 0 && !backendtest.AllVariants(t, e) {
					continue
				}
				s, programs := newCached(t, e, m, o)
				s.chunk = 4
				equalAnswers(t, sample(t, s, longRequests()...), want)
				if !readsInChunks(*programs) {
					t.Errorf("programs %v", *programs)
				}
			}
		}
	})
}

// TestLongPromptsOfTwoWindows: layers with a window and without take turns, and the last group of layers is shorter.
func TestLongPromptsOfTwoWindows(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		c := testkit.Config(t, "gemma3_text")
		c.MaxPositions, c.Layers, c.WindowLayers = 128, 3, []bool{true, false, true}
		m := model.Init(c, 7)
		s, programs := newCached(t, e, m, Options{})
		s.chunk = 4
		want := sample(t, first(newCached(t, e, m, Options{})), longRequests()...)
		equalAnswers(t, sample(t, s, longRequests()...), want)
		if !readsInChunks(*programs) {
			t.Errorf("programs %v", *programs)
		}
	})
}

// TestLongPromptsOnAMesh: the cache is cut over devices.
func TestLongPromptsOnAMesh(t *testing.T) {
	m := testkit.Model(t, "mistral")
	m.Config.MaxPositions = 128
	want := sample(t, newOnMesh(t, backendtest.Mesh(t, backend.Mesh{}), m), longRequests()...) // a whole prefill
	for _, devices := range []int{1, 4} {
		s := newOnMesh(t, backendtest.Mesh(t, backend.Mesh{Data: devices}), m)
		s.chunk = 4
		equalAnswers(t, sample(t, s, longRequests()...), want)
	}
}

// TestLongPromptsShareTheirPrograms: all of a batch read the chunks at one position before those at the next.
func TestLongPromptsShareTheirPrograms(t *testing.T) {
	m := testkit.Model(t, "mistral")
	m.Config.MaxPositions = 128
	s, _ := newCached(t, backendtest.Go(t), m, Options{})
	var layers []string
	s.chunk, s.trace = 4, func(program string) {
		if strings.HasPrefix(program, "chunk/4/") && strings.Contains(program, "layers") {
			layers = append(layers, program)
		}
	}
	sample(t, s, sampleGroups(3, 1, 20, func(int, int) int { return 1 })...)
	once := slices.Compact(layers)
	slices.Sort(once)
	if n := len(slices.Compact(slices.Clone(once))); n < 2 || n < len(once) {
		t.Errorf("programs in turn: %v", once)
	}
}

// TestStopBetweenPieces: once a call is cancelled, it reads no other chunk.
func TestStopBetweenPieces(t *testing.T) {
	m := testkit.Model(t, "mistral")
	m.Config.MaxPositions = 128
	s, _ := newCached(t, backendtest.Go(t), m, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	chunks := 0
	s.chunk, s.trace = 4, func(program string) {
		if program == "chunk/4/embed" {
			if chunks++; chunks == 2 {
				cancel()
			}
		}
	}
	if _, err := s.Sample(ctx, longRequests()); !errors.Is(err, context.Canceled) || chunks != 2 {
		t.Errorf("%d chunks, then %v", chunks, err)
	}
}

// TestAGroupThenOneAnswer: a long prompt of a group, and the same one for one answer, are read by programs of their own,
// in whichever order they come.
func TestAGroupThenOneAnswer(t *testing.T) {
	e := backendtest.Go(t)
	m := testkit.Model(t, "mistral")
	m.Config.MaxPositions = 128
	group := sampleGroups(1, 4, 41, func(int, int) int { return 8 })
	for _, calls := range [][][]Request{{group, group[:1]}, {group[:1], group}} {
		s, _ := newCached(t, e, m, Options{})
		s.chunk = 4
		for _, rs := range calls {
			want := sample(t, first(newCached(t, e, m, Options{})), rs...)
			equalAnswers(t, sample(t, s, rs...), want)
		}
	}
}

// places are an engine with the cache on the host, if it can, and in itself.
func places(e *backend.Engine) []*backend.Engine {
	if !e.Wants.SharedMemory || e.Name == "onnx" {
		return []*backend.Engine{e}
	}
	return []*backend.Engine{e, onDevice(e)}
}

// readsInChunks says that chunks were read, and nothing by a whole prefill of rows of 64 tokens or more.
func readsInChunks(programs []string) bool {
	whole := func(p string) bool {
		return strings.HasPrefix(p, "prefill") && (strings.HasSuffix(p, "x96") || strings.HasSuffix(p, "x64"))
	}
	chunk := func(p string) bool { return strings.HasPrefix(p, "chunk/4/") }
	return slices.ContainsFunc(programs, chunk) && !slices.ContainsFunc(programs, whole)
}

// TestLongPromptsJoin: in SampleContinuously, long prompts are read in chunks among short ones.
func TestLongPromptsJoin(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		for _, e := range places(e) {
			m := testkit.Model(t, "mistral")
			m.Config.MaxPositions = 128
			rs := longRequests()
			want := sample(t, first(newCached(t, e, m, Options{})), rs...)
			s, programs := newCached(t, e, m, Options{})
			s.chunk = 4
			_, got := feedAll(t, s, 4, rs)
			for i := range want {
				if !slices.Equal(got[i].Tokens, want[i].Tokens) {
					t.Errorf("request %d: %v, alone %v", i, got[i].Tokens, want[i].Tokens)
				}
			}
			if !slices.ContainsFunc(*programs, func(p string) bool { return strings.HasPrefix(p, "chunk") }) {
				t.Errorf("programs %v", *programs)
			}
		}
	})
}

// TestPieceDividesLengths: a chunk divides every length of a row that holds a long prompt.
func TestPieceDividesLengths(t *testing.T) {
	for n := longPrompt*chunkTokens + 1; n < 1<<17; n += 97 {
		if l := lengthOf(n); l%chunkTokens != 0 {
			t.Fatalf("a row of %d slots holds %d tokens", l, n)
		}
	}
}
