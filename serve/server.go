package serve

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
)

// Options of a server. What has no default must be there.
type Options struct {
	Name    string // of the model, as clients say it
	Sampler rollout.Sampler
	Config  *model.Config
	Encoder *batch.Encoder
	Decoder rollout.Decoder

	Token      string        // that clients must have; secret: in no message; "": none
	MaxNew     int           // tokens of an answer to a client that says nothing of it; 0: 1024
	MaxRequest int64         // bytes of a request; 0: 4 MiB
	MaxQueue   int           // requests that wait; 0: 64
	Rows       int           // choices sampled together; 0: 128
	Grace      time.Duration // after which a server that stops breaks off what is running; 0: a minute
	Log        func(string)  // a line for each request, without anything of its text; nil: none
}

// Defaults of Options.
const (
	DefaultMaxNew     = 1024
	DefaultMaxRequest = 4 << 20
	DefaultMaxQueue   = 64
	DefaultRows       = 128
	DefaultGrace      = time.Minute
)

func (o *Options) settle() {
	if o.MaxNew == 0 {
		o.MaxNew = DefaultMaxNew
	}
	if o.MaxRequest == 0 {
		o.MaxRequest = DefaultMaxRequest
	}
	if o.MaxQueue == 0 {
		o.MaxQueue = DefaultMaxQueue
	}
	if o.Rows == 0 {
		o.Rows = DefaultRows
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
}

// Server answers requests with a model.
type Server struct {
	options   Options
	line      *line
	began     time.Time
	stopping  atomic.Bool
	elsewhere *http.CrossOriginProtection
}

// New makes a server, which begins to work with [Server.Run].
func New(o Options) *Server {
	o.settle()
	return &Server{options: o, line: newLine(o.MaxQueue), began: time.Now(), elsewhere: http.NewCrossOriginProtection()}
}

// statusGone is written into the log, as web servers do, where the client has gone away.
const statusGone = 499

// Handler serves the protocol. Something must call the sampler meanwhile: [Server.Run] does.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range []struct {
		method, path string
		handler      http.Handler
	}{
		{"GET", "/healthz", http.HandlerFunc(s.health)},
		{"POST", "/v1/chat/completions", s.guard(s.chat)},
		{"GET", "/v1/models", s.guard(s.models)},
		{"GET", "/v1/models/{name...}", s.guard(s.model)},
	} {
		mux.Handle(r.method+" "+r.path, r.handler)
		mux.Handle(r.path, wrongMethod(r.method))
	}
	mux.HandleFunc("/", wrongPath)
	return mux
}

func wrongMethod(want string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", want)
		other(http.StatusMethodNotAllowed, invalidRequest, "method_not_allowed", "%s %s: want %s", r.Method, r.URL.Path, want).write(w)
	}
}

func wrongPath(w http.ResponseWriter, r *http.Request) {
	other(http.StatusNotFound, invalidRequest, "unknown_url", "%s %s is not served: there is POST /v1/chat/completions, GET /v1/models, GET /healthz", r.Method, r.URL.Path).write(w)
}

// health says whether requests are taken, and how busy the server is.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	status, word := http.StatusOK, "ok"
	if s.stopping.Load() {
		status, word = http.StatusServiceUnavailable, "stopping"
	}
	running, waiting := s.line.counts()
	writeJSON(w, status, struct {
		Status  string `json:"status"`
		Model   string `json:"model"`
		Running int    `json:"running"`
		Waiting int    `json:"waiting"`
	}{word, s.options.Name, running, waiting})
}

type modelEntry struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Owner   string `json:"owned_by"`
}

func (s *Server) entry() modelEntry {
	return modelEntry{s.options.Name, "model", s.began.Unix(), "posttrain"}
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Object string       `json:"object"`
		Data   []modelEntry `json:"data"`
	}{"list", []modelEntry{s.entry()}})
}

func (s *Server) model(w http.ResponseWriter, r *http.Request) {
	if p := s.named(r.PathValue("name")); p != nil {
		p.write(w)
		return
	}
	writeJSON(w, http.StatusOK, s.entry())
}

// named refuses the names of other models.
func (s *Server) named(name string) *problem {
	if name == "" || name == s.options.Name {
		return nil
	}
	p := refuse("model", "there is no %s here: want %s", short([]byte(name)), s.options.Name).coded("model_not_found")
	p.status = http.StatusNotFound
	return p
}

// chat answers a conversation.
func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	j, p := s.accept(w, r)
	if p != nil {
		p.write(w)
		s.options.Log(p.log())
		return
	}
	defer s.line.leave(j)
	reply := s.answer
	if j.ask.stream {
		reply = s.stream
	}
	status := reply(w, j)
	s.options.Log(fmt.Sprintf("%d in %.1f s: %s", status, time.Since(began).Seconds(), j.summary(status)))
}

// summary is what the log says of a job.
func (j *job) summary(status int) string {
	text := fmt.Sprintf("%d prompt tokens, n %d", len(j.requests[0].Prompt), j.ask.n)
	if status == http.StatusOK {
		text += fmt.Sprintf(", %d tokens drawn", j.drawn())
	}
	return text
}

// accept reads a request and puts it into the line.
func (s *Server) accept(w http.ResponseWriter, r *http.Request) (*job, *problem) {
	body, p := s.body(w, r)
	if p != nil {
		return nil, p
	}
	a, p := readAsk(body)
	if p != nil {
		return nil, p
	}
	if p := s.named(a.model); p != nil {
		return nil, p
	}
	prompt, p := s.prompt(a)
	if p != nil {
		return nil, p
	}
	if a.MaxNew == 0 {
		a.MaxNew = s.options.MaxNew
	}
	j := newJob(r.Context(), a, prompt, s.options.Config, s.options.Decoder)
	if retry, ok := s.line.join(j); !ok {
		p := other(http.StatusTooManyRequests, rateLimit, "queue_full", "%d requests are waiting already: try again later", s.options.MaxQueue)
		p.retry = retry
		return nil, p
	}
	return j, nil
}

// prompt makes tokens of the messages.
func (s *Server) prompt(a *ask) ([]int32, *problem) {
	ids, err := s.options.Encoder.Prompt(data.Text{Messages: a.messages})
	if err != nil {
		return nil, refuse("messages", "%v", err)
	}
	if positions := s.options.Config.MaxPositions; len(ids) >= positions {
		return nil, refuse("messages", "the prompt has %d tokens: the model has %d positions for prompt and answer together", len(ids), positions).coded("context_length_exceeded")
	}
	if len(ids) == 0 {
		return nil, refuse("messages", "the prompt has no tokens: want at least one")
	}
	return ids, nil
}

// fail writes what went wrong with a job.
func (s *Server) fail(w http.ResponseWriter, j *job, err error) (status int) {
	p := s.problem(j, err)
	if p.status != statusGone {
		p.write(w)
	}
	return p.status
}

// problem words an error of a job.
func (s *Server) problem(j *job, err error) *problem {
	switch {
	case j.ctx.Err() != nil:
		return other(statusGone, serverError, "gone", "the client is gone")
	case errors.Is(err, errStopped):
		return s.stopped()
	}
	return other(http.StatusInternalServerError, serverError, "sampling_failed", "%v", err)
}

// errStopped ends what is running when a server has no more time to stop in.
var errStopped = errors.New("the server is stopping")
