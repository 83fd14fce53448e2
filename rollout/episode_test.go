package rollout

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
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
		rs := episodes(3)
		cs := sample(t, Episodes{plain, 5, m.Config.MaxPositions}, rs...)
		for r, want := range logProbs(t, m, rs, cs) {
			c := cs[r]
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

func TestEndsOfEpisodes(t *testing.T) {
	m := testkit.Model(t, "llama")
	s := setup{implementation: implementations[0], engine: backendtest.Go(t)}.of(t, m, Options{})
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
