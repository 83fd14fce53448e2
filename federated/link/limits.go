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

// mostWaiting letters of an agent wait for the server. More are dropped: what an agent sends costs itself, and nobody
// else. An honest one sends no four without an answer, and asks again.
const mostWaiting = 8

// sieve passes letters on to the server's loop.
type sieve struct {
	mu      sync.Mutex
	waiting map[string]int // of each agent
	dropped map[string]int // since the last report
	out     chan *nats.Msg
}

func newSieve() *sieve {
	return &sieve{waiting: map[string]int{}, dropped: map[string]int{}, out: make(chan *nats.Msg, 2048)}
}

// pass passes a letter on, but for requests for chunks, which the offers answer.
func (s *sieve) pass(ctx context.Context, m *nats.Msg) {
	if what := strings.Split(m.Subject, ".")[2]; what == "get" || !s.take(nameOf(m)) {
		return
	}
	select {
	case <-ctx.Done():
	case s.out <- m:
	}
}

func (s *sieve) take(agent string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[agent] == mostWaiting {
		s.dropped[agent]++
		return false
	}
	s.waiting[agent]++
	return true
}

// read says that a letter waits no longer.
func (s *sieve) read(agent string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[agent]--; s.waiting[agent] == 0 {
		delete(s.waiting, agent)
	}
}

// report returns how many letters of each agent were dropped since the last report.
func (s *sieve) report() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped := s.dropped
	s.dropped = map[string]int{}
	return dropped
}

// nameOf is the agent of a letter's subject.
func nameOf(m *nats.Msg) string { return m.Subject[strings.LastIndexByte(m.Subject, '.')+1:] }

// mostAtOnce is how often a limiter lets something pass at once. It lets one more pass each second.
const mostAtOnce = 20

// limiter bounds what an agent has the server write: lines for people, and events that bring nothing. It is safe for
// concurrent use.
type limiter struct {
	mu     sync.Mutex
	bucket *rate.Limiter
	held   int // since the last that passed
}

// pass reports whether one more may pass, and how many were held back before it.
func (l *limiter) pass() (ok bool, held int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bucket == nil {
		l.bucket = rate.NewLimiter(1, mostAtOnce)
	}
	if !l.bucket.Allow() {
		l.held++
		return false, 0
	}
	held, l.held = l.held, 0
	return true, held
}

// mostText is the length of a line with text from an agent.
const mostText = 500

// warn passes a line on. What is in it may come from an agent: it is one line, short and without control characters.
func (l *limiter) warn(to func(format string, args ...any), format string, args ...any) {
	ok, held := l.pass()
	if !ok {
		return
	}
	text := fmt.Sprintf(format, args...)
	if text = fault.Line(text[:min(len(text), mostText)]); held > 0 {
		text += fmt.Sprintf(" (%d lines like it were left out)", held)
	}
	to("%s", text)
}
