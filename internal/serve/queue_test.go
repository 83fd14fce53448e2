package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"

	"github.com/posttrain/posttrain/internal/serve"
	"github.com/posttrain/posttrain/rollout"
)

// asked is the outcome of a request.
type asked struct {
	reply openai.ChatCompletionResponse
	err   error
}

// ask starts a request for some tokens.
func (r *running) ask(ctx context.Context, tokens int) <-chan asked {
	out := make(chan asked, 1)
	go func() {
		c, err := r.client.CreateChatCompletion(ctx, says("Hello",
			func(q *openai.ChatCompletionRequest) { q.MaxTokens = tokens }))
		out <- asked{c, err}
	}()
	return out
}

// tokens waits for a request and checks its number of tokens.
func tokens(t *testing.T, out <-chan asked, want int) {
	t.Helper()
	if got := <-out; got.err != nil || got.reply.Usage.CompletionTokens != want {
		t.Errorf("%+v, %v: want %d tokens", got.reply.Usage, got.err, want)
	}
}

// waitForQueue waits until n requests wait.
func (r *running) waitForQueue(t *testing.T, n int) {
	t.Helper()
	until(t, fmt.Sprintf("%d requests wait", n), func() bool { return r.health(t).Waiting == n })
}

// TestWhoWaitsJoins: requests that arrive while the sampler works join it at its next step, in the rows that are free.
func TestWhoWaitsJoins(t *testing.T) {
	p := newPaced()
	r := start(t, p, func(o *serve.Options) { o.Rows = 3 })
	first := r.ask(t.Context(), 2)
	if rs := p.join(t); len(rs) != 1 {
		t.Fatalf("%d requests, want the first", len(rs))
	}
	var others []<-chan asked
	for i := range 5 {
		others = append(others, r.ask(t.Context(), 2+i))
		r.waitForQueue(t, i+1)
	}
	if h := r.health(t); h.Running != 1 {
		t.Errorf("%+v", h)
	}
	for _, want := range []int{2, 1} { // the rows that were free, and the row of the first, which is done
		p.step(t)
		if rs := p.join(t); len(rs) != want || rs[0].MaxNew != 6-2*want {
			t.Errorf("%d requests join: want %d", len(rs), want)
		}
	}
	tokens(t, first, 2)
	close(p.steps)
	for i, other := range others {
		tokens(t, other, 2+i)
	}
}

// TestShortAnswersDoNotWait: a short answer does not wait for a long one that began before it.
func TestShortAnswersDoNotWait(t *testing.T) {
	p := newPaced()
	r := start(t, p, nil)
	long := r.ask(t.Context(), 50)
	p.join(t)
	short := r.ask(t.Context(), 2)
	r.waitForQueue(t, 1)
	for range 3 {
		p.step(t)
	}
	tokens(t, short, 2)
	select {
	case got := <-long:
		t.Errorf("%+v: want it under way", got)
	default:
	}
	close(p.steps)
	tokens(t, long, 50)
}

// TestChoicesLeaveRoom: the choices of one request never take all rows, and come one after the other then.
func TestChoicesLeaveRoom(t *testing.T) {
	p := newPaced()
	r := start(t, p, func(o *serve.Options) { o.Rows = 4 })
	many := make(chan asked, 1)
	go func() {
		c, err := r.client.CreateChatCompletion(t.Context(),
			says("Hello", func(q *openai.ChatCompletionRequest) { q.MaxTokens, q.N = 3, 7 }))
		many <- asked{c, err}
	}()
	if rs := p.join(t); len(rs) != 3 {
		t.Errorf("%d choices, want 3 of 4 rows", len(rs))
	}
	one := r.ask(t.Context(), 1)
	r.waitForQueue(t, 1)
	p.step(t)
	if rs := p.join(t); len(rs) != 1 || rs[0].MaxNew != 1 {
		t.Errorf("%d requests, want the other one", len(rs))
	}
	p.step(t)
	tokens(t, one, 1)
	close(p.steps)
	tokens(t, many, 21)
}

// TestFullLine: a request that finds the queue full gets a time to return at, and is served then.
func TestFullLine(t *testing.T) {
	p := newPaced()
	r := start(t, p, func(o *serve.Options) { o.MaxQueue = 2 })
	all := []<-chan asked{r.ask(t.Context(), 1)}
	p.join(t)
	for i := range 2 {
		all = append(all, r.ask(t.Context(), 1))
		r.waitForQueue(t, i+1)
	}
	got := r.send(t, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"Hello"}]}`, nil)
	_, kind, _, code := got.error(t)
	if after, err := strconv.Atoi(got.header.Get("Retry-After")); got.status != http.StatusTooManyRequests ||
		code != "queue_full" || kind != "rate_limit_error" || err != nil || after < 1 {
		t.Errorf("%+v", got)
	}
	_, err := r.client.CreateChatCompletion(t.Context(), says("Hello", nil))
	checkError(t, err, http.StatusTooManyRequests, "queue_full", "2 requests are waiting")
	close(p.steps)
	for _, a := range all {
		tokens(t, a, 1)
	}
	tokens(t, r.ask(t.Context(), 1), 1)
}

// TestClientsLeave: clients that disconnect leave the queue, and their rows go to others.
func TestClientsLeave(t *testing.T) {
	p := newPaced()
	r := start(t, p, func(o *serve.Options) { o.Rows = 2 })
	ctx, leave := context.WithCancel(t.Context())
	gone := r.ask(ctx, 100)
	p.join(t)
	stays := r.ask(t.Context(), 4)
	r.waitForQueue(t, 1)
	p.step(t)
	p.join(t)
	waits := r.ask(ctx, 100)
	r.waitForQueue(t, 1)
	leave()
	if a, b := <-gone, <-waits; !errors.Is(a.err, context.Canceled) || !errors.Is(b.err, context.Canceled) {
		t.Errorf("%v, %v", a.err, b.err)
	}
	r.waitForQueue(t, 0)
	r.waitForGone(t, 2)
	next := r.ask(t.Context(), 2)
	r.waitForQueue(t, 1)
	p.step(t)
	if rs := p.join(t); len(rs) != 1 || rs[0].MaxNew != 2 {
		t.Errorf("%d requests, want the next", len(rs))
	}
	for range 3 {
		p.step(t)
	}
	tokens(t, next, 2)
	tokens(t, stays, 4)
	if err := p.end(t); err != nil {
		t.Error(err)
	}
}

// waitForGone waits until n clients have gone.
func (r *running) waitForGone(t *testing.T, n int) {
	t.Helper()
	until(t, "clients have gone", func() bool { return strings.Count(r.log.text(), "499") == n })
}

// TestStreamedClientLeaves: closing a stream reaches the sampler.
func TestStreamedClientLeaves(t *testing.T) {
	p := newPaced()
	r := start(t, p, nil)
	stream, err := make(chan *openai.ChatCompletionStream, 1), make(chan error, 1)
	go func() {
		s, e := r.client.CreateChatCompletionStream(t.Context(),
			says("Hello", func(q *openai.ChatCompletionRequest) { q.MaxTokens = 100 }))
		stream <- s
		err <- e
	}()
	p.join(t)
	p.step(t)
	s := <-stream
	if e := <-err; e != nil {
		t.Fatal(e)
	}
	for range 2 { // the beginning, and the first piece
		if c, err := s.Recv(); err != nil || len(c.Choices) != 1 {
			t.Fatalf("%+v, %v", c, err)
		}
	}
	s.Close()
	r.waitForGone(t, 1)
	p.step(t)
	if err := p.end(t); err != nil {
		t.Error(err)
	}
}

// TestStopFinishes: a stopping server answers accepted requests and refuses new ones.
func TestStopFinishes(t *testing.T) {
	p := newPaced()
	r := start(t, p, nil)
	late, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	io.WriteString(late, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
	running := r.ask(t.Context(), 3)
	p.join(t)
	waits := r.ask(t.Context(), 2)
	r.waitForQueue(t, 1)
	r.stop()
	until(t, "new connections are refused", func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	io.WriteString(late, "\r\n") // a connection from before
	if reply, err := io.ReadAll(late); len(reply) > 0 && !strings.HasPrefix(string(reply), "HTTP/1.1 503") {
		t.Errorf("%q, %v: want 503, or nothing", reply, err)
	}
	select {
	case err := <-r.stopped:
		t.Fatalf("it stopped with requests under way: %v", err)
	default:
	}
	close(p.steps)
	tokens(t, running, 3)
	tokens(t, waits, 2)
	r.wait(t)
}

// TestStopBreaksOff: after the grace period, requests and streams end with an error that says why.
func TestStopBreaksOff(t *testing.T) {
	p := newPaced()
	r := start(t, p, func(o *serve.Options) { o.Grace = 100 * time.Millisecond })
	streams := make(chan error, 1)
	go func() {
		s, err := r.client.CreateChatCompletionStream(t.Context(),
			says("Hello", func(q *openai.ChatCompletionRequest) { q.MaxTokens = 100 }))
		for err == nil {
			_, err = s.Recv()
		}
		streams <- err
	}()
	p.join(t)
	p.step(t)
	waits := r.ask(t.Context(), 2)
	r.waitForQueue(t, 1)
	r.stop()
	if err := <-streams; err == nil || !strings.Contains(err.Error(), "the server is stopping") {
		t.Errorf("the stream ends with %v", err)
	}
	checkError(t, (<-waits).err, http.StatusServiceUnavailable, "stopping", "the server is stopping")
	r.wait(t)
}

// failing is a sampler that always fails.
type failing struct{ calls int }

func (f *failing) SampleContinuously(_ context.Context, rows int, next func(n int) []rollout.Arrival) error {
	next(rows)
	if f.calls++; f.calls%2 == 0 {
		panic("no numbers left")
	}
	return errors.New("the model's weights are broken")
}

// TestSamplerFails: errors and panics end the requests under way, not the server.
func TestSamplerFails(t *testing.T) {
	r := start(t, &failing{}, nil)
	for _, says := range []string{"the model's weights are broken", "no numbers left",
		"the model's weights are broken"} {
		checkError(t, (<-r.ask(t.Context(), 2)).err, http.StatusInternalServerError, "sampling_failed", says)
	}
}
