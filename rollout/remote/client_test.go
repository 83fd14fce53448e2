package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout"
)

// asked is what a test's server reads of a request.
type asked struct {
	Model       string
	N           int
	Seed        int
	Temperature *float64
	TopP        float64 `json:"top_p"`
	MaxTokens   int     `json:"max_tokens"`
	MaxNew      int     `json:"max_completion_tokens"`
	Stop        []string
	Messages    []data.Message
	whole       string
}

// replyJSON returns a reply with these answers.
func replyJSON(texts ...string) string {
	var choices []any
	for _, text := range texts {
		choices = append(choices, map[string]any{"finish_reason": "stop",
			"message": map[string]any{"role": "assistant", "content": text}})
	}
	b, err := json.Marshal(map[string]any{"choices": choices,
		"usage": map[string]any{"prompt_tokens": 3, "completion_tokens": 2 * len(texts)}})
	if err != nil {
		panic(err) // maps and strings
	}
	return string(b)
}

// serve starts a server that answers every try, numbered from 0, with the handler; the client waits a millisecond
// between tries.
func serve(t *testing.T, handle func(w http.ResponseWriter, a asked, try int), change ...func(*Options)) *Client {
	t.Helper()
	var tries atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/chat/completions" {
			http.NotFound(w, r)
			return
		}
		var a asked
		body, err := io.ReadAll(r.Body)
		if err := errors.Join(err, json.Unmarshal(body, &a)); err != nil {
			t.Error(err)
		}
		a.whole = string(body)
		handle(w, a, int(tries.Add(1))-1)
	}))
	t.Cleanup(s.Close)
	o := Options{Server: Server{BaseURL: s.URL + "/v1"}, Model: "tiny", Wait: time.Millisecond}
	for _, c := range change {
		c(&o)
	}
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func talk(text string) ask.Question {
	return ask.Question{Prompt: data.Text{Messages: []data.Message{{Role: "user", Content: text}}}}
}

// said is an answer of a text.
func said(text, reason string) ask.Answer {
	return ask.Answer{Completion: rollout.Completion{Text: text, Reason: reason}}
}

// TestRemoteAnswers: answers are in order, all settings are sent, parallel requests are limited and usage is
// counted.
func TestRemoteAnswers(t *testing.T) {
	var mu sync.Mutex
	now, most, ticks := 0, 0, 0
	seeds := map[int]bool{}
	r := serve(t, func(w http.ResponseWriter, a asked, _ int) {
		mu.Lock()
		now++
		most, seeds[a.Seed] = max(most, now), true
		mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		mu.Lock()
		now--
		mu.Unlock()
		if a.Model != "tiny" || a.MaxTokens != 7 || *a.Temperature != 0.5 || a.TopP != 0.9 || len(a.Stop) != 1 ||
			a.N != 2 || a.Seed < 0 {
			t.Errorf("%+v", a)
		}
		io.WriteString(w, replyJSON("re: "+a.Messages[0].Content, "2"))
	}, func(o *Options) { o.Parallel, o.Tick = 3, func(done int) { ticks += done } })
	var cs []ask.Question
	for i := range 10 {
		c := talk(fmt.Sprint(i))
		c.Samples, c.MaxNew, c.Temperature, c.TopP, c.Seed, c.Stop = 2, 7, 0.5, 0.9, uint64(i), []string{"\n"}
		cs = append(cs, c)
	}
	got, err := r.Answer(t.Context(), cs)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range got {
		first := said(fmt.Sprintf("re: %d", i), rollout.EOS)
		first.To, first.Usage = &cs[i], ask.Usage{Requests: 1, PromptTokens: 3, CompletionTokens: 4}
		if len(a) != 2 || !reflect.DeepEqual(a[0], first) || a[1].To != &cs[i] || a[1].Usage != (ask.Usage{}) {
			t.Errorf("question %d: %v", i, a)
		}
	}
	if most > 3 || len(seeds) != 10 || ticks != 55 {
		t.Errorf("%d at a time, %d seeds, ticks %d", most, len(seeds), ticks)
	}
	if u := r.Usage(); u != (ask.Usage{Requests: 10, PromptTokens: 30, CompletionTokens: 40}) {
		t.Errorf("usage %+v", u)
	}
}

// TestRemoteTools: tools, calls and results are sent in OpenAI's form, and calls come back as text, also those whose
// arguments are no JSON.
func TestRemoteTools(t *testing.T) {
	const call = `{"id": "c1", "type": "function", "function": {"name": "look", "arguments": `
	r := serve(t, func(w http.ResponseWriter, a asked, _ int) {
		for _, want := range []string{`"tools":[{"type":"function","b":1,"a":2}]`,
			`{"role":"assistant","content":"So.","tool_calls":[{"id":"c1","type":"function","function":{"name":"look",` +
				`"arguments":"{\"at\": 1}"}},{"type":"function","function":{"name":"look","arguments":"{at"}}]},` +
				`{"role":"tool","content":"a tree","name":"look","tool_call_id":"c1"}]`} {
			if !strings.Contains(a.whole, want) {
				t.Errorf("%s\nhas no %s", a.whole, want)
			}
		}
		io.WriteString(w, `{"choices": [{"finish_reason": "tool_calls", "message": {"content": "Again.", "tool_calls": [`+
			call+`"{\"at\": <1>}"}}, `+call+`{"at": 1}}}, `+call+`"{at"}}]}}]}`)
	})
	got, err := r.Answer(t.Context(), []ask.Question{{Prompt: data.Text{Messages: []data.Message{
		{Role: "user", Content: "Look.", Tools: `[{"type": "function", "b": 1, "a": 2}]`},
		{Role: "assistant", Content: "So.", Whole: `{"role": "assistant", "content": "So.", "tool_calls": [` + call +
			`{"at": 1}}}, {"function": {"name": "look", "arguments": "{at"}}]}`},
		{Role: "tool", Content: "a tree", Whole: `{"role": "tool", "content": "a tree", "name": "look", "tool_call_id": "c1"}`},
	}}}})
	const want = "Again.\n<tool_call>\n{\"name\":\"look\",\"arguments\":\"{\\\"at\\\": <1>}\"}\n</tool_call>" +
		"\n<tool_call>\n{\"name\":\"look\",\"arguments\":{\"at\":1}}\n</tool_call>" +
		"\n<tool_call>\n{\"name\":\"look\",\"arguments\":\"{at\"}\n</tool_call>"
	if err != nil || got[0][0].Text != want {
		t.Errorf("%+v, %v, want\n%q", got[0], err, want)
	}
}

// TestRemoteSaysZero: temperature 0 is sent; settings that are off are not.
func TestRemoteSaysZero(t *testing.T) {
	r := serve(t, func(w http.ResponseWriter, a asked, _ int) {
		if a.Temperature == nil || *a.Temperature != 0 || a.MaxTokens != 0 || a.N != 1 {
			t.Errorf("%+v", a)
		}
		io.WriteString(w, replyJSON("x"))
	})
	if _, err := r.Answer(t.Context(), []ask.Question{talk("")}); err != nil {
		t.Fatal(err)
	}
}

// TestRemoteAsksAgainForMissingAnswers: some servers return one answer whatever n is.
func TestRemoteAsksAgainForMissingAnswers(t *testing.T) {
	seeds := map[int]bool{}
	r := serve(t, func(w http.ResponseWriter, a asked, try int) {
		seeds[a.Seed] = true
		io.WriteString(w, replyJSON(fmt.Sprint(try)))
	})
	c := talk("")
	c.Samples = 3
	got, err := r.Answer(t.Context(), []ask.Question{c})
	if err != nil || len(got[0]) != 3 || got[0][2].Text != "2" || len(seeds) != 3 {
		t.Errorf("%v, %v, seeds %v", got, err, seeds)
	}
}

func TestRemoteReasons(t *testing.T) {
	r := serve(t, func(w http.ResponseWriter, a asked, _ int) {
		if a.MaxNew != 5 || a.MaxTokens != 0 || a.Temperature != nil {
			t.Errorf("%+v", a)
		}
		io.WriteString(w, `{"choices": [{"finish_reason": "length", "message": {"content": "<answer>b</answer>",`+
			` "reasoning_content": "a"}}]}`)
	}, func(o *Options) { o.Model = "o3-small" })
	c := talk("")
	c.MaxNew = 5
	want := said("<think>a</think><answer>b</answer>", rollout.Length)
	cs := []ask.Question{c}
	want.To, want.Usage = &cs[0], ask.Usage{Requests: 1}
	got, err := r.Answer(t.Context(), cs)
	if err != nil || !reflect.DeepEqual(got[0][0], want) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestRemoteReasonsApart: newer vLLM and OpenRouter call the thoughts reasoning, some send them under both names.
func TestRemoteReasonsApart(t *testing.T) {
	for _, fields := range []string{`"reasoning": "a"`, `"reasoning_content": "a"`,
		`"reasoning": "a", "reasoning_content": "a"`, `"reasoning": "a", "reasoning_content": null`} {
		r := serve(t, func(w http.ResponseWriter, _ asked, _ int) {
			io.WriteString(w, `{"choices": [{"finish_reason": "stop", "message": {"content": "b", `+fields+`}}]}`)
		})
		got, err := r.Answer(t.Context(), []ask.Question{talk("")})
		if err != nil || got[0][0].Text != "<think>a</think>b" {
			t.Errorf("%s: %v, %v", fields, got, err)
		}
		if a, _, err := r.Ask(t.Context(), talk(""), 0); err != nil || a.Text != "b" {
			t.Errorf("%s, without thoughts: %v, %v", fields, a, err)
		}
		r.options.ThinkOpened = true
		if a, _, err := r.Ask(t.Context(), talk(""), 0); err != nil || a.Text != "b" {
			t.Errorf("%s, without thoughts of a block that is open: %v, %v", fields, a, err)
		}
	}
}

// TestRemoteCutThoughts: thoughts that the limit of tokens has cut stay open, as a local model's do.
func TestRemoteCutThoughts(t *testing.T) {
	for rest, want := range map[string]string{
		`"finish_reason": "length", "message": {"content": null, `: "<think>a",
		`"finish_reason": "length", "message": {"content": "b", `:  "<think>a</think>b",
		`"finish_reason": "stop", "message": {"content": null, `:   "<think>a</think>",
		`"finish_reason": "length", "message": {"tool_calls": [{}], `: "<think>a</think>\n<tool_call>\n" +
			`{"name":"","arguments":null}` + "\n</tool_call>",
	} {
		r := serve(t, func(w http.ResponseWriter, _ asked, _ int) {
			io.WriteString(w, `{"choices": [{`+rest+`"reasoning": "a"}}]}`)
		})
		got, err := r.Answer(t.Context(), []ask.Question{talk("")})
		if err != nil || got[0][0].Text != want {
			t.Errorf("%s: %v, %v", rest, got, err)
		}
	}
}

// breakOff ends the connection before or within a reply.
func breakOff(w http.ResponseWriter, some string) {
	if some != "" {
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, some)
		w.(http.Flusher).Flush()
	}
	panic(http.ErrAbortHandler)
}

// TestRemoteTriesAgain: temporary errors are retried.
func TestRemoteTriesAgain(t *testing.T) {
	for name, fail := range map[string]func(w http.ResponseWriter){
		"408":                   func(w http.ResponseWriter) { http.Error(w, "late", 408) },
		"500":                   func(w http.ResponseWriter) { http.Error(w, "oops", 500) },
		"503 of a proxy":        func(w http.ResponseWriter) { http.Error(w, "<html>", 503) },
		"429":                   func(w http.ResponseWriter) { http.Error(w, `{"error": {"message": "slowly"}}`, 429) },
		"dropped connection":    func(w http.ResponseWriter) { breakOff(w, "") },
		"reply that breaks":     func(w http.ResponseWriter) { breakOff(w, `{"choices": [`) },
		"reply that takes long": func(w http.ResponseWriter) { time.Sleep(150 * time.Millisecond) },
		"answer broken off": func(w http.ResponseWriter) {
			io.WriteString(w, `{"choices": [{"finish_reason": "abort", "message": {"content": "at"}}]}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var tries atomic.Int32
			r := serve(t, func(w http.ResponseWriter, _ asked, try int) {
				if tries.Add(1); try < 2 {
					fail(w)
					return
				}
				io.WriteString(w, replyJSON("at last"))
			}, func(o *Options) { o.Timeout = 100 * time.Millisecond })
			got, err := r.Answer(t.Context(), []ask.Question{talk("")})
			if err != nil || got[0][0].Text != "at last" || tries.Load() != 3 {
				t.Errorf("%v, %v after %d tries", got, err, tries.Load())
			}
		})
	}
}

// TestRemoteHeedsRetryAfter: the client waits as long as the server says, not as long as it would by itself.
func TestRemoteHeedsRetryAfter(t *testing.T) {
	begin := time.Now()
	r := serve(t, func(w http.ResponseWriter, _ asked, try int) {
		if try == 0 {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "", 429)
			return
		}
		io.WriteString(w, replyJSON("x"))
	})
	_, err := r.Answer(t.Context(), []ask.Question{talk("")})
	if waited := time.Since(begin); err != nil || waited < time.Second || waited > 20*time.Second {
		t.Errorf("%v after %v", err, waited)
	}
}

// TestErrors: each error is one line without the key.
func TestErrors(t *testing.T) {
	const key = "sk-very-secret"
	status := func(code int, text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.WriteHeader(code); io.WriteString(w, text) }
	}
	ours := func(o *Options) { o.Key, o.KeyEnv, o.Retries = key, "MY_KEY", 2 }
	for _, c := range []struct {
		name   string
		reply  func(w http.ResponseWriter)
		change func(*Options)
		want   string
		tries  int
	}{
		{"wrong key", status(401, `{"error": {"message": "Incorrect API key `+key+`"}}`), ours,
			"the server refuses the key of MY_KEY (401 Unauthorized: Incorrect API key ***)", 1},
		{"no key", status(401, `{"error": {"message": "no key"}}`), func(o *Options) { o.KeyEnv = "MY_KEY" },
			"the server requires a key: set MY_KEY in the environment (401", 1},
		{"unknown model", status(404, `{"error": {"message": "The model does not exist."}}`), ours,
			`there is no model "tiny", or the base URL is not that`, 1},
		{"bad request", status(400, `{"error": {"message": "maximum context\nlength is 512 tokens"}}`), ours,
			"the server refuses the request (400 Bad Request: maximum context length is 512 tokens)", 1},
		{"bad request of a plain server", status(422, `{"detail": "no"}`), ours,
			`the server refuses the request (422 Unprocessable Entity: {"detail": "no"})`, 1},
		{"Azure's filter", status(400, `{"error": {"message": "The response was filtered", "code": "content_filter"}}`), ours,
			"the server's filter refuses the prompt (400 Bad Request: The response was filtered)", 1},
		{"Alibaba's filter", status(400, `{"error": {"message": "Input data may contain inappropriate content.", `+
			`"code": "data_inspection_failed"}}`), ours, "the server's filter refuses the prompt (400", 1},
		{"OpenRouter's filter", status(403, `{"error": {"message": "m requires moderation. Your input was flagged"}}`), ours,
			"the server's filter refuses the prompt (403", 1},
		{"Zhipu's filter", status(400, `{"error": {"code": "1301", "message": "不安全或敏感内容"}}`), ours,
			"the server's filter refuses the prompt (400", 1},
		{"Google's filter", status(200, `{"choices": [], "prompt_feedback": {"block_reason": "PROHIBITED_CONTENT"}}`), ours,
			"the server's filter refuses the prompt (the reply has no choices)", 1},
		{"too many requests", status(429, "slowly"), ours,
			"too many requests or a spent quota, tried 3 times (429 Too Many Requests: slowly)", 3},
		{"spent quota", status(429, `{"error": {"message": "You exceeded", "code": "insufficient_quota"}}`), ours,
			"spent quota, tried once (429", 1},
		{"always fails", status(500, "oops"), ours, "the server fails, tried 3 times (500 Internal Server Error: oops)",
			3},
		{"web page", status(200, "<html>hello</html>"), ours,
			"the reply is no chat completion (invalid character '<' looking for beginning of value): want the base URL",
			1},
		{"other JSON", status(200, `{"choices": 5}`), ours, "the reply is no chat completion", 1},
		{"no JSON at all", status(200, ""), ours, "the reply is no chat completion (EOF)", 1},
		{"no choices", status(200, `{}`), ours, "the reply has no choices", 1},
		{"breaks off each time", func(w http.ResponseWriter) { breakOff(w, "{") }, ours,
			"the reply is incomplete, tried 3 times", 3},
		{"never answers", func(w http.ResponseWriter) { time.Sleep(100 * time.Millisecond) },
			func(o *Options) { o.Timeout, o.Retries = 30*time.Millisecond, -1 },
			"no reply within 30ms, tried once", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var tries atomic.Int32
			r := serve(t, func(w http.ResponseWriter, _ asked, try int) { tries.Add(1); c.reply(w) }, c.change)
			got, err := r.Answer(t.Context(), []ask.Question{talk("")})
			if err == nil {
				t.Fatalf("no error: %v", got)
			}
			t.Log(err)
			if text := err.Error(); !strings.Contains(text, c.want) || !strings.HasPrefix(text, "http://127.0.0.1:") ||
				strings.Contains(text, "\n") || strings.Contains(text, key) {
				t.Errorf("%q, want one line with %q", text, c.want)
			}
			if int(tries.Load()) != c.tries {
				t.Errorf("%d tries, want %d", tries.Load(), c.tries)
			}
		})
	}
}

// TestRemoteAsk: there is one try, with its usage and what a caller must know to retry.
func TestRemoteAsk(t *testing.T) {
	later := func(name, value string, code int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.Header().Set(name, value); http.Error(w, "later", code) }
	}
	for name, c := range map[string]struct {
		reply func(w http.ResponseWriter)
		kind  Failure
		wait  time.Duration
	}{
		"wrong key":          {func(w http.ResponseWriter) { w.WriteHeader(401) }, Refused, 0},
		"spent quota":        {func(w http.ResponseWriter) { http.Error(w, "insufficient_quota", 429) }, Refused, 0},
		"429 with seconds":   {later("Retry-After", "3", 429), Busy, 3 * time.Second},
		"503 with more":      {later("Retry-After", "0.25", 503), Busy, time.Second / 4},
		"milliseconds":       {later("Retry-After-Ms", "20", 429), Busy, 20 * time.Millisecond},
		"a day":              {later("Retry-After", "86400", 429), Busy, longestWait},
		"a date long gone":   {later("Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT", 429), Busy, 0},
		"nonsense":           {later("Retry-After", "NaN", 500), Busy, 0},
		"dropped connection": {func(w http.ResponseWriter) { breakOff(w, "") }, Lost, 0},
		"reply that breaks":  {func(w http.ResponseWriter) { breakOff(w, `{"choices": [`) }, Lost, 0},
		"stall":              {func(http.ResponseWriter) { time.Sleep(400 * time.Millisecond) }, Lost, 0},
		"half a reply":       {func(w http.ResponseWriter) { io.WriteString(w, `{"choices": [`) }, Foreign, 0},
		"no choices":         {func(w http.ResponseWriter) { io.WriteString(w, `{}`) }, Foreign, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var asks atomic.Int32
			r := serve(t, func(w http.ResponseWriter, _ asked, _ int) { asks.Add(1); c.reply(w) },
				func(o *Options) { o.Retries, o.Timeout = -1, 200*time.Millisecond })
			_, _, err := r.Ask(t.Context(), talk(""), 4)
			var failed *Error
			if !errors.As(err, &failed) || failed.Kind != c.kind || failed.Wait != c.wait || asks.Load() != 1 {
				t.Errorf("%+v after %d requests, want kind %d, wait %v", err, asks.Load(), c.kind, c.wait)
			}
			if failed.Kind == Busy && !strings.Contains(err.Error(), "tried 5 times") {
				t.Error(err)
			}
		})
	}
	reasoned := strings.Replace(replyJSON("yes"), `"content"`, `"reasoning_content": "no?", "content"`, 1)
	r := serve(t, func(w http.ResponseWriter, _ asked, _ int) { io.WriteString(w, reasoned) })
	if a, u, err := r.Ask(t.Context(), talk(""), 0); err != nil || !reflect.DeepEqual(a, said("yes", rollout.EOS)) ||
		u != (ask.Usage{Requests: 1, PromptTokens: 3, CompletionTokens: 2}) || r.Usage() != u {
		t.Errorf("%v, %v, %v", a, u, err)
	}
}

func TestRemoteAskWithoutServer(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	r, err := New(Options{Server: Server{BaseURL: s.URL}, Model: "m", Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	var failed *Error
	if _, _, err := r.Ask(t.Context(), talk(""), 0); !errors.As(err, &failed) || failed.Kind != Unreachable {
		t.Errorf("%v, want it unreachable", err)
	}
	why := errors.New("enough")
	ctx, ended := context.WithCancelCause(t.Context())
	ended(why)
	if _, _, err := r.Ask(ctx, talk(""), 0); err != why {
		t.Errorf("%v, want the context's cause", err)
	}
}

func TestRemoteWithoutServer(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	r, err := New(Options{Server: Server{BaseURL: s.URL}, Model: "m", Retries: 1, Wait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Answer(t.Context(), []ask.Question{talk("")})
	if err == nil || !strings.Contains(err.Error(), "no server answers (dial tcp") ||
		!strings.HasSuffix(err.Error(), "tried 2 times") {
		t.Error(err)
	}
	patient, err := New(Options{Server: Server{BaseURL: s.URL}, Model: "m", Retries: 9, Wait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = patient.Answer(t.Context(), []ask.Question{talk("")}); err == nil ||
		!strings.HasSuffix(err.Error(), "tried 3 times") {
		t.Errorf("%v: want patience with servers only that were there once", err)
	}
}

// TestRemoteStops: an ended context stops everything at once, waits included, and the first error stops the other
// requests.
func TestRemoteStops(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	r := serve(t, func(w http.ResponseWriter, _ asked, _ int) {
		cancel(why)
		http.Error(w, "", 503)
	}, func(o *Options) { o.Wait = time.Hour })
	if _, err := r.Answer(ctx, []ask.Question{talk("a"), talk("b")}); err != why {
		t.Errorf("%v, want the context's cause", err)
	}
	var asks atomic.Int32
	r = serve(t, func(w http.ResponseWriter, _ asked, _ int) { asks.Add(1); w.WriteHeader(401) },
		func(o *Options) { o.Parallel = 2 })
	if _, err := r.Answer(t.Context(), make([]ask.Question, 100)); err == nil || asks.Load() > 10 {
		t.Errorf("%v after %d requests", err, asks.Load())
	}
}

// TestRemoteGrace: requests under way when the context ends may finish within the grace period; nothing more is
// sent, and waits end at once.
func TestRemoteGrace(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := func(o *Options) { o.Grace, o.Wait = time.Hour, time.Hour }
	r := serve(t, func(w http.ResponseWriter, _ asked, _ int) {
		cancel(why)
		<-ctx.Done()
		io.WriteString(w, replyJSON("late"))
	}, gone)
	answers, err := r.Answer(ctx, []ask.Question{talk("a")})
	if err != nil || answers[0][0].Text != "late" {
		t.Errorf("%v, %v: want the answer that was under way", answers, err)
	}
	if _, err := r.Answer(ctx, []ask.Question{talk("b")}); err != why || r.Usage().Requests != 1 {
		t.Errorf("%v after %d requests, want none after the end", err, r.Usage().Requests)
	}

	ctx, cancel = context.WithCancelCause(t.Context())
	var asks atomic.Int32
	r = serve(t, func(w http.ResponseWriter, _ asked, _ int) {
		asks.Add(1)
		cancel(why)
		http.Error(w, "", 503)
	}, gone)
	if _, err := r.Answer(ctx, []ask.Question{talk("a")}); err != why || asks.Load() != 1 {
		t.Errorf("%v after %d requests, want an end ahead of the next try", err, asks.Load())
	}

	ctx, cancel = context.WithCancelCause(t.Context())
	over := make(chan struct{})
	r = serve(t, func(http.ResponseWriter, asked, int) {
		cancel(why)
		<-over
	}, func(o *Options) { o.Grace = time.Millisecond })
	t.Cleanup(func() { close(over) }) // ahead of the server's end, which waits for it
	if _, err := r.Answer(ctx, []ask.Question{talk("a")}); err != why {
		t.Errorf("%v, want an end after the grace", err)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Model: "m"}, `base_url "": want one such as http://localhost:8000/v1`},
		{Options{Server: Server{BaseURL: "localhost:8000"}, Model: "m"}, `base_url "localhost:8000"`},
		{Options{Server: Server{BaseURL: "https://me:secret@host/v1"}, Model: "m"},
			`base_url "https://…@host/v1": want the URL of an OpenAI-compatible server, such as http://localhost:8000/v1, without a key`},
		{Options{Server: Server{BaseURL: "https://host/v1"}}, `model "": want the name of a model that the server has`},
		{Options{Server: Server{BaseURL: "https://host/v1", Parallel: -1}, Model: "m"}, "parallel -1"},
		{Options{Server: Server{BaseURL: "https://host/v1", Timeout: -1}, Model: "m"}, "timeout -1ns"},
	} {
		if _, err := New(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
