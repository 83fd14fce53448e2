package judge

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
)

// limits spread requests and tokens over the minutes: requests one at a time, tokens a second's worth at a time.
type limits struct {
	requests *rate.Limiter // nil: none
	tokens   *rate.Limiter // nil: none
	turn     chan struct{} // who waits for tokens; the others queue, so that none waits for all

	mu     sync.Mutex
	credit int // tokens that were waited for and not used; negative: used and not waited for
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

// wait until a request of so many tokens may be sent.
func (l *limits) wait(ctx context.Context, tokens int) error {
	if l.tokens != nil {
		if err := l.waitTokens(ctx, tokens); err != nil {
			return err
		}
	}
	if l.requests != nil && l.requests.Wait(ctx) != nil {
		l.settle(tokens, 0)
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
	for due := l.draw(n); due > 0; {
		part := min(due, l.tokens.Burst())
		if l.tokens.WaitN(ctx, part) != nil {
			l.settle(n-due, 0)
			return context.Cause(ctx)
		}
		due -= part
	}
	return nil
}

// draw takes n tokens from the credit and returns how many are still due.
func (l *limits) draw(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.credit -= n
	if l.credit >= 0 {
		return 0
	}
	due := -l.credit
	l.credit = 0
	return due
}

// settle corrects what was waited for by what was used.
func (l *limits) settle(waited, used int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.credit += waited - used
}
