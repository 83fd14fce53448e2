package metered

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/remote"
)

// TestBudgetOfRequests: the budget is never exceeded, retries included; its error is one line; further runs continue
// and pay for no reply twice.
func TestBudgetOfRequests(t *testing.T) {
	const n, budget = 300, 100
	s := testkit.StartJudge(t, testkit.JudgeOptions{Reply: verdict, Delay: time.Millisecond, Faults: 0.1,
		Stall: time.Minute, Seed: 5})
	path := filepath.Join(t.TempDir(), "judge.jsonl")
	answered, runs := 0, 0
	for ; runs < 10; runs++ {
		before, _ := s.Requests()
		c := open(t, s, func(o *Options) {
			o.Cache, o.Parallel, o.MaxRequests, o.Timeout = path, 16, budget, stall
		})
		err := judgeAll(t.Context(), c, n, func(int) {})
		c.Close()
		after, _ := s.Requests()
		kept := len(entries(t, path, true))
		if answered += c.Stats().Replies - c.Stats().Cached; kept < answered {
			t.Errorf("%d replies handed out, %d kept", answered, kept)
		}
		if err == nil {
			break
		}
		if after-before > budget || c.Stats().Requests != after-before || !errors.Is(err, ErrBudget) ||
			!strings.HasPrefix(err.Error(), "judge: the budget is spent: 100 requests (") ||
			strings.Contains(err.Error(), "\n") {
			t.Fatalf("%v after %d requests, %+v", err, after-before, c.Stats())
		}
	}
	all, _ := s.Requests()
	t.Logf("%d runs, %d requests, faults %v", runs+1, all, s.Faults())
	if kept := len(entries(t, path, true)); kept != n || runs > 5 {
		t.Errorf("%d replies in %d runs, want %d", kept, runs+1, n)
	}
}

// TestBudgetOfCost: spending stays below the budget by less than one request, with two requests under way at a time
// too.
func TestBudgetOfCost(t *testing.T) {
	prompt := strings.Repeat("word ", 59) // with two digits behind it 60 tokens by the server's count, 115 by our guess
	s := testkit.StartJudge(t, testkit.JudgeOptions{Delay: 5 * time.Millisecond,
		Reply: func(string) string { return "one two three four five" }})
	c := open(t, s, func(o *Options) {
		o.Parallel, o.MaxNew, o.PromptPrice, o.CompletionPrice, o.MaxCost = 4, 10, 1e4, 2e4, 10
	})
	// A request costs 60/100 + 5/50 = 0.7; before, 115/100 + 10/50 = 1.35 is set aside.
	err := remote.InParallel(t.Context(), 4, 100, func(ctx context.Context, i int) error {
		_, err := c.Ask(ctx, fmt.Sprintf("%s%02d", prompt, i))
		return err
	})
	c.Close()
	if err == nil || !errors.Is(err, ErrBudget) || !strings.HasPrefix(err.Error(),
		"judge: the budget is spent: 0.9 of 10 left, the next request may cost 1.35 (") {
		t.Error(err)
	}
	if s := c.Stats(); s.Requests != 13 || s.Cost < 9.09 || s.Cost > 9.11 || s.PromptTokens != 13*60 ||
		s.CompletionTokens != 13*5 {
		t.Errorf("%+v, want 13 requests for 9.1", s)
	}
}

// TestLostRepliesCost: a reply that may have been made costs the guess; a refused one costs nothing.
func TestLostRepliesCost(t *testing.T) {
	for _, c := range []struct {
		kind remote.Failure
		want float64
	}{{remote.Lost, 21}, {remote.Foreign, 21}, {remote.Busy, 0}, {remote.Unreachable, 0}} {
		o := Options{Model: "m", MaxNew: 4, PromptPrice: 1e6, CompletionPrice: 1e6}
		o.setDefaults()
		client := newClient(o)
		client.send = func(context.Context, chat, int) (ask.Answer, ask.Usage, error) {
			return ask.Answer{}, ask.Usage{}, &remote.Error{Kind: c.kind}
		}
		if _, err := client.Ask(t.Context(), "abc"); err == nil || client.Stats().Cost != c.want {
			t.Errorf("kind %d: %v, cost %v, want %v", c.kind, err, client.Stats().Cost, c.want)
		}
	}
}

// bubble runs a client with a synthetic clock and this answer to every try.
func bubble(t *testing.T, o Options, send func(tries int) (ask.Usage, error), test func(t *testing.T, c *Client)) {
	synctest.Test(t, func(t *testing.T) {
		o.Model, o.Retries = "m", 8
		o.setDefaults()
		c := newClient(o)
		c.send = func(_ context.Context, _ chat, tries int) (ask.Answer, ask.Usage, error) {
			u, err := send(tries)
			return ask.Answer{Completion: rollout.Completion{Text: "yes"}}, u, err
		}
		test(t, c)
		c.Close()
	})
}

// TestRequestsPerMinute: requests are evenly spaced from the first one on.
func TestRequestsPerMinute(t *testing.T) {
	bubble(t, Options{RequestsPerMinute: 120, Server: remote.Server{Parallel: 10}},
		func(int) (ask.Usage, error) { return ask.Usage{}, nil }, func(t *testing.T, c *Client) {
			begin := time.Now()
			if err := askMany(t.Context(), c, 241); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took < 2*time.Minute || took > 2*time.Minute+time.Second {
				t.Errorf("241 requests at 120 a minute took %v", took)
			}
		})
}

func askMany(ctx context.Context, c *Client, n int) error {
	return remote.InParallel(ctx, c.options.Parallel, n, func(ctx context.Context, i int) error {
		_, err := c.Ask(ctx, fmt.Sprintf("%252d", i))
		return err
	})
}

// TestBackoff: waits double, are shortened by at most half and never exceed a minute; the server's wait is added.
func TestBackoff(t *testing.T) {
	var began time.Time
	var waits []time.Duration
	asked := remote.Error{Kind: remote.Busy}
	send := func(int) (ask.Usage, error) {
		if !began.IsZero() {
			waits = append(waits, time.Since(began))
		}
		began = time.Now()
		return ask.Usage{}, &asked
	}
	for _, asked.Wait = range []time.Duration{0, 90 * time.Second} {
		began, waits = time.Time{}, nil
		bubble(t, Options{}, send, func(t *testing.T, c *Client) {
			if _, err := c.Ask(t.Context(), "q"); err == nil {
				t.Error("no error")
			}
		})
		if len(waits) != 8 {
			t.Fatalf("%d waits: %v", len(waits), waits)
		}
		for i, wait := range waits {
			most := min(time.Second<<i, time.Minute)
			if wait -= asked.Wait; wait < most/2 || wait > most {
				t.Errorf("wait %d is %v, want %v to %v", i, wait, most/2, most)
			}
		}
	}
}

// TestWaitsEnd: waiting for a limit, a place, the next try or the budget ends at once with the context and gives
// back what it held.
func TestWaitsEnd(t *testing.T) {
	busy := func(int) (ask.Usage, error) { return ask.Usage{}, &remote.Error{Kind: remote.Busy} }
	slow := func(int) (ask.Usage, error) { time.Sleep(time.Hour); return ask.Usage{}, nil }
	fine := func(int) (ask.Usage, error) { return ask.Usage{}, nil }
	for name, c := range map[string]struct {
		o    Options
		send func(int) (ask.Usage, error)
	}{
		"next try":        {Options{Wait: time.Hour}, busy},
		"place":           {Options{Server: remote.Server{Parallel: 1}, Grace: 2 * time.Hour}, slow},
		"requests":        {Options{RequestsPerMinute: 1, MaxRequests: 9}, fine},
		"budget of cost":  {Options{MaxCost: 1.5, PromptPrice: 1e4, CompletionPrice: 1, Grace: 2 * time.Hour}, slow},
		"budget of tries": {Options{MaxRequests: 2, RequestsPerMinute: 1, Grace: 2 * time.Hour}, slow},
	} {
		bubble(t, c.o, c.send, func(t *testing.T, client *Client) {
			why := errors.New("enough")
			begin := time.Now()
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
			defer cancel()
			err := askMany(ctx, client, 5)
			if time.Since(begin) != time.Second || err != why {
				t.Errorf("%s: %v after %v", name, err, time.Since(begin))
			}
			client.Close()
			if l := client.ledger; l.open != 0 || l.promised != 0 || l.reserved != 0 || len(client.places) != 0 {
				t.Errorf("%s: %d open, %d promised, %v reserved, %d places taken", name, l.open, l.promised, l.reserved,
					len(client.places))
			}
		})
	}
}
