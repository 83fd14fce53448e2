package serve

import (
	"io"
	"net/http"
)

// events writes a stream of server-sent events.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	server  *Server
	job     *job
	chunk   reply      // of a chat, without choices
	plain   plainReply // of others
	begun   bool
	last    [][]int32 // [choices] the tokens sent last, or the prompt
	spoken  []spoken  // [choices]
	err     error     // of writing
}

// stream sends a job's reply while it is sampled.
func (s *Server) stream(w http.ResponseWriter, j *job) (status int) {
	e := &events{w: w, control: http.NewResponseController(w), server: s, job: j, plain: j.newPlainReply(),
		chunk: j.newReply("chat.completion.chunk"), spoken: make([]spoken, len(j.requests))}
	for _, r := range j.requests {
		e.last = append(e.last, r.Prompt)
	}
	if j.ask.usage { // all chunks have the field, null except in the last
		e.chunk.Usage = (*usage)(nil)
	}
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

// begin sends the headers and every choice's role, or its prompt where that is echoed.
func (e *events) begin() {
	e.begun = true
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // for proxies that would buffer it
	empty := ""
	for i := range e.job.requests {
		switch {
		case e.job.ask.plain == nil:
			e.choice(replyChoice{Index: i, Delta: &delta{Role: "assistant", Content: &empty}})
		case e.job.ask.plain.echo || e.job.ask.plain.ids:
			e.plainChoice(e.server.plainChoice(e.job, i, "", nil, stretch{}))
		}
	}
}

// news sends a choice's progress.
func (e *events) news(n event) {
	if !e.begun {
		e.begin()
	}
	before := e.last[n.choice]
	if len(n.tokens) > 0 {
		e.last[n.choice] = n.tokens[len(n.tokens)-1:]
	}
	if e.job.ask.plain != nil {
		part := e.server.plainChoice(e.job, n.choice, n.piece, before, n.stretch)
		if n.reason != "" {
			part.Finish = finish(n.reason)
		}
		e.plainChoice(part)
		return
	}
	content, calls := e.job.ask.more(&e.spoken[n.choice], n.piece, n.reason != "")
	if content != "" || len(n.tokens) > 0 {
		part := replyChoice{Index: n.choice, Delta: &delta{Content: &content}}
		if e.job.ask.logprobs {
			part.Logprobs = &logprobs{Content: e.server.logprobs(before, n.stretch)}
		}
		e.choice(part)
	}
	for i := range calls {
		calls[i].Index = &i
		e.choice(replyChoice{Index: n.choice, Delta: &delta{Calls: calls[i : i+1]}})
	}
	if n.reason != "" {
		e.choice(replyChoice{Index: n.choice, Delta: &delta{}, Finish: e.job.ask.finish(n.reason, calls)})
	}
}

func (e *events) choice(c replyChoice) {
	e.chunk.Choices = []replyChoice{c}
	e.send(e.chunk)
}

func (e *events) plainChoice(c plainChoice) {
	e.plain.Choices = []plainChoice{c}
	e.send(e.plain)
}

func (e *events) end() {
	if e.job.ask.usage {
		e.chunk.Choices, e.chunk.Usage = []replyChoice{}, e.job.usage()
		e.plain.Choices, e.plain.Usage = []plainChoice{}, e.job.usage()
		if e.job.ask.plain == nil {
			e.send(e.chunk)
		} else {
			e.send(e.plain)
		}
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
		_, e.err = io.WriteString(e.w, "data: "+text+"\n\n")
	}
}

func (e *events) flush() {
	if e.err == nil {
		e.err = e.control.Flush()
	}
}
