package serve_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"

	"github.com/posttrain/posttrain/internal/serve"
	"github.com/posttrain/posttrain/rollout"
)

// TestToken: only clients with the token are served, except for the health page; the token is in no message and no
// log line.
func TestToken(t *testing.T) {
	const secret = "sk-0123456789"
	r := start(t, newPaced(), func(o *serve.Options) { o.Token = secret })
	if _, err := r.client.ListModels(t.Context()); err != nil {
		t.Error(err)
	}
	for _, token := range []string{"", "sk-", secret + "0", "SK-0123456789"} {
		_, err := r.with(token).CreateChatCompletion(t.Context(), says("Hello", nil))
		checkError(t, err, http.StatusUnauthorized, "invalid_api_key", "Authorization: Bearer")
		_, err = r.with(token).ListModels(t.Context())
		checkError(t, err, http.StatusUnauthorized, "invalid_api_key")
		if strings.Contains(err.Error(), "0123") {
			t.Error(err)
		}
	}
	if got := r.send(t, "GET", "/healthz", "", nil); got.status != http.StatusOK {
		t.Errorf("%+v", got)
	}
	basic := r.send(t, "GET", "/v1/models", "", func(q *http.Request) {
		q.Header.Set("Authorization",
			"Basic "+secret)
	})
	if basic.status != http.StatusUnauthorized || basic.header.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("%+v", basic)
	}
	if strings.Contains(r.log.text(), "0123") {
		t.Errorf("the log shows the token: %s", r.log.text())
	}
}

// TestOtherSites: a browser cannot be led here by another site's page, nor by a name that only resembles this
// machine's.
func TestOtherSites(t *testing.T) {
	r := start(t, newPaced(), nil)
	for name, change := range map[string]func(q *http.Request){
		"another site":   func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "cross-site") },
		"another origin": func(q *http.Request) { q.Header.Set("Origin", "https://example.org") },
		"another name":   func(q *http.Request) { q.Host = "example.org:8080" },
	} {
		got := r.send(t, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"Hello"}]}`, change)
		if _, _, _, code := got.error(t); got.status != http.StatusForbidden || code != "cross_origin" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	got := r.send(t, "OPTIONS", "/v1/chat/completions", "", func(q *http.Request) {
		q.Header.Set("Origin", "https://example.org")
		q.Header.Set("Access-Control-Request-Method", "POST")
		q.Header.Set("Access-Control-Request-Private-Network", "true")
	})
	for name := range got.header {
		if got.status != http.StatusMethodNotAllowed || strings.HasPrefix(name, "Access-Control") {
			t.Errorf("preflight: %+v", got)
		}
	}
	for _, host := range []string{"localhost", "localhost:1", "[::1]:80", "127.0.0.2"} {
		got := r.send(t, "GET", "/v1/models", "", func(q *http.Request) { q.Host = host })
		if got.status != http.StatusOK {
			t.Errorf("%s: %+v", host, got)
		}
	}
}

// TestHosts: without a token every address refuses other host names, so that no site can point its own name here;
// addresses, localhost, this machine's name and the server's own names work. A token is enough by itself.
func TestHosts(t *testing.T) {
	r := start(t, newPaced(), func(o *serve.Options) { o.Hosts = []string{"Judge"} })
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	status := func(r *running, path, host string) int {
		return r.send(t, "GET", path, "", func(q *http.Request) {
			q.Host = host
			q.Header.Set("Authorization", "Bearer secret")
		}).status
	}
	for _, path := range []string{"/v1/models", "/healthz"} {
		for _, host := range []string{"localhost:1", "a.localhost", "10.0.0.5:80", "[2001:db8::1]:80", machine,
			"judge:8080", "JUDGE."} {
			if got := status(r, path, host); got != http.StatusOK {
				t.Errorf("%s, host %s: %d, want 200", path, host, got)
			}
		}
		for _, host := range []string{"attacker.test", "judge.attacker.test", "*",
			"10.0.0.5.test", "localhost.test"} {
			if got := status(r, path, host); got != http.StatusForbidden {
				t.Errorf("%s, host %s: %d, want 403", path, host, got)
			}
		}
	}
	open := start(t, newPaced(), func(o *serve.Options) { o.Token = "secret" })
	if got := status(open, "/v1/models", "llm.test"); got != http.StatusOK {
		t.Errorf("%d, want 200 with a token", got)
	}
}

// TestStalledBodies: 500 clients that never send their body, with the token, without it, or to other places, are all
// answered, their connections close, and meanwhile others are served.
func TestStalledBodies(t *testing.T) {
	const clients, limit = 500, 500 * time.Millisecond
	r := start(t, newPaced(), func(o *serve.Options) {
		o.Token, o.Timeouts = "secret", serve.Timeouts{Body: limit, Unread: limit}
	})
	kinds := []struct{ line, token, status string }{
		{"POST /v1/chat/completions", "secret", "408 Request Timeout"},
		{"POST /v1/chat/completions", "wrong", "401 Unauthorized"},
		{"POST /nowhere", "wrong", "404 Not Found"},
		{"PUT /v1/models", "wrong", "405 Method Not Allowed"},
		{"GET /healthz", "wrong", "200 OK"},
	}
	conns := make([]net.Conn, clients)
	for i := range conns {
		k := kinds[i%len(kinds)]
		conns[i] = r.dial(t, fmt.Sprintf("%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"+
			"Content-Length: 1000\r\n\r\n{", k.line, k.token))
		if i%100 == 99 {
			if got := r.send(t, "GET", "/healthz", "", nil); got.status != http.StatusOK {
				t.Errorf("%+v", got)
			}
		}
	}
	for i, c := range conns {
		got, err := io.ReadAll(c)
		if k := kinds[i%len(kinds)]; err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 "+k.status) ||
			!strings.Contains(string(got), "Connection: close") {
			t.Fatalf("%s: %v, %q: want %s, then the end", k.line, err, got, k.status)
		}
	}
	if got := r.log.text(); strings.Count(got, "408") != clients/len(kinds) {
		t.Errorf("the log: %s", got)
	}
}

// dial sends the beginning of a request on a connection of its own.
func (r *running) dial(t *testing.T, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

const plainChat = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"

// TestWholeBodiesKeepTheirConnection: an answer may take longer than a body, and a connection serves several requests,
// refused ones too.
func TestWholeBodiesKeepTheirConnection(t *testing.T) {
	p := newPaced()
	limits := serve.Timeouts{Body: 100 * time.Millisecond, Unread: time.Millisecond, Write: 100 * time.Millisecond}
	r := start(t, p, func(o *serve.Options) { o.Timeouts = limits })
	send := func(c net.Conn, body string) {
		if _, err := fmt.Fprintf(c, plainChat, len(body), body); err != nil {
			t.Fatal(err)
		}
	}
	c := r.dial(t, "")
	replies := bufio.NewReader(c)
	for _, want := range []int{http.StatusOK, http.StatusBadRequest, http.StatusOK} {
		if want == http.StatusOK {
			send(c, `{"messages":[{"role":"user","content":"Hello"}],"max_tokens":1}`)
			p.join(t)
			<-time.After(limits.Body * 3 / 2) // all deadlines of the body have passed
			p.step(t)
		} else {
			send(c, `{"n":0}`)
		}
		got, err := http.ReadResponse(replies, nil)
		if err != nil || got.StatusCode != want {
			t.Fatalf("%+v, %v: want %d", got, err, want)
		}
		if _, err := io.Copy(io.Discard, got.Body); err != nil {
			t.Error(err)
		}
	}
}

// TestUnreadReplies: a client that does not read its reply is cut off, whole or streamed.
func TestUnreadReplies(t *testing.T) {
	for _, stream := range []bool{false, true} {
		p := newPaced()
		close(p.steps)
		r := start(t, p, func(o *serve.Options) { o.MaxNew, o.Timeouts.Write = 500, 100*time.Millisecond })
		body := fmt.Sprintf(`{"messages":[{"role":"user","content":"Hello"}],"n":128,"temperature":0,`+
			`"logprobs":true,"top_logprobs":1,"stream":%v}`, stream)
		c := r.dial(t, "")
		c.(*net.TCPConn).SetReadBuffer(4096)
		if _, err := fmt.Fprintf(c, plainChat, len(body), body); err != nil {
			t.Fatal(err)
		}
		p.join(t)
		until(t, "the client is cut off", func() bool { return strings.Contains(r.log.text(), "499") })
		r.stop()
		r.wait(t) // it waits for connections
	}
}

// TestHalfClosed: who ends its side of the connection gets no reply rather than an empty one.
func TestHalfClosed(t *testing.T) {
	p := newPaced()
	r := start(t, p, nil)
	body := `{"messages":[{"role":"user","content":"Hello"}],"max_tokens":5}`
	c := r.dial(t, fmt.Sprintf(plainChat, len(body), body))
	p.join(t)
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || len(got) > 0 {
		t.Errorf("%q, %v: want the end", got, err)
	}
	until(t, "a line in the log", func() bool { return strings.Contains(r.log.text(), "499") })
}

// TestMaxTokens: the tokens of all choices together are limited, in one clear error.
func TestMaxTokens(t *testing.T) {
	p := newPaced()
	close(p.steps)
	r := start(t, p, func(o *serve.Options) { o.MaxTokens = 40 })
	for _, c := range []struct{ n, tokens, status int }{
		{1, 40, 200}, {2, 20, 200}, {3, 0, 200}, {1, 41, 400}, {2, 21, 400}, {4, 0, 400}, {128, 1 << 30, 400},
	} {
		_, err := r.client.CreateChatCompletion(t.Context(),
			says("Hello", func(q *openai.ChatCompletionRequest) { q.N, q.MaxTokens = c.n, c.tokens }))
		if c.status == http.StatusBadRequest {
			checkError(t, err, c.status, "too_many_tokens", "max_tokens: ",
				fmt.Sprintf("n × max_tokens is %d × ", c.n), "at most 40 tokens", "--max-request-tokens")
		} else if err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestTooLarge: a request over the limit is refused with a reply that its sender can read.
func TestTooLarge(t *testing.T) {
	r := start(t, newPaced(), func(o *serve.Options) { o.MaxRequest = 1000 })
	for _, size := range []int{1000, 300_000, 3_000_000} {
		_, err := r.client.CreateChatCompletion(t.Context(), says(strings.Repeat("a", size), nil))
		checkError(t, err, http.StatusRequestEntityTooLarge, "request_too_large", "1000 bytes")
	}
	_, err := r.client.CreateChatCompletion(t.Context(), says(strings.Repeat("Zq", 400), nil))
	checkError(t, err, http.StatusBadRequest, "context_length_exceeded", "messages: ", "512 positions")
}

// TestUnknownPlaces: unknown paths and methods give errors in the protocol's format too.
func TestUnknownPlaces(t *testing.T) {
	r := start(t, newPaced(), nil)
	for _, c := range []struct {
		method, path string
		status       int
		says         string
	}{
		{"POST", "/v1/embeddings", http.StatusNotFound, "POST /v1/chat/completions"},
		{"GET", "/", http.StatusNotFound, "GET /v1/models"},
		{"GET", "/v1/chat/completions", http.StatusMethodNotAllowed, "want POST"},
		{"DELETE", "/v1/models/tiny", http.StatusMethodNotAllowed, "want GET"},
		{"POST", "/healthz", http.StatusMethodNotAllowed, "want GET"},
	} {
		got := r.send(t, c.method, c.path, "", nil)
		if message, _, _, _ := got.error(t); got.status != c.status || !strings.Contains(message, c.says) {
			t.Errorf("%s %s: %+v, want %q", c.method, c.path, got, c.says)
		}
	}
}

// TestRefusals: unsupported fields are refused by name; fields without effect are accepted.
func TestRefusals(t *testing.T) {
	r := start(t, nil, func(o *serve.Options) { o.MaxNew = 1 })
	const hello = `"messages":[{"role":"user","content":"Hello"}]`
	for _, c := range []struct{ body, param, says string }{
		{`{`, "", "not a JSON object"},
		{`[]`, "", "not a JSON object"},
		{`{} {}`, "", "not a JSON object"},
		{`{}`, "messages", "one message or more"},
		{`{"messages":[]}`, "messages", "one message or more"},
		{`{"messages":"Hello"}`, "messages", "a list of messages"},
		{`{"messages":[{"content":"Hello"}]}`, "messages", `message 0: role: found ""`},
		{`{"messages":[{"role":"user"}]}`, "messages", "message 0: content: missing"},
		{`{"messages":[{"role":"user","content":null}]}`, "messages", "message 0: content: found null"},
		{`{"messages":[{"role":"user","content":5}]}`, "messages", "content: found 5: want a text"},
		{`{"messages":[{"role":"cat","content":"x"}]}`, "messages",
			`role: found "cat": want system, user, assistant or tool`},
		{`{"messages":[{"role":"user","content":"x","tool_call_id":"a"}]}`, "messages", "tool_call_id: only a message"},
		{`{"messages":[{"role":"user","content":"x","tool_calls":[{"function":{"name":"f"}}]}]}`, "messages",
			"tool_calls: only a message"},
		{`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1]"}}]}]}`, "messages",
			"tool_calls: the arguments of call 0 are [1]: want a JSON object"},
		{`{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, "messages",
			`part 0 is of type "image_url"`},
		{`{"messages":[{"role":"user","content":"x","name":"Ann"}]}`, "messages", "name: "},
		{`{"messages":[{"role":"assistant","content":"x","tool_calls":[{}]}]}`, "messages",
			"tool_calls: call 0 has no function.name"},
		{`{` + hello + `,"tools":[{"type":"function"}]}`, "tools", `of type "function" with the name ""`},
		{`{` + hello + `,"tools":{}}`, "tools", "found {}: want a list of functions"},
		{`{` + hello + `,"chat_template_kwargs":{"messages":[]}}`, "chat_template_kwargs", "the request decides it"},
		{`{` + hello + `,"chat_template_kwargs":5}`, "chat_template_kwargs", "found 5: want an object"},
		{`{` + hello + `,"tool_choice":"required"}`, "tool_choice", "not supported"},
		{`{` + hello + `,"response_format":{"type":"json_object"}}`, "response_format",
			`json_object"} is not supported`},
		{`{` + hello + `,"response_format":{"type":"json_schema"}}`, "response_format",
			`json_schema"} is not supported`},
		{`{` + hello + `,"frequency_penalty":2.5}`, "frequency_penalty", "found 2.5: want a number from -2 to 2"},
		{`{` + hello + `,"repetition_penalty":0}`, "repetition_penalty", "found 0: want a number from 0.01 to 100"},
		{`{` + hello + `,"logit_bias":{"5":-101}}`, "logit_bias", "5: found -101: want an object of at most"},
		{`{` + hello + `,"logit_bias":{"x":1}}`, "logit_bias", "by token ids"},
		{`{` + hello + `,"logit_bias":{"-1":1}}`, "logit_bias", "token id -1: the model has ids 0 to"},
		{`{` + hello + `,"modalities":["text","audio"]}`, "modalities", "not supported"},
		{`{` + hello + `,"store":true}`, "store", "not supported"},
		{`{` + hello + `,"web_search_options":{}}`, "web_search_options", "not supported"},
		{`{` + hello + `,"temprature":1}`, "temprature", "unknown field"},
		{`{` + hello + `,"Temperature":1}`, "Temperature", "unknown field"},
		{`{` + hello + `,"temperature":"hot"}`, "temperature", `found "hot": want a number from 0 to 2`},
		{`{` + hello + `,"temperature":2.5}`, "temperature", "found 2.5: want a number from 0 to 2"},
		{`{` + hello + `,"top_p":-1}`, "top_p", "0 to 1"},
		{`{` + hello + `,"n":0}`, "n", "1 to 128"},
		{`{` + hello + `,"n":1.5}`, "n", "1 to 128"},
		{`{` + hello + `,"max_tokens":0}`, "max_tokens", "1 to "},
		{`{` + hello + `,"max_tokens":5,"max_completion_tokens":6}`, "max_tokens", "one of the two"},
		{`{` + hello + `,"seed":"x"}`, "seed", "whole number"},
		{`{` + hello + `,"stop":""}`, "stop", "none of them empty"},
		{`{` + hello + `,"stop":[1]}`, "stop", "a list of at most 16 texts"},
		{`{` + hello + `,"stream":"yes"}`, "stream", "true or false"},
		{`{` + hello + `,"stream_options":{"include_usage":true}}`, "stream_options", "stream true"},
		{`{` + hello + `,"stream":true,"stream_options":{"chunks":1}}`, "stream_options", "chunks: unknown field"},
		{`{` + hello + `,"top_logprobs":0,"logprobs":1}`, "logprobs", "true or false"},
		{`{` + hello + `,"top_logprobs":1}`, "top_logprobs", "logprobs true"},
		{`{` + hello + `,"logprobs":true,"top_logprobs":21}`, "top_logprobs",
			"found 21: want a whole number from 0 to 20"},
	} {
		got := r.send(t, "POST", "/v1/chat/completions", c.body, nil)
		message, kind, param, _ := got.error(t)
		if got.status != http.StatusBadRequest || param != c.param || !strings.Contains(message, c.says) ||
			kind != "invalid_request_error" || strings.Contains(message, "\n") {
			t.Errorf("%s: %d %s, %q, want %q", c.body, got.status, param, message, c.says)
		}
	}
	for _, more := range []string{
		`"frequency_penalty":0,"presence_penalty":0.0,"logit_bias":{},"logit_bias":null,"n":1,"top_p":1,` +
			`"temperature":1,"user":"ann"`,
		`"tools":[],"tool_choice":"none","parallel_tool_calls":true,"functions":null,"response_format":{"type":"text"}`,
		`"stream":false,"stream_options":null,"stop":null,"seed":-5,"max_tokens":1,"max_completion_tokens":1,` +
			`"logprobs":true,"top_logprobs":0`,
		`"metadata":{},"store":false,"service_tier":"auto","modalities":["text"],"audio":null,"verbosity":"medium",` +
			`"reasoning_effort":null`,
	} {
		if got := r.send(t, "POST", "/v1/chat/completions", fmt.Sprintf("{%s,%s}", hello, more),
			nil); got.status != http.StatusOK {
			t.Errorf("%s: %+v", more, got)
		}
	}
	back := `{"messages":[{"role":"developer","content":"Hi"},{"role":"user","content":"Hello"},{"role":"assistant",` +
		`"content":"Yes?","refusal":null,"tool_calls":[]},{"role":"user","content":"No"}]}`
	if got := r.send(t, "POST", "/v1/chat/completions", back, nil); got.status != http.StatusOK {
		t.Errorf("%+v", got)
	}
	if log := r.log.text(); strings.Contains(log, "Hello") || strings.Contains(log, "json_object") ||
		!strings.Contains(log, `400 "tools"`) {
		t.Errorf("the log shows too much of requests: %s", log)
	}
}

// narrow is a sampler whose cache holds few tokens.
type narrow struct{ serve.Sampler }

func (narrow) CheckRoom(r rollout.Request) error {
	if r.MaxNew > 5 && len(r.Prompt) > 0 {
		return errors.New("cache_gb: 1: want 2")
	}
	return nil
}

// TestNoRoom: an answer that the cache cannot hold is refused at once, and others are given.
func TestNoRoom(t *testing.T) {
	r := start(t, nil, func(o *serve.Options) { o.Sampler = narrow{o.Sampler} })
	for tokens, want := range map[int]string{6: "the server has no room for it: cache_gb: 1: want 2", 5: "choices"} {
		body := fmt.Sprintf(`{"messages":[{"role":"user","content":"Hello"}],"max_tokens":%d}`, tokens)
		if got := r.send(t, "POST", "/v1/chat/completions", body, nil); !strings.Contains(got.body, want) {
			t.Errorf("%d tokens: %+v", tokens, got)
		}
	}
}
