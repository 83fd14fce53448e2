package metered

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
)

// limits spread requests and tokens over each minute: one request, or one second's worth of tokens, at a time.
type limits struct {
	requests *rate.Limiter // nil: no limit
	tokens   *rate.Limiter // nil: no limit
	turn     chan struct{} // held by the caller that waits for tokens, so that a large request is not starved

	mu     sync.Mutex
	credit int // tokens waited for but not used; negative: used but not waited for
}

func newLimits(o Options) *limits {
	l := &limits{turn: make(chan struct{}, 1)}
	if n := o.RequestsPerMinute; n > 0 {
		l.requests = rate.NewLimiter(rate.Limit(n)/60, 1)
	}
	if n := o.TokensPerMinute; n > 0 {
		l.tokens = rate.NewLimiter(rate.Limit(n)/60, max(n/60, 1))
	}
	return l
}

// wait returns when a request of n tokens may be sent.
func (l *limits) wait(ctx context.Context, n int) error {
	if l.tokens != nil {
		if err := l.waitTokens(ctx, n); err != nil {
			return err
		}
	}
	if l.requests != nil && l.requests.Wait(ctx) != nil {
		l.settle(n, 0)
		return context.Cause(ctx)
	}
	return nil
}

func (l *limits) waitTokens(ctx context.Context, n int) error {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for due := l.useCredit(n); due > 0; {
		part := min(due, l.tokens.Burst())
		if l.tokens.WaitN(ctx, part) != nil {
			l.settle(n-due, 0)
			return context.Cause(ctx)
		}
		due -= part
	}
	return nil
}

// useCredit takes n tokens from the credit and returns how many it lacks.
func (l *limits) useCredit(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.credit -= n
	due := max(-l.credit, 0)
	l.credit = max(l.credit, 0)
	return due
}

// settle corrects the tokens waited for to the tokens used.
func (l *limits) settle(waited, used int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.credit += waited - used
}
