package testkit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// JudgeOptions say how a chat server for tests answers, and how it fails on purpose.
type JudgeOptions struct {
	Reply func(prompt string) string // nil: "Answer: Yes"
	// Converse answers all messages of a conversation, in the place of Reply; structured: a JSON schema is asked for
	Converse func(messages []string, structured bool) string
	// Act answers a whole request with a message, both in JSON, in the place of Reply
	Act func(request []byte) string
	// Filter: prompts with this text are refused, as Azure OpenAI's filter does; "": none
	Filter string
	// NoSchema: requests with a JSON schema are refused
	NoSchema bool
	// Top gives log-probabilities of first tokens, where a request asks for them; nil: the server gives none
	Top    func(prompt string) map[string]float64
	Watch  func(prompt string) // called with each prompt, from several goroutines; may be nil
	Delay  time.Duration       // until a reply
	Faults float64             // the share of requests that get a fault for a reply
	Stall  time.Duration       // how long a fault that stalls takes; longer than the client's time-out
	Seed   uint64              // of the faults
	Key    string              // that requests must bear; empty: none
}

// JudgeServer is a judge on this machine.
type JudgeServer struct {
	URL     string // the base URL, which ends in /v1
	options JudgeOptions

	mu       sync.Mutex
	random   *rand.Rand
	requests int
	most     int
	now      int
	faults   map[string]int
}

// StartJudge serves until the test ends.
func StartJudge(t testing.TB, o JudgeOptions) *JudgeServer {
	t.Helper()
	if o.Reply == nil {
		o.Reply = func(string) string { return "Answer: Yes" }
	}
	if o.Watch == nil {
		o.Watch = func(string) {}
	}
	s := &JudgeServer{options: o, random: rand.New(rand.NewPCG(o.Seed, 1)), faults: map[string]int{}}
	h := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(h.Close)
	s.URL = h.URL + "/v1"
	return s
}

// Requests is how many arrived, and how many of them at the same time at most.
func (s *JudgeServer) Requests() (all, together int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests, s.most
}

// Faults counts the faults so far by kind.
func (s *JudgeServer) Faults() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.faults)
}

// JudgeFaults are the names of all faults.
func JudgeFaults() (names []string) {
	for _, f := range faults {
		names = append(names, f.kind)
	}
	return names
}

func (s *JudgeServer) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/v1/chat/completions" {
		http.NotFound(w, r)
		return
	}
	if s.options.Key != "" && r.Header.Get("Authorization") != "Bearer "+s.options.Key {
		http.Error(w, `{"error": {"message": "Incorrect API key provided"}}`, http.StatusUnauthorized)
		return
	}
	var body bytes.Buffer
	q, err := readQuestion(io.TeeReader(r.Body, &body))
	if err == nil && q.structured() && s.options.NoSchema {
		err = fmt.Errorf("response_format is not supported")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	prompt := q.Messages[len(q.Messages)-1].Content
	s.options.Watch(prompt)
	if f := s.options.Filter; f != "" && strings.Contains(prompt, f) {
		http.Error(w, `{"error": {"message": "The response was filtered", "code": "content_filter"}}`,
			http.StatusBadRequest)
		return
	}
	fail := s.arrive()
	defer s.leave()
	if fail != nil {
		fail(s, w, r)
		return
	}
	if pause(r, s.options.Delay) {
		var top map[string]float64
		if q.Logprobs && s.options.Top != nil {
			top = s.options.Top(prompt)
		}
		if s.options.Act != nil {
			_, _ = fmt.Fprintf(w, `{"choices": [{"message": %s, "finish_reason": "stop"}]}`, s.options.Act(body.Bytes()))
			return
		}
		_, _ = w.Write(completionJSON(prompt, s.reply(q), top))
	}
}

// question is what a request asks.
type question struct {
	Messages []struct{ Content string }
	Logprobs bool
	Format   struct{ Type string } `json:"response_format"`
}

func (q question) structured() bool { return q.Format.Type == "json_schema" }

func readQuestion(body io.Reader) (q question, err error) {
	if err := json.NewDecoder(body).Decode(&q); err != nil {
		return q, err
	}
	if len(q.Messages) == 0 {
		return q, fmt.Errorf("no messages")
	}
	return q, nil
}

func (s *JudgeServer) reply(q question) string {
	var texts []string
	for _, m := range q.Messages {
		texts = append(texts, m.Content)
	}
	if s.options.Converse != nil {
		return s.options.Converse(texts, q.structured())
	}
	return s.options.Reply(texts[len(texts)-1])
}

// arrive counts a request and chooses its fault, nil for none. The faults take turns.
func (s *JudgeServer) arrive() func(*JudgeServer, http.ResponseWriter, *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	s.now++
	s.most = max(s.most, s.now)
	if s.random.Float64() >= s.options.Faults {
		return nil
	}
	n := 0
	for _, count := range s.faults {
		n += count
	}
	f := faults[n%len(faults)]
	s.faults[f.kind]++
	return f.serve
}

func (s *JudgeServer) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
}

// pause waits and says whether the client is still connected.
func pause(r *http.Request, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// Completion is a chat completion with a reply to a prompt; a token is a word.
func Completion(prompt, reply string) []byte { return completionJSON(prompt, reply, nil) }

// completionJSON has log-probabilities of its first token, too, unless they are nil.
func completionJSON(prompt, reply string, top map[string]float64) []byte {
	in, out := len(strings.Fields(prompt)), len(strings.Fields(reply))
	choice := map[string]any{"index": 0, "finish_reason": "stop",
		"message": map[string]any{"role": "assistant", "content": reply}}
	if top != nil {
		var all []any
		for _, token := range slices.Sorted(maps.Keys(top)) {
			all = append(all, map[string]any{"token": token, "logprob": top[token]})
		}
		choice["logprobs"] = map[string]any{"content": []any{map[string]any{"token": reply, "logprob": 0,
			"top_logprobs": all}}}
	}
	b, _ := json.Marshal(map[string]any{ // maps, strings and numbers always marshal
		"object": "chat.completion", "choices": []any{choice},
		"usage": map[string]any{"prompt_tokens": in, "completion_tokens": out, "total_tokens": in + out}})
	return b
}

// faults are what a server in trouble does.
var faults = []struct {
	kind  string
	serve func(*JudgeServer, http.ResponseWriter, *http.Request)
}{
	{"429", refuse(http.StatusTooManyRequests, "", "")},
	{"500", refuse(http.StatusInternalServerError, "", "")},
	{"dropped connection", func(*JudgeServer, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	{"reply cut", cut},
	{"invalid JSON", func(_ *JudgeServer, w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"choices": [{"message": oops`)
	}},
	{"stall", func(s *JudgeServer, _ http.ResponseWriter, r *http.Request) { pause(r, s.options.Stall) }},
	{"429 with milliseconds", refuse(http.StatusTooManyRequests, "Retry-After-Ms", "20")},
	{"429 with seconds", refuse(http.StatusTooManyRequests, "Retry-After", "0.05")},
	{"503 with a date", refuse(http.StatusServiceUnavailable, "Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT")},
	{"web page", func(_ *JudgeServer, w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>we will be back</html>")
	}},
}

func refuse(code int, name, value string) func(*JudgeServer, http.ResponseWriter, *http.Request) {
	return func(_ *JudgeServer, w http.ResponseWriter, _ *http.Request) {
		if name != "" {
			w.Header().Set(name, value)
		}
		http.Error(w, `{"error": {"message": "later"}}`, code)
	}
}

// cut ends the connection in the middle of a good reply.
func cut(_ *JudgeServer, w http.ResponseWriter, _ *http.Request) {
	b := Completion("", "Answer: Yes")
	w.Header().Set("Content-Length", fmt.Sprint(len(b)))
	_, _ = w.Write(b[:len(b)/2])
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	panic(http.ErrAbortHandler)
}
