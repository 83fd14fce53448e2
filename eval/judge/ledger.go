package judge

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/posttrain/posttrain/rollout"
)

// Stats are counts of a client, from its opening on.
type Stats struct {
	Replies          int     `json:"replies"`           // handed out
	Cached           int     `json:"cached"`            // of them: from the cache
	Shared           int     `json:"shared"`            // questions that joined an equal one under way
	Failed           int     `json:"failed"`            // questions that ended in an error
	Requests         int     `json:"requests"`          // sent, retries included
	Retried          int     `json:"retried"`           // of them: tries after the first
	PromptTokens     int     `json:"prompt_tokens"`     // as the server counts them
	CompletionTokens int     `json:"completion_tokens"` // as the server counts them
	Cost             float64 `json:"cost"`              // by the prices; guessed, at most, where a reply was lost or did not tell its tokens
}

// Plus adds the counts of another client.
func (s Stats) Plus(t Stats) Stats {
	return Stats{
		s.Replies + t.Replies, s.Cached + t.Cached, s.Shared + t.Shared, s.Failed + t.Failed, s.Requests + t.Requests, s.Retried + t.Retried,
		s.PromptTokens + t.PromptTokens, s.CompletionTokens + t.CompletionTokens, s.Cost + t.Cost,
	}
}

// ErrBudget is what a spent budget's error is, among other things.
var ErrBudget = errors.New("the budget is spent")

// ledger counts, and says when the budget is spent.
type ledger struct {
	options Options

	mu       sync.Mutex
	counts   Stats
	promised int           // requests that have room and are not sent yet
	reserved float64       // cost of requests that have room and are not settled yet
	open     int           // such requests
	settled  chan struct{} // closed and replaced when one is settled or released
	spent    error         // once set, it stays
}

func newLedger(o Options) *ledger { return &ledger{options: o, settled: make(chan struct{})} }

func (l *ledger) stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// reserve waits until it is known whether the budget has room for a request of so many tokens.
func (l *ledger) reserve(ctx context.Context, guess tokens) error {
	for {
		settled, err := l.tryReserve(guess)
		if settled == nil {
			return err
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tryReserve returns what to wait for where the room depends on requests under way.
func (l *ledger) tryReserve(guess tokens) (wait chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o, cost := &l.options, l.options.cost(guess.prompt, guess.completion)
	switch {
	case l.spent != nil:
		return nil, l.spent
	case o.MaxRequests > 0 && l.counts.Requests+l.promised >= o.MaxRequests:
		if l.promised > 0 {
			return l.settled, nil
		}
		l.spent = l.spend(fmt.Sprintf("%d requests", o.MaxRequests))
		return nil, l.spent
	case o.MaxCost > 0 && l.counts.Cost+l.reserved+cost > o.MaxCost:
		if l.open > 0 {
			return l.settled, nil
		}
		l.spent = l.spend(fmt.Sprintf("%g, of which the next request may take %.3g and %.3g are left", o.MaxCost, cost, o.MaxCost-l.counts.Cost))
		return nil, l.spent
	}
	l.promised, l.open, l.reserved = l.promised+1, l.open+1, l.reserved+cost
	return nil, nil
}

func (l *ledger) spend(what string) error {
	s, then := l.counts, ""
	if l.options.Cache != "" {
		then = "; nothing is lost, the same again goes on from here"
	}
	return fmt.Errorf("judge: %w: %s (%d requests, cost %.4g)%s", ErrBudget, what, s.Requests, s.Cost, then)
}

// release gives back the room of a request that is not sent.
func (l *ledger) release(guess tokens) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promised--
	l.leave(guess)
}

// leave takes a request off the open ones, and tells those who wait for it.
func (l *ledger) leave(guess tokens) {
	if l.open--; l.open == 0 {
		l.reserved = 0 // of rounding too
	} else {
		l.reserved -= l.options.cost(guess.prompt, guess.completion)
	}
	close(l.settled)
	l.settled = make(chan struct{})
}

// sent counts a request that has room.
func (l *ledger) sent(retry bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promised--
	l.counts.Requests++
	if retry {
		l.counts.Retried++
	}
}

// settle counts what a sent request took: tokens that are paid for, and what the server says of them.
func (l *ledger) settle(guess, used tokens, said rollout.Usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.PromptTokens += said.PromptTokens
	l.counts.CompletionTokens += said.CompletionTokens
	l.counts.Cost += l.options.cost(used.prompt, used.completion)
	l.leave(guess)
}

func (l *ledger) shared() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Shared++
}

// handed counts a reply that is handed out, or that there is none.
func (l *ledger) handed(reply string, err error) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.counts.Failed++
		return "", err
	}
	l.counts.Replies++
	return reply, nil
}

// cached is handed, of a reply out of the cache.
func (l *ledger) cached(reply string, err error) (string, error) {
	if err == nil {
		l.mu.Lock()
		l.counts.Cached++
		l.mu.Unlock()
	}
	return l.handed(reply, err)
}
