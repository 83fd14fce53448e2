package rollout

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// arriving feeds requests: request i arrives when next is called for the at[i]-th time, or the call would end.
type arriving struct {
	requests []Request
	at       []int
	left     map[int]chan struct{}
	got      []Completion // what OnToken received
	calls    int
	most     int // rows taken at once
	open     int
}

func (f *arriving) next(n int) (out []Arrival) {
	f.calls++
	for len(f.at) > 0 && len(out) < n && (f.at[0] <= f.calls || f.open+len(out) == 0) {
		i := len(f.requests) - len(f.at)
		r := f.requests[i]
		r.OnToken = func(token int32, logp float32) {
			c := &f.got[i]
			if c.Tokens, c.Logps = append(c.Tokens, token), append(c.Logps, logp); len(c.Tokens) == r.MaxNew {
				f.open--
			}
		}
		out, f.at = append(out, Arrival{Request: r, Left: f.left[i]}), f.at[1:]
	}
	f.open += len(out)
	f.most = max(f.most, f.open)
	return out
}

// feedAll answers requests that arrive one after the other while others are under way.
func feedAll(t *testing.T, s *Cached, rows int, rs []Request) (*arriving, []Completion) {
	t.Helper()
	f := &arriving{requests: rs, got: make([]Completion, len(rs))}
	for i := range rs {
		f.at = append(f.at, 1+i*2/3)
	}
	expect.OK(t, s.SampleContinuously(t.Context(), rows, f.next))
	return f, f.got
}

// unending are mixed requests that only MaxNew ends, some of them late.
func unending() []Request {
	rs := mixedRequests()
	for i := range rs {
		if rs[i].StopTokens = []int32{}; i%8 == 0 {
			rs[i].MaxNew += 240
		}
	}
	return rs
}

// TestWhoJoinsDrawsTheSame: a request that joins others under way draws the tokens that it draws alone, at the
// trainer's log-probs; with many rows and with few, with the cache on the host and in the engine, and also where the
// cache is so small that answers must give up their rows for a while.
func TestWhoJoinsDrawsTheSame(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		m, rs := testkit.Model(t, "mistral"), unending()
		m.Config.MaxPositions = 512
		want := sample(t, first(newCached(t, e, m, Options{})), rs...)
		for _, c := range []struct {
			name   string
			engine *backend.Engine
			rows   int
			tokens int // of the cache; 0: as usual
		}{
			{"many rows", e, 128, 0}, {"three rows", e, 3, 0}, {"one row", e, 1, 0},
			{"in the engine", onDevice(e), 128, 0}, {"in the engine, five rows", onDevice(e), 5, 0},
			{"little memory", e, 128, 4 * 128},
			{"little memory in the engine", onDevice(e), 128, 4 * 128},
		} {
			if c.engine != e && !e.Wants.SharedMemory {
				continue // as it is without
			}
			t.Run(c.name, func(t *testing.T) {
				s, programs := newCached(t, c.engine, m, Options{})
				s.most = c.tokens * s.planner().slotBytes
				f, got := feedAll(t, s, c.rows, rs)
				for i := range want {
					if !slices.Equal(got[i].Tokens, want[i].Tokens) {
						t.Errorf("request %d: %v, alone %v", i, got[i].Tokens, want[i].Tokens)
					}
				}
				for i, logps := range logProbs(t, m, rs, got) {
					for k, want := range logps {
						if d := math.Abs(float64(got[i].Logps[k] - want)); !(d < 2e-5) {
							t.Errorf("request %d, token %d: log-prob %v, trainer %v", i, k, got[i].Logps[k], want)
						}
					}
				}
				if f.most > c.rows || c.rows > 1 && f.most < 3 {
					t.Errorf("%d requests at once, want up to %d", f.most, c.rows)
				}
				evicted := slices.Contains(*programs, "evict")
				for _, p := range *programs {
					var rows, samples, prefix, suffix int
					if _, err := fmt.Sscanf(p, "step/%dx%d/%d+%d", &rows, &samples, &prefix, &suffix); err == nil &&
						c.tokens > 0 && rows > 1 && rows*suffix > c.tokens {
						t.Errorf("%s: want a cache of %d tokens", p, c.tokens)
					}
				}
				if evicted != (c.tokens > 0) {
					t.Errorf("answers gave up their rows: %v", evicted)
				}
			})
		}
	})
}

// TestShortDoesNotWaitForLong: a request that comes while a long one runs has its first token after the next step.
func TestShortDoesNotWaitForLong(t *testing.T) {
	s := first(newCached(t, backendtest.Go(t), testkit.Model(t, "llama"), Options{}))
	rs := requests(2, 60, 1)
	rs[0].StopTokens, rs[1].StopTokens, rs[1].MaxNew = []int32{}, []int32{}, 1
	var f *arriving
	at := -1 // tokens of the long answer when the short one ends
	f = &arriving{requests: rs, at: []int{1, 4}, got: make([]Completion, 2)}
	next := func(n int) []Arrival {
		if at < 0 && len(f.got[1].Tokens) == 1 {
			at = len(f.got[0].Tokens)
		}
		return f.next(n)
	}
	err := s.SampleContinuously(t.Context(), 2, next)
	if long := len(f.got[0].Tokens); err != nil || at < 3 || at > 6 || long != 60 {
		t.Errorf("%v: the short answer came after %d tokens of the long one, which has %d", err, at, long)
	}
}

// TestWhoLeavesFreesTheRow: the only row goes to the next request, and the one who left gets no more tokens.
func TestWhoLeavesFreesTheRow(t *testing.T) {
	s := first(newCached(t, backendtest.Go(t), testkit.Model(t, "llama"), Options{}))
	rs := requests(3, 60, 1)
	left := []chan struct{}{make(chan struct{}), nil, make(chan struct{})}
	close(left[2]) // before it has a row
	tokens := make([]int, 3)
	all := make([]Arrival, 3)
	for i, r := range rs {
		r.StopTokens = []int32{}
		r.OnToken = func(int32, float32) {
			if tokens[i]++; i == 0 && tokens[0] == 5 {
				close(left[0])
			}
		}
		all[i] = Arrival{Request: r, Left: left[i]}
	}
	next := func(n int) (out []Arrival) {
		n = min(n, len(all))
		out, all = all[:n], all[n:]
		return out
	}
	if err := s.SampleContinuously(t.Context(), 1, next); err != nil || !slices.Equal(tokens, []int{5, 60, 0}) {
		t.Errorf("%v, tokens %v: want 5, 60, 0", err, tokens)
	}
}

// TestFeedEnds: with the context, with its cause, and at a request that no sampler accepts; afterwards it works.
func TestFeedEnds(t *testing.T) {
	s := first(newCached(t, backendtest.Go(t), testkit.Model(t, "llama"), Options{}))
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	r := requests(1, 60, 1)[0]
	r.StopTokens, r.OnToken = []int32{}, func(int32, float32) { cancel(enough) }
	given := false
	once := func(r Request) func(int) []Arrival {
		given = false
		return func(int) []Arrival {
			if given {
				return nil
			}
			given = true
			return []Arrival{{Request: r}}
		}
	}
	if err := s.SampleContinuously(ctx, 4, once(r)); err != enough {
		t.Errorf("%v, want %v", err, enough)
	}
	err := s.SampleContinuously(t.Context(), 4, once(Request{}))
	if err == nil || !strings.Contains(err.Error(), "request 0: empty prompt") {
		t.Error(err)
	}
	if err := s.SampleContinuously(t.Context(), 4, once(r)); err != nil || !given {
		t.Error(err)
	}
}

// TestCheckRoom: a request is refused if one row, whose lengths are powers of two, has no room for its
// answer.
func TestCheckRoom(t *testing.T) {
	e := backendtest.Go(t)
	m := testkit.Model(t, "llama")
	m.Config.MaxPositions = 512
	for _, c := range []struct {
		engine *backend.Engine
		slots  int
	}{{e, 256}, {onDevice(e), 64 + 256}} { // 40 tokens and 160 together; and each for themselves
		s, _ := newCached(t, c.engine, m, Options{})
		r := Request{Prompt: make([]int32, 40), Sampling: Sampling{MaxNew: 160}}
		s.most = c.slots * s.planner().slotBytes
		if err := s.CheckRoom(r); err != nil {
			t.Error(err)
		}
		s.most--
		if err := s.CheckRoom(r); err == nil || !strings.Contains(err.Error(), "for a completion of 160 tokens after") {
			t.Errorf("%d slots: %v", c.slots, err)
		}
	}
}
