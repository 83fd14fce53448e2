package rollout

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

// echoing replies to a message with its own tokens, backwards, and to the nth with nothing.
type echoing struct {
	n, heard int
	fails    error
}

func (w *echoing) Reply(m Completion) ([]int32, error) {
	if w.heard++; w.heard == w.n {
		return nil, w.fails
	}
	reply := slices.Clone(m.Tokens)
	slices.Reverse(reply)
	return append(reply, 3), nil
}

// episodes are requests, of which every other one is an episode of n messages.
func episodes(n int) []Request {
	rs := requests(6, 5, 1)
	for i := range rs {
		rs[i].StopTokens = []int32{}
		if i%2 == 0 {
			rs[i].MaxNew = 64
			rs[i].StopTokens = []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}
			rs[i].Open = func() World { return &echoing{n: n} }
		}
	}
	return rs
}

// TestEpisodes: a message follows the whole text before it, the log-probs of what the model drew are those that
// training measures of the text, and requests without a world are answered as without episodes.
func TestEpisodes(t *testing.T) {
	suite(t, func(t *testing.T, s setup) {
		m := testkit.Model(t, "llama")
		plain := s.of(t, m, Options{})
		rs, ends := episodes(3), make([]int, 6)
		for i := range rs {
			rs[i].OnEnd = func(tokens int) { ends[i] += 1000 + tokens }
		}
		cs := sample(t, Episodes{plain, 5, m.Config.MaxPositions}, rs...)
		for r, want := range logProbs(t, m, rs, cs) {
			c := cs[r]
			if want := 1000 + c.DrawnTokens(); ends[r] != want {
				t.Errorf("request %d: OnEnd got %d, want %d", r, ends[r], want)
			}
			if rs[r].Open == nil {
				equalAnswers(t, []Completion{c}, sample(t, plain, rs[r]))
				continue
			}
			if c.Messages != 3 || c.Reason != EOS || len(c.Drawn) != len(c.Tokens) || len(c.Logps) != len(c.Tokens) {
				t.Fatalf("request %d: %+v", r, c)
			}
			if n := len(c.DrawnLogps()); n != c.DrawnTokens() || n == len(c.Tokens) {
				t.Errorf("request %d: %d of %d tokens drawn, %d log-probs", r, c.DrawnTokens(), len(c.Tokens), n)
			}
			for k, drawn := range c.Drawn {
				if d := math.Abs(float64(c.Logps[k] - want[k])); drawn && !(d < 2e-5) || !drawn && c.Logps[k] != 0 {
					t.Errorf("request %d, token %d: log-prob %v, trainer %v, drawn %v", r, k, c.Logps[k], want[k], drawn)
				}
			}
		}
	})
}

// unseen hides what a sampler is.
type unseen struct{ Sampler }

// talking replies with many tokens.
type talking struct{}

func (talking) Reply(Completion) ([]int32, error) {
	return slices.Repeat([]int32{3, 40, 4, 9, 2}, 10), nil
}

// TestEpisodesInOneCall: a cache in the host's memory answers all turns in one call, and reads a group's prompt once.
// Its episodes are the same as with one call a turn, which reads all that was said before. They outgrow their rows, and
// end at different times.
func TestEpisodesInOneCall(t *testing.T) {
	c := testkit.Config(t, "llama")
	c.MaxPositions = 512
	s := setup{implementation: implementations[1], engine: backendtest.Go(t)}.of(t, model.Init(c, 7), Options{}).(*Cached)
	var prefills []string
	s.trace = func(program string) {
		if strings.HasPrefix(program, "prefill") {
			prefills = append(prefills, program)
		}
	}
	rs := requests(8, 32, 1)
	for i := range rs { // two groups, of 50 and 60 tokens
		rs[i].Prompt = slices.Repeat([]int32{7, 33, 12, 40, 8}, 10+i/4*2)
		rs[i].StopTokens, rs[i].Open = []int32{5, 21, 37, 53}, func() World { return talking{} }
	}
	together := sample(t, Episodes{s, 4, c.MaxPositions}, rs...)
	if len(prefills) != 1 || !strings.HasPrefix(prefills[0], "prefill/2x") {
		t.Errorf("prefills %v, want one of two prompts", prefills)
	}
	prefills = nil
	apart, longest := sample(t, Episodes{unseen{s}, 4, c.MaxPositions}, rs...), 0
	if len(prefills) < 4 {
		t.Errorf("prefills %v, want one a turn or more", prefills)
	}
	for i, c := range together {
		want := apart[i]
		if c.Messages != want.Messages || !slices.Equal(c.Tokens, want.Tokens) || !slices.Equal(c.Drawn, want.Drawn) ||
			c.Reason != want.Reason {
			t.Errorf("request %d: %+v, want %+v", i, c, want)
		}
		longest = max(longest, c.Messages)
	}
	if longest < 4 {
		t.Errorf("the longest episode has %d messages, want 4", longest)
	}
}

func TestEndsOfEpisodes(t *testing.T) {
	m := testkit.Model(t, "llama")
	for _, i := range implementations {
		endsOfEpisodes(t, m, setup{implementation: i, engine: backendtest.Go(t)}.of(t, m, Options{}))
	}
}

func endsOfEpisodes(t *testing.T, m *model.Model, s Sampler) {
	t.Helper()
	rs := episodes(100)[:1]
	if c := sample(t, Episodes{s, 4, m.Config.MaxPositions}, rs...)[0]; c.Messages != 4 || c.Reason != Turns {
		t.Errorf("%d messages, %s", c.Messages, c.Reason)
	}
	most := len(rs[0].Prompt) + 12
	if c := sample(t, Episodes{s, 1000, most}, rs...)[0]; c.Reason != Length || len(rs[0].Prompt)+len(c.Tokens) > most {
		t.Errorf("%d tokens, %s", len(c.Tokens), c.Reason)
	}
	rs[0].Open = func() World { return &echoing{n: 2, fails: errors.New("the mailbox is shut")} }
	_, err := Episodes{s, 4, m.Config.MaxPositions}.Sample(t.Context(), rs)
	expect.Error(t, err, "request 0, after message 2: the mailbox is shut")
}
