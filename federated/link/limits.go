package link

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"golang.org/x/time/rate"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// maxQueued envelopes of an agent wait for the server. More are dropped: what an agent sends costs itself, and nobody
// else. An honest one sends no four without an answer, and asks again.
const maxQueued = 8

// inbox queues envelopes for the server's loop.
type inbox struct {
	mu      sync.Mutex
	queued  map[string]int // of each agent
	dropped map[string]int // since the last report
	queue   chan *nats.Msg
}

func newInbox() *inbox {
	return &inbox{queued: map[string]int{}, dropped: map[string]int{}, queue: make(chan *nats.Msg, 2048)}
}

// put queues an envelope, but for requests for chunks, which the outboxes answer.
func (b *inbox) put(ctx context.Context, m *nats.Msg) {
	if what := strings.Split(m.Subject, ".")[2]; what == "get" || !b.admit(nameOf(m)) {
		return
	}
	select {
	case <-ctx.Done():
	case b.queue <- m:
	}
}

func (b *inbox) admit(agent string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queued[agent] == maxQueued {
		b.dropped[agent]++
		return false
	}
	b.queued[agent]++
	return true
}

// remove notes that the server has taken an envelope.
func (b *inbox) remove(agent string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queued[agent]--; b.queued[agent] == 0 {
		delete(b.queued, agent)
	}
}

// takeDropped returns how many envelopes of each agent were dropped since the last call.
func (b *inbox) takeDropped() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	dropped := b.dropped
	b.dropped = map[string]int{}
	return dropped
}

// nameOf is the agent of an envelope's subject.
func nameOf(m *nats.Msg) string { return m.Subject[strings.LastIndexByte(m.Subject, '.')+1:] }

// burst is how often a limiter lets something pass at once. It lets one more pass each second.
const burst = 20

// limiter bounds what an agent has the server write: lines for people, and events that bring nothing. It is safe for
// concurrent use.
type limiter struct {
	mu      sync.Mutex
	bucket  *rate.Limiter
	dropped int // since the last that passed
}

// allow reports whether one more may pass, and how many were dropped before it.
func (l *limiter) allow() (ok bool, dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bucket == nil {
		l.bucket = rate.NewLimiter(1, burst)
	}
	if !l.bucket.Allow() {
		l.dropped++
		return false, 0
	}
	dropped, l.dropped = l.dropped, 0
	return true, dropped
}

// maxText is the length of a line with text from an agent.
const maxText = 500

// warn passes a line on. What is in it may come from an agent: it is one line, short and without control characters.
func (l *limiter) warn(to func(format string, args ...any), format string, args ...any) {
	ok, dropped := l.allow()
	if !ok {
		return
	}
	text := fmt.Sprintf(format, args...)
	if text = fault.Line(text[:min(len(text), maxText)]); dropped > 0 {
		text += fmt.Sprintf(" (%d lines like it were left out)", dropped)
	}
	to("%s", text)
}
