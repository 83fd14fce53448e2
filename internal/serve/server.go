package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
)

// Sampler answers requests that join others under way ([rollout.Cached]).
type Sampler interface {
	SampleContinuously(ctx context.Context, rows int, next func(n int) []rollout.Arrival) error
}

// echoer is a sampler that measures prompts ([rollout.Cached]).
type echoer interface {
	Echo(prompts [][]int32) ([]rollout.Echo, error)
}

// Options of a server. Those without a default are required.
type Options struct {
	Name    string // of the model, for clients
	Sampler Sampler
	Config  *model.Config
	Encoder *batch.Encoder
	Decoder rollout.Decoder

	Token      string        // that clients must send; secret, in no message; "": none needed
	MaxNew     int           // tokens of an answer if the client does not say; 0: 1024
	MaxRequest int64         // bytes of a request; 0: 4 MiB, which only tests change
	MaxTokens  int           // that a request may ask for, of all its choices; 0: 131,072
	MaxQueue   int           // waiting requests; 0: 64
	Rows       int           // choices sampled together; 0: 128
	Grace      time.Duration // for requests under way when the server stops; 0: a minute
	Log        func(string)  // called with a line per request, without its text; may be nil

	// Reload replaces the sampler's weights by the weights of a folder; nil: clients cannot change the weights.
	Reload func(folder string) error
	// LoadAdapter opens a sampler of the model with the adapter of a folder; nil: clients cannot add adapters.
	LoadAdapter func(folder string) (*Adapter, error)

	// Hosts are names of this server. Without a token, clients must use one of them, an address, localhost or this
	// machine's name.
	Hosts    []string
	Timeouts Timeouts
}

// Timeouts limit how long a connection may stall. Zero values have defaults.
type Timeouts struct {
	Header time.Duration // for a request's header to arrive; 0: 10 s
	Body   time.Duration // for its body; 0: a minute
	Unread time.Duration // for the rest of a body that the server does not read; 0: 2 s
	Write  time.Duration // for the client to read a piece of a reply or of a stream; 0: 30 s
	Idle   time.Duration // for the next request; 0: 2 minutes
}

// Defaults of Options.
const (
	DefaultMaxNew    = 1024
	DefaultMaxTokens = mostChoices * DefaultMaxNew
	DefaultMaxQueue  = 64
	DefaultRows      = 128
	DefaultGrace     = time.Minute
)

func (o *Options) setDefaults() {
	o.MaxNew = cmp.Or(o.MaxNew, DefaultMaxNew)
	o.MaxRequest = cmp.Or(o.MaxRequest, 4<<20)
	o.MaxTokens = cmp.Or(o.MaxTokens, DefaultMaxTokens)
	o.MaxQueue = cmp.Or(o.MaxQueue, DefaultMaxQueue)
	o.Rows = cmp.Or(o.Rows, DefaultRows)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	t := &o.Timeouts
	t.Header, t.Body = cmp.Or(t.Header, 10*time.Second), cmp.Or(t.Body, time.Minute)
	t.Unread = cmp.Or(t.Unread, 2*time.Second)
	t.Write, t.Idle = cmp.Or(t.Write, 30*time.Second), cmp.Or(t.Idle, 2*time.Minute)
	if o.Log == nil {
		o.Log = func(string) {}
	}
}

// Server answers requests with a model.
type Server struct {
	options  Options
	queue    *queue
	changes  chan func() // run while the sampler is idle
	adapters atomic.Pointer[map[string]*Adapter]
	began    time.Time
	stopping atomic.Bool
	origins  *http.CrossOriginProtection
	hosts    config.Hosts
	arriving atomic.Int64  // requests ahead of the queue
	reading  chan struct{} // has one for each of them that is being read
}

// New makes a server for [Server.Run].
func New(o Options) *Server {
	o.setDefaults()
	s := &Server{options: o, queue: newQueue(o.MaxQueue, o.Rows), changes: make(chan func()), began: time.Now(),
		origins: http.NewCrossOriginProtection(), hosts: config.OwnHosts(o.Hosts...),
		reading: make(chan struct{}, max(2, runtime.GOMAXPROCS(0)))}
	s.adapters.Store(&map[string]*Adapter{})
	return s
}

// statusGone is logged, as web servers do, if the client has gone.
const statusGone = 499

// Handler serves the protocol while [Server.Run] calls the sampler.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range []struct {
		method, path string
		handler      http.Handler
	}{
		{"GET", "/healthz", http.HandlerFunc(s.health)},
		{"POST", "/v1/chat/completions", s.guard(s.handle(readAsk))},
		{"POST", "/v1/completions", s.guard(s.handle(readPlainAsk))},
		{"POST", "/generate", s.guard(s.handle(readGenerate))},
		{"POST", "/pause_generation", s.guard(s.setPaused(true))},
		{"POST", "/continue_generation", s.guard(s.setPaused(false))},
		{"POST", "/update_weights_from_disk", s.guard(s.update)},
		{"POST", "/v1/load_lora_adapter", s.guard(s.loadAdapter)},
		{"POST", "/v1/unload_lora_adapter", s.guard(s.unloadAdapter)},
		{"GET", "/v1/models", s.guard(s.models)},
		{"GET", "/v1/models/{name...}", s.guard(s.model)},
	} {
		mux.Handle(r.method+" "+r.path, r.handler)
		mux.Handle(r.path, wrongMethod(r.method))
	}
	mux.HandleFunc("/", wrongPath)
	return s.connections(mux)
}

func wrongMethod(want string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", want)
		newProblem(http.StatusMethodNotAllowed, "method_not_allowed",
			"%s %s: want %s", r.Method, r.URL.Path, want).write(w)
	}
}

func wrongPath(w http.ResponseWriter, r *http.Request) {
	newProblem(http.StatusNotFound, "unknown_url", "%s %s is not served: want POST /v1/chat/completions, "+
		"/v1/completions or /generate, GET /v1/models or /healthz", r.Method, r.URL.Path).write(w)
}

// health says whether the server accepts requests, and how busy it is.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	status, word := http.StatusOK, "ok"
	if s.stopping.Load() {
		status, word = http.StatusServiceUnavailable, "stopping"
	}
	running, waiting, _ := s.queue.counts()
	writeJSON(w, status, map[string]any{"status": word, "model": s.options.Name, "running": running, "waiting": waiting})
}

func (s *Server) entry(name string) any {
	return map[string]any{"id": name, "object": "model", "created": s.began.Unix(), "owned_by": "posttrain"}
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	all := []any{s.entry(s.options.Name)}
	for _, name := range s.adapterNames() {
		all = append(all, s.entry(name))
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": all})
}

func (s *Server) model(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if p := s.checkName(name); p != nil {
		p.write(w)
		return
	}
	writeJSON(w, http.StatusOK, s.entry(name))
}

// checkName refuses names of models that are not here.
func (s *Server) checkName(name string) *problem {
	if s.samplerOf(name) != nil {
		return nil
	}
	p := refuse("model", "there is no %s here: want %s", short([]byte(name)),
		strings.Join(append([]string{s.options.Name}, s.adapterNames()...), " or ")).withCode("model_not_found")
	p.status = http.StatusNotFound
	return p
}

// handle answers requests that read reads.
func (s *Server) handle(read func(body []byte) (*ask, *problem)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		j, p := s.accept(w, r, read)
		if p != nil {
			p.write(w)
			s.options.Log(p.log())
			return
		}
		defer s.queue.leave(j)
		s.reply(w, j, began)
	}
}

// reply sends a job's answers, whole or while they are drawn.
func (s *Server) reply(w http.ResponseWriter, j *job, began time.Time) {
	reply := s.answer
	if j.ask.stream {
		reply = s.stream
	}
	status := reply(w, j)
	line := fmt.Sprintf("%d in %.1f s: %d prompt tokens, n %d", status, time.Since(began).Seconds(),
		j.countPrompts(), j.ask.n)
	if status == http.StatusOK {
		line += fmt.Sprintf(", %d tokens drawn", j.countTokens())
	}
	s.options.Log(line)
	if status == statusGone { // perhaps it only ended its own side: it must not take an empty reply for an answer
		panic(http.ErrAbortHandler)
	}
}

// arrivals is how many requests for each place of the queue may be ahead of it, each with its body.
const arrivals = 4

// accept takes a request and puts it into the queue. What a request becomes takes many times its body's size, so that few
// are read at a time.
func (s *Server) accept(w http.ResponseWriter, r *http.Request,
	read func(body []byte) (*ask, *problem)) (*job, *problem) {
	defer s.arriving.Add(-1)
	if s.arriving.Add(1) > int64(arrivals*s.options.MaxQueue) {
		return nil, newProblem(http.StatusTooManyRequests, "queue_full", "%d requests are arriving: try again later",
			arrivals*s.options.MaxQueue)
	}
	body, p := s.body(w, r)
	if p != nil {
		return nil, p
	}
	s.reading <- struct{}{}
	defer func() { <-s.reading }()
	return s.read(r, body, read)
}

// read reads a request's body and puts it into the queue.
func (s *Server) read(r *http.Request, body []byte, read func(body []byte) (*ask, *problem)) (*job, *problem) {
	a, p := read(body)
	if p != nil {
		return nil, p
	}
	if p := s.checkName(a.model); p != nil {
		return nil, p
	}
	a.model = cmp.Or(a.model, s.options.Name)
	for id := range a.adjust.Bias {
		if n := s.options.Config.VocabSize; id < 0 || int(id) >= n {
			return nil, refuse("logit_bias", "token id %d: the model has ids 0 to %d", id, n-1)
		}
	}
	prompts, p := s.prompts(a)
	if p != nil {
		return nil, p
	}
	if a.MaxNew == 0 {
		a.MaxNew = s.options.MaxNew
	}
	if p := s.checkAnswer(a, prompts); p != nil {
		return nil, p
	}
	j := newJob(r.Context(), a, prompts, s.options.Config, s.options.Decoder)
	if retry, ok := s.queue.join(j); !ok {
		p := newProblem(http.StatusTooManyRequests, "queue_full",
			"%d requests are waiting: try again later", s.options.MaxQueue)
		p.retry = retry
		return nil, p
	}
	return j, nil
}

// prompts returns the tokens of the prompts, of a chat's only one.
func (s *Server) prompts(a *ask) (all [][]int32, p *problem) {
	if a.plain == nil {
		if most := s.options.Config.MaxPositions; len(a.messages) > most {
			return nil, refuse("messages", "found %d of them: the model has %d positions", len(a.messages), most).
				withCode("context_length_exceeded")
		}
		err := s.offer(a)
		if err != nil {
			return nil, refuse("tools", "%v", err)
		}
		e := *s.encoderOf(a.model)
		e.Variables = a.variables
		ids, err := e.Prompt(data.Text{Messages: a.messages})
		return [][]int32{ids}, s.checkPrompt("messages", ids, err)
	}
	for _, prompt := range a.plain.prompts {
		ids, err := s.encode(prompt, a.plain.stops)
		if p := s.checkPrompt("prompt", ids, err); p != nil {
			return nil, p
		}
		all = append(all, ids)
	}
	if len(all) == 0 {
		return nil, refuse("prompt", "the list is empty: want one prompt or more")
	}
	return all, nil
}

func (s *Server) checkPrompt(field string, ids []int32, err error) *problem {
	if err != nil {
		return refuse(field, "%v", err)
	}
	if positions := s.options.Config.MaxPositions; len(ids) >= positions {
		return refuse(field, "the prompt has %d tokens: the model has %d positions for prompt and answer "+
			"together", len(ids), positions).withCode("context_length_exceeded")
	}
	if len(ids) == 0 {
		return refuse(field, "the prompt has no tokens: want at least one")
	}
	return nil
}

// checkAnswer refuses a request that may draw more tokens than the server allows, within the model's positions, or whose
// answer the cache cannot hold to its end, where the sampler knows; and an echo by a sampler that has none.
func (s *Server) checkAnswer(a *ask, prompts [][]int32) *problem {
	short := slices.MinFunc(prompts, func(a, b []int32) int { return len(a) - len(b) })
	answers, each := a.n*len(prompts), min(a.MaxNew, s.options.Config.MaxPositions-len(short))
	if each > s.options.MaxTokens/answers {
		return refuse("max_tokens", "n × max_tokens is %d × %d: this server draws at most %d tokens for a request "+
			"(--max-request-tokens)", answers, each, s.options.MaxTokens).withCode("too_many_tokens")
	}
	sampler := s.samplerOf(a.model)
	if _, ok := sampler.(echoer); !ok && a.plain != nil && a.plain.echo {
		return refuse("echo", "true is not supported here: leave it out")
	}
	room, ok := sampler.(interface{ CheckRoom(rollout.Request) error })
	if !ok {
		return nil
	}
	for _, prompt := range prompts {
		if err := room.CheckRoom(rollout.Request{Sampling: a.Sampling, Prompt: prompt}); err != nil {
			return refuse("max_tokens", "the server has no room for it: %v", err).withCode("too_many_tokens")
		}
	}
	return nil
}

// fail sends a job's error.
func (s *Server) fail(w http.ResponseWriter, j *job, err error) (status int) {
	p := s.problem(j, err)
	if p.status != statusGone {
		p.write(w)
	}
	return p.status
}

// problem describes a job's error.
func (s *Server) problem(j *job, err error) *problem {
	switch {
	case j.ctx.Err() != nil:
		return newProblem(statusGone, "gone", "the client has gone")
	case errors.Is(err, errStopped):
		return stopProblem()
	case errors.Is(err, errUnloaded):
		return newProblem(http.StatusNotFound, "model_not_found", "%s: %v", short([]byte(j.ask.model)), err)
	}
	return newProblem(http.StatusInternalServerError, "sampling_failed", "%v", err)
}

// errStopped ends jobs when the grace period is over.
var errStopped = errors.New("the server is stopping")

// Run serves on a listener until the context ends. Then it refuses new requests, answers those it has accepted, and
// after the grace period cancels the rest, which is not an error.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	inner, cancel := context.WithCancelCause(context.Background())
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		s.work(inner)
		for _, name := range s.adapterNames() {
			s.setAdapter(name, nil)
		}
	}()
	limit := s.options.Timeouts
	server := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: limit.Header, IdleTimeout: limit.Idle, WriteTimeout: limit.Write,
		ErrorLog: log.New(io.Discard, "", 0),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		s.stop(server, cancel)
	}
	cancel(errStopped)
	<-worked
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// farewell limits the replies to cancelled requests.
const farewell = 2 * time.Second

// stop waits for the accepted requests.
func (s *Server) stop(server *http.Server, cancel context.CancelCauseFunc) {
	s.stopping.Store(true)
	grace, done := context.WithTimeout(context.Background(), s.options.Grace)
	defer done()
	if server.Shutdown(grace) == nil {
		return
	}
	cancel(errStopped)
	rest, done := context.WithTimeout(context.Background(), farewell)
	defer done()
	if server.Shutdown(rest) != nil {
		server.Close()
	}
}
