package remote

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
)

// TestAzure: the path names the deployment, the query the version, and the key has a header of its own.
func TestAzure(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/openai/deployments/judge-4o/chat/completions":
			http.Error(w, `{"error": {"code": "DeploymentNotFound", "message": "no such deployment"}}`, 404)
		case r.URL.RawQuery != "api-version=2024-10-21" || r.Header.Get("api-key") != "azure-key" ||
			r.Header.Get("Authorization") != "":
			t.Errorf("%s, %v", r.URL, r.Header)
		default:
			io.WriteString(w, replyJSON("yes"))
		}
	}))
	defer s.Close()
	open := func(base, model string) *Client {
		r, err := New(Options{Server: Server{BaseURL: base, APIVersion: "2024-10-21"}, Model: model, Key: "azure-key",
			Wait: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, base := range []string{s.URL, s.URL + "/", s.URL + "/openai"} {
		got, err := open(base, "judge-4o").Answer(t.Context(), []ask.Question{talk("?")})
		if err != nil || got[0][0].Text != "yes" {
			t.Errorf("%s: %v, %v", base, got, err)
		}
	}
	_, err := open(s.URL, "other").Answer(t.Context(), []ask.Question{talk("?")})
	if err == nil || !strings.Contains(err.Error(), `no deployment "other", no api_version "2024-10-21"`) {
		t.Error(err)
	}
}

// continuing is a server that continues the last message where it is asked to, as vLLM does, and otherwise begins
// another; knows: it knows the field.
type continuing struct {
	mu    sync.Mutex
	asked []continued
}

type continued struct {
	Messages []data.Message
	Continue bool  `json:"continue_final_message"`
	Generate *bool `json:"add_generation_prompt"`
}

func (s *continuing) serve(t *testing.T, knows bool) *Client {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q continued
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = append(s.asked, q)
		tokens := 12
		if q.Continue && knows {
			tokens = 9
		}
		fmt.Fprintf(w, `{"choices": [{"finish_reason": "stop", "message": {"reasoning_content": "hm", "content": "A"}}],
			"usage": {"prompt_tokens": %d, "completion_tokens": 1}}`, tokens)
	}))
	t.Cleanup(server.Close)
	r, err := New(Options{Server: Server{BaseURL: server.URL}, Model: "m", Continue: "vllm"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestContinue: the beginning of an answer is the last message, which the server is asked to continue, and the answer
// leaves it out; whether the server does so is asked once.
func TestContinue(t *testing.T) {
	s := &continuing{}
	r := s.serve(t, true)
	for range 2 {
		c := talk("?")
		c.Prefill = "<think>\n"
		got, err := r.Answer(t.Context(), []ask.Question{c})
		if err != nil || got[0][0].Text != "hm</think>A" {
			t.Fatal(got, err)
		}
	}
	if len(s.asked) != 4 {
		t.Fatalf("%d requests, want 2 that look and 2 that ask", len(s.asked))
	}
	for _, q := range s.asked[2:] {
		last := q.Messages[len(q.Messages)-1]
		if len(q.Messages) != 2 || last != (data.Message{Role: "assistant", Content: "<think>\n"}) || !q.Continue ||
			q.Generate == nil || *q.Generate {
			t.Errorf("%+v", q)
		}
	}
	got, err := r.Answer(t.Context(), []ask.Question{talk("?")})
	if q := s.asked[4]; err != nil || got[0][0].Text != "<think>hm</think>A" || q.Continue || q.Generate != nil {
		t.Errorf("without a beginning: %v, %v, %+v", got, err, q)
	}
}

// TestContinueRefused: a server that passes over the fields would answer another prompt than the one asked.
func TestContinueRefused(t *testing.T) {
	s := &continuing{}
	c := talk("?")
	c.Prefill = "<think>\n"
	_, err := s.serve(t, false).Answer(t.Context(), []ask.Question{c})
	if err == nil || !strings.Contains(err.Error(), "does not continue the beginning of an answer: a prompt has 12 "+
		"tokens with continue_final_message and 12 without it") || len(s.asked) != 2 {
		t.Errorf("%v after %d requests", err, len(s.asked))
	}
	r := serve(t, func(http.ResponseWriter, asked, int) { t.Error("asked") })
	if _, err := r.Answer(t.Context(), []ask.Question{c}); err == nil || !strings.Contains(err.Error(), "continue: vllm") {
		t.Error(err)
	}
	for _, o := range []Options{
		{Server: Server{BaseURL: "https://api.openai.com/v1"}, Continue: "vllm"},
		{Server: Server{BaseURL: "https://me.openai.azure.com"}, Continue: "vllm"},
		{Server: Server{BaseURL: "http://localhost:1", APIVersion: "2024-10-21"}, Continue: "vllm"},
	} {
		o.Model = "m"
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), "OpenAI and Azure OpenAI do not continue") {
			t.Errorf("%s: %v", o.BaseURL, err)
		}
	}
}
