package serve

import (
	"io"
	"net/http"
	"time"
)

// patience limits the time a client takes to read a piece of a stream.
const patience = 30 * time.Second

type (
	chunk struct {
		ID      string        `json:"id"`
		Object  string        `json:"object"`
		Created int64         `json:"created"`
		Model   string        `json:"model"`
		Choices []chunkChoice `json:"choices"`
		Usage   *usage        `json:"usage"`
	}
	chunkChoice struct {
		Index    int       `json:"index"`
		Delta    delta     `json:"delta"`
		Logprobs *logprobs `json:"logprobs"`
		Finish   *string   `json:"finish_reason"`
	}
	delta struct {
		Role    string  `json:"role,omitempty"`
		Content *string `json:"content,omitempty"`
	}
)

// events writes a stream of server-sent events.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	server  *Server
	job     *job
	head    head
	begun   bool
	last    [][]int32 // [choices] the last token sent, if any
	err     error     // of writing
}

// stream sends a job's reply while it is sampled.
func (s *Server) stream(w http.ResponseWriter, j *job) (status int) {
	e := &events{w: w, control: http.NewResponseController(w), server: s, job: j, head: newHead(),
		last: make([][]int32, j.ask.n)}
	for e.err == nil {
		news, over, err := j.wait()
		if err != nil && !e.begun {
			return s.fail(w, j, err)
		}
		for _, n := range news {
			e.news(n)
		}
		switch {
		case err != nil:
			p := s.problem(j, err)
			e.send(p.body())
			e.flush()
			return p.status
		case over:
			e.end()
			return http.StatusOK
		}
		e.flush()
	}
	return statusGone
}

// begin sends the headers and every choice's role.
func (e *events) begin() {
	e.begun = true
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // for proxies that would buffer it
	empty := ""
	for i := range e.job.ask.n {
		e.choice(chunkChoice{Index: i, Delta: delta{Role: "assistant", Content: &empty}})
	}
}

// news sends a choice's progress.
func (e *events) news(n event) {
	if !e.begun {
		e.begin()
	}
	part := chunkChoice{Index: n.choice}
	if n.piece != "" || len(n.tokens) > 0 {
		part.Delta.Content = &n.piece
		if e.job.ask.logprobs {
			part.Logprobs = &logprobs{Content: e.server.logprobs(e.job.ask, e.last[n.choice], n.tokens, n.logps)}
		}
		if len(n.tokens) > 0 {
			e.last[n.choice] = n.tokens[len(n.tokens)-1:]
		}
		e.choice(part)
	}
	if n.reason != "" {
		finish := finishes[n.reason]
		e.choice(chunkChoice{Index: n.choice, Finish: &finish})
	}
}

func (e *events) choice(c chunkChoice) { e.send(e.chunk([]chunkChoice{c}, nil)) }

// chunk is a part of the reply. If the client asked for usage, all parts have the field, null except in the last.
func (e *events) chunk(choices []chunkChoice, u *usage) any {
	c := chunk{ID: e.head.id, Object: "chat.completion.chunk", Created: e.head.created,
		Model: e.server.options.Name, Choices: choices, Usage: u}
	if e.job.ask.usage {
		return c
	}
	return struct {
		chunk
		Usage *struct{} `json:"usage,omitempty"`
	}{chunk: c}
}

func (e *events) end() {
	if e.job.ask.usage {
		e.send(e.chunk([]chunkChoice{}, e.job.usage()))
	}
	e.write("[DONE]")
	e.flush()
}

func (e *events) send(value any) {
	text, err := marshal(value)
	if err != nil {
		e.err = err
		return
	}
	e.write(string(text[:len(text)-1]))
}

// write writes one event unless the client has gone.
func (e *events) write(text string) {
	if e.err == nil {
		e.control.SetWriteDeadline(time.Now().Add(patience)) // fails harmlessly if the connection has no deadlines
		_, e.err = io.WriteString(e.w, "data: "+text+"\n\n")
	}
}

func (e *events) flush() {
	if e.err == nil {
		e.err = e.control.Flush()
	}
}
