package metered

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/posttrain/posttrain/ask"
)

// Stats are a client's counts since it was opened.
type Stats struct {
	Replies          int     `json:"replies"`           // returned to callers
	Cached           int     `json:"cached"`            // replies that came from the cache
	Failed           int     `json:"failed"`            // questions that ended in an error
	Requests         int     `json:"requests"`          // sent, retries included
	Retried          int     `json:"retried"`           // requests after the first try
	PromptTokens     int     `json:"prompt_tokens"`     // as the server counts them
	CompletionTokens int     `json:"completion_tokens"` // as the server counts them
	Cost             float64 `json:"cost"`              // an upper guess where a reply was lost or had no token counts
}

// Plus adds another client's counts.
func (s Stats) Plus(t Stats) Stats {
	return Stats{
		s.Replies + t.Replies, s.Cached + t.Cached, s.Failed + t.Failed,
		s.Requests + t.Requests, s.Retried + t.Retried,
		s.PromptTokens + t.PromptTokens, s.CompletionTokens + t.CompletionTokens, s.Cost + t.Cost,
	}
}

// ErrBudget is wrapped by the error of a spent budget.
var ErrBudget = errors.New("the budget is spent")

// tokens count a request and its reply.
type tokens struct{ prompt, completion int }

// ledger counts, and says when the budget is spent.
type ledger struct {
	options Options

	mu       sync.Mutex
	counts   Stats
	promised int           // requests that have room but are not sent yet
	reserved float64       // cost of requests that have room but are not settled yet
	open     int           // number of requests in reserved
	settled  chan struct{} // closed and replaced when a request is settled or released
	spent    error         // set once
}

func newLedger(o Options) *ledger { return &ledger{options: o, settled: make(chan struct{})} }

func (l *ledger) stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// reserve makes room for a request, or fails. It waits while that depends on requests under way.
func (l *ledger) reserve(ctx context.Context, guess tokens) error {
	for {
		wait, err := l.tryReserve(guess)
		if wait == nil {
			return err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tryReserve returns a channel to wait for if the room depends on requests under way.
func (l *ledger) tryReserve(guess tokens) (wait chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o, cost := &l.options, l.options.cost(guess)
	switch {
	case l.spent != nil:
		return nil, l.spent
	case o.MaxRequests > 0 && l.counts.Requests+l.promised >= o.MaxRequests:
		if l.promised > 0 {
			return l.settled, nil
		}
		return nil, l.spend("%d requests", o.MaxRequests)
	case o.MaxCost > 0 && l.counts.Cost+l.reserved+cost > o.MaxCost:
		if l.open > 0 {
			return l.settled, nil
		}
		return nil, l.spend("%.3g of %g left, the next request may cost %.3g", o.MaxCost-l.counts.Cost, o.MaxCost, cost)
	}
	l.promised, l.open, l.reserved = l.promised+1, l.open+1, l.reserved+cost
	return nil, nil
}

// spend ends the budget with an error that names its limit.
func (l *ledger) spend(format string, args ...any) error {
	then := ""
	if l.options.Cache != "" {
		then = "; all replies are kept: run the same again to continue"
	}
	l.spent = l.options.blame(fmt.Errorf("%w: %s (%d requests, cost %.4g)%s",
		ErrBudget, fmt.Sprintf(format, args...), l.counts.Requests, l.counts.Cost, then))
	return l.spent
}

// release gives back the room of a request that is not sent.
func (l *ledger) release(guess tokens) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promised--
	l.leave(guess)
}

// leave removes a request from the open ones and wakes those that wait for it.
func (l *ledger) leave(guess tokens) {
	if l.open--; l.open == 0 {
		l.reserved = 0 // removes rounding errors too
	} else {
		l.reserved -= l.options.cost(guess)
	}
	close(l.settled)
	l.settled = make(chan struct{})
}

// send counts a request that has room.
func (l *ledger) send(retry bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promised--
	l.counts.Requests++
	if retry {
		l.counts.Retried++
	}
}

// settle counts what a sent request used: the tokens paid for, and the server's own counts.
func (l *ledger) settle(guess, used tokens, usage ask.Usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.PromptTokens += usage.PromptTokens
	l.counts.CompletionTokens += usage.CompletionTokens
	l.counts.Cost += l.options.cost(used)
	l.leave(guess)
}

// count counts a question's end and passes it on.
func (l *ledger) count(cached bool, reply Reply, err error) (Reply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.counts.Failed++
		return Reply{}, err
	case cached:
		l.counts.Cached++
	}
	l.counts.Replies++
	return reply, nil
}
