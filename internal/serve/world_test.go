package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/sashabaranov/go-openai"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/serve"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/tokenizer"
)

func TestMain(m *testing.M) { os.Exit(expect.NoLeaks(m)) }

// patience is how long a test waits for what must come, also with the race detector on a busy machine.
const patience = 2 * time.Minute

// world is the embedded model on the go engine, for all tests of the package.
type world struct {
	config  *model.Config
	tokens  *tokenizer.Tokenizer
	sampler *only
}

var theWorld = sync.OnceValues(func() (*world, error) {
	fsys, err := fs.Sub(embedded.Files, embedded.Model)
	if err != nil {
		return nil, err
	}
	m, err := model.LoadFS(fsys, "embedded model")
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.LoadFS(fsys, "embedded model")
	if err != nil {
		return nil, err
	}
	e, err := backend.Open("go")
	if err != nil {
		return nil, err
	}
	weights, err := rollout.Upload(e, m, model.GraphOptions{})
	if err != nil {
		return nil, err
	}
	live := func() []compute.Buffer { return weights }
	s := rollout.NewCached(e, m.Config, live, rollout.Options{Decoder: tok})
	return &world{m.Config, tok, &only{Cached: s}}, nil
})

// only passes one call at a time to the sampler that the tests share.
type only struct {
	mu sync.Mutex
	*rollout.Cached
}

func (o *only) Sample(ctx context.Context, rs []rollout.Request) ([]rollout.Completion, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Cached.Sample(ctx, rs)
}

func (o *only) SampleContinuously(ctx context.Context, rows int, next func(n int) []rollout.Arrival) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Cached.SampleContinuously(ctx, rows, next)
}

// running is a server under test.
type running struct {
	url     string
	world   *world
	client  *openai.Client
	stop    context.CancelFunc // as Ctrl-C does
	stopped chan error
	log     *lines
}

// lines are what a server logs.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

// start runs a server of the embedded model with a sampler, the real one if it is nil; it stops with the test.
func start(t *testing.T, sampler serve.Sampler, change func(o *serve.Options)) *running {
	t.Helper()
	w, err := theWorld()
	if err != nil {
		t.Fatal(err)
	}
	if sampler == nil {
		sampler = w.sampler
	}
	r := &running{world: w, stopped: make(chan error, 1), log: &lines{}}
	o := serve.Options{
		Name: "tiny", Sampler: sampler, Config: w.config, Encoder: &batch.Encoder{Tokenizer: w.tokens},
		Decoder: w.tokens, MaxNew: 12, Log: r.log.add,
	}
	if change != nil {
		change(&o)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { r.stopped <- serve.New(o).Run(ctx, l) }()
	r.url, r.stop = "http://"+l.Addr().String(), cancel
	t.Cleanup(func() {
		cancel()
		r.wait(t)
	})
	r.client = r.with(o.Token)
	return r
}

// with returns a client with a token.
func (r *running) with(token string) *openai.Client {
	c := openai.DefaultConfig(token)
	c.BaseURL, c.HTTPClient = r.url+"/v1", &http.Client{Timeout: patience}
	return openai.NewClientWithConfig(c)
}

// wait waits until the server has stopped.
func (r *running) wait(t *testing.T) {
	t.Helper()
	select {
	case err := <-r.stopped:
		if r.stopped <- nil; err != nil {
			t.Errorf("the server stopped with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the server does not stop")
	}
}

// prompt is a text's tokens.
func (r *running) prompt(t *testing.T, text data.Text) []int32 {
	t.Helper()
	ids, err := (&batch.Encoder{Tokenizer: r.world.tokens}).Prompt(text)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// says is a request with one message.
func says(text string, change func(q *openai.ChatCompletionRequest)) openai.ChatCompletionRequest {
	q := openai.ChatCompletionRequest{Model: "tiny", Messages: []openai.ChatCompletionMessage{{Role: "user",
		Content: text}}}
	if change != nil {
		change(&q)
	}
	return q
}

// chat asks, and fails the test where that fails.
func (r *running) chat(t *testing.T, q openai.ChatCompletionRequest) openai.ChatCompletionResponse {
	t.Helper()
	c, err := r.client.CreateChatCompletion(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// streamed is the content of a stream.
type streamed struct {
	texts    map[int]string
	reasons  map[int]string
	logprobs map[int][]float64
	chunks   int
	usage    *openai.Usage
}

func (r *running) stream(t *testing.T, q openai.ChatCompletionRequest) streamed {
	t.Helper()
	stream, err := r.client.CreateChatCompletionStream(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	out := streamed{map[int]string{}, map[int]string{}, map[int][]float64{}, 0, nil}
	for {
		c, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out.chunks++
		if c.Usage != nil {
			out.usage = c.Usage
		}
		for _, choice := range c.Choices {
			out.texts[choice.Index] += choice.Delta.Content
			if choice.FinishReason != "" {
				out.reasons[choice.Index] = string(choice.FinishReason)
			}
			if choice.Logprobs != nil {
				for _, l := range choice.Logprobs.Content {
					out.logprobs[choice.Index] = append(out.logprobs[choice.Index], l.Logprob)
				}
			}
		}
	}
}

// reply is the reply to a plain request.
type reply struct {
	status int
	header http.Header
	body   string
}

// error returns the parts of a reply's error.
func (r reply) error(t *testing.T) (message, kind, param, code string) {
	t.Helper()
	var e struct {
		Error struct{ Message, Type, Param, Code *string }
	}
	if err := json.Unmarshal([]byte(r.body), &e); err != nil || e.Error.Message == nil || e.Error.Type == nil {
		t.Fatalf("%q is no error of the protocol: %v", r.body, err)
	}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	return text(e.Error.Message), text(e.Error.Type), text(e.Error.Param), text(e.Error.Code)
}

// send sends a request without a client library.
func (r *running) send(t *testing.T, method, path, body string, change func(q *http.Request)) reply {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(q)
	}
	got, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(got.Body); err != nil {
		t.Fatal(err)
	}
	return reply{got.StatusCode, got.Header, b.String()}
}

// until waits for something to become true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// health returns what /healthz says.
func (r *running) health(t *testing.T) (h struct {
	Status, Model    string
	Running, Waiting int
}) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.send(t, "GET", "/healthz", "", nil).body), &h); err != nil {
		t.Fatal(err)
	}
	return h
}

// paced is a sampler that draws a token of every row each time step is called. Only MaxNew ends a row.
type paced struct {
	steps chan struct{} // closed: as fast as it can
	joins chan []rollout.Request
	ended chan error
}

func newPaced() *paced {
	return &paced{make(chan struct{}), make(chan []rollout.Request, 100), make(chan error, 100)}
}

func (p *paced) SampleContinuously(ctx context.Context, rows int, next func(n int) []rollout.Arrival) (err error) {
	defer func() { p.ended <- err }()
	w, err := theWorld()
	if err != nil {
		return err
	}
	tokens, err := w.tokens.Encode("a", false)
	if err != nil {
		return err
	}
	for open := (pacedRows{}); ; {
		if joined := open.join(next(rows-len(open)), w.config.MaxPositions); len(joined) > 0 {
			p.joins <- joined
		}
		if len(open) == 0 {
			return nil
		}
		select {
		case <-p.steps:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		open.step(tokens[0])
	}
}

// pacedRows are the open requests of a paced sampler, with the tokens that are left to draw.
type pacedRows map[*rollout.Arrival]int

// join opens rows, which end where a sampler's do: at MaxNew or at the model's positions.
func (r pacedRows) join(all []rollout.Arrival, positions int) (requests []rollout.Request) {
	for _, a := range all {
		r[&a] = min(a.MaxNew, positions-len(a.Prompt))
		requests = append(requests, a.Request)
	}
	return requests
}

func (r pacedRows) step(token int32) {
	for a := range r {
		select {
		case <-a.Left:
			delete(r, a)
			continue
		default:
		}
		if a.OnTop != nil {
			a.OnTop([]rollout.Likely{{Token: token, Logp: -1}})
		}
		a.OnToken(token, -1)
		if r[a]--; r[a] == 0 {
			delete(r, a)
		}
	}
}

// step lets the sampler draw a token of every row.
func (p *paced) step(t *testing.T) {
	t.Helper()
	select {
	case p.steps <- struct{}{}:
	case <-time.After(patience):
		t.Fatal("the sampler is not at work")
	}
}

// join returns the next requests that the sampler takes in.
func (p *paced) join(t *testing.T) []rollout.Request {
	t.Helper()
	return soon(t, "requests that join", p.joins)
}

// end waits until a call ends.
func (p *paced) end(t *testing.T) error { return soon(t, "the end of a call of the sampler", p.ended) }

func soon[T any](t *testing.T, what string, c <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-c:
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
	}
	return value
}
