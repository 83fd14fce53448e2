package metered

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/rollout/remote"

	"github.com/posttrain/posttrain/data"
)

// open makes a client of a test's server that waits a millisecond between tries.
func open(t testing.TB, s *testkit.JudgeServer, change ...func(*Options)) *Client {
	t.Helper()
	o := Options{Name: "judge", Server: remote.Server{BaseURL: s.URL}, Model: "tiny", Wait: time.Millisecond, Retries: 8}
	for _, f := range change {
		f(&o)
	}
	c := expect.Must(Open(o))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// The questions of PrivacyLens's 493 cases.
const leakage, helpfulness = 1487, 493

func question(i int) string {
	if i < leakage {
		return fmt.Sprintf("Does action %d leak item %d?\nAnswer:", i/3, i)
	}
	return fmt.Sprintf("How helpful is action %d?\nAnswer:", i-leakage)
}

// verdict returns a different reply for each question.
func verdict(prompt string) string { return "Answer: Yes, to <" + prompt + ">" }

// judgeAll asks all questions and checks every reply.
func judgeAll(ctx context.Context, c *Client, n int, each func(i int)) error {
	return remote.InParallel(ctx, c.options.Parallel, n, func(ctx context.Context, i int) error {
		reply, err := c.Ask(ctx, question(i))
		if err == nil && reply != verdict(question(i)) {
			err = fmt.Errorf("question %d: reply %q", i, reply)
		}
		each(i)
		return err
	})
}

// TestFaults: a tenth of the requests fail in all ways; all questions are answered, and none is asked after its
// answer.
func TestFaults(t *testing.T) {
	const n = leakage + helpfulness
	var done sync.Map
	s := testkit.StartJudge(t, testkit.JudgeOptions{Reply: verdict, Delay: 2 * time.Millisecond, Faults: 0.1,
		Stall: time.Minute, Seed: 1, Watch: func(prompt string) {
			if _, ok := done.Load(prompt); ok {
				t.Errorf("asked again: %q", prompt)
			}
		}})
	path := filepath.Join(t.TempDir(), "judge.jsonl")
	options := func(o *Options) { o.Cache, o.Parallel, o.Timeout = path, 32, stall }
	c := open(t, s, options)
	expect.OK(t, judgeAll(t.Context(), c, n, func(i int) { done.Store(question(i), true) }))
	requests, together := s.Requests()
	stats, faults := c.Stats(), s.Faults()
	t.Logf("%d requests, %d together, %+v, faults %v", requests, together, stats, faults)
	failed := 0
	for _, kind := range testkit.JudgeFaults() {
		if failed += faults[kind]; faults[kind] == 0 {
			t.Errorf("no %s", kind)
		}
	}
	if failed < n/20 || stats.Replies != n || stats.Requests != requests || stats.Retried != requests-n ||
		together > 32 {
		t.Errorf("%d faults, %d requests, %d together, %+v", failed, requests, together, stats)
	}
	expect.OK(t, c.Close())
	again := open(t, s, options)
	expect.OK(t, judgeAll(t.Context(), again, n, func(int) {}))
	if stats := again.Stats(); stats != (Stats{Replies: n, Cached: n}) {
		t.Errorf("from the cache: %+v", stats)
	}
}

// TestSharesEqualQuestions: many callers share one request; another parameter is another question.
func TestSharesEqualQuestions(t *testing.T) {
	s := testkit.StartJudge(t, testkit.JudgeOptions{Delay: 50 * time.Millisecond})
	path := filepath.Join(t.TempDir(), "judge.jsonl")
	c := open(t, s, func(o *Options) { o.Cache = path })
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if reply, err := c.Ask(t.Context(), "same"); err != nil || reply != "Answer: Yes" {
				t.Errorf("%q, %v", reply, err)
			}
		})
	}
	wg.Wait()
	if n, _ := s.Requests(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	c.Close()
	for want, change := range []func(o *Options){func(o *Options) {}, func(o *Options) { o.Model = "other" },
		func(o *Options) { o.MaxNew = 5 }, func(o *Options) { o.Temperature = 0.5 }} {
		c := open(t, s, func(o *Options) { o.Cache = path }, change)
		if _, err := c.Ask(t.Context(), "same"); err != nil {
			t.Error(err)
		}
		c.Close()
		if n, _ := s.Requests(); n != 1+want {
			t.Errorf("%d requests, want %d", n, 1+want)
		}
	}
	tools := open(t, s, func(o *Options) { o.Cache = path }) // which are part of a question
	if _, err := tools.Chat(t.Context(), []data.Message{{Role: "user", Content: "same", Tools: "[]"}}); err != nil {
		t.Error(err)
	}
	if n, _ := s.Requests(); n != 5 {
		t.Errorf("%d requests, want 5", n)
	}
}

// TestAskerLeaves: a caller that leaves gets the cause at once; the reply already paid for is kept, and nothing is
// sent again.
func TestAskerLeaves(t *testing.T) {
	arrived := make(chan string, 9)
	s := testkit.StartJudge(t, testkit.JudgeOptions{Delay: time.Second, Watch: func(p string) { arrived <- p }})
	c := open(t, s, func(o *Options) { o.Cache = filepath.Join(t.TempDir(), "judge.jsonl") })
	why := errors.New("enough")
	ctx, leave := context.WithCancelCause(t.Context())
	go func() { <-arrived; leave(why) }()
	begin := time.Now()
	if _, err := c.Ask(ctx, "q"); err != why || time.Since(begin) > 900*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
	if reply, err := c.Ask(t.Context(), "q"); err != nil || reply != "Answer: Yes" {
		t.Errorf("%q, %v", reply, err)
	}
	if n, _ := s.Requests(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// TestCloseKeepsWhatIsPaid: the request under way ends in the cache, or is cancelled without grace.
func TestCloseKeepsWhatIsPaid(t *testing.T) {
	for _, grace := range []time.Duration{0, -1} {
		arrived := make(chan string, 9)
		s := testkit.StartJudge(t, testkit.JudgeOptions{Delay: 100 * time.Millisecond,
			Watch: func(p string) { arrived <- p }})
		path := filepath.Join(t.TempDir(), "judge.jsonl")
		c := open(t, s, func(o *Options) { o.Cache, o.Grace = path, grace })
		asked := make(chan error)
		go func() { _, err := c.Ask(t.Context(), "q"); asked <- err }()
		<-arrived
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Error(err)
		}
		if err := <-asked; grace < 0 && err != errClosed || grace == 0 && err != nil {
			t.Errorf("grace %v: the asker got %v", grace, err)
		}
		if _, err := c.Ask(t.Context(), "q"); err != errClosed {
			t.Errorf("closed: %v", err)
		}
		b, err := os.ReadFile(path)
		if want := map[bool]int{true: 2, false: 1}[grace == 0]; err != nil || bytes.Count(b, []byte("\n")) != want {
			t.Errorf("grace %v: %s, want %d lines", grace, b, want)
		}
	}
}

// TestKeyIsNowhere: the key stays hidden if a server repeats it in replies and errors.
func TestKeyIsNowhere(t *testing.T) {
	const key = "sk-very-secret-0123456789"
	t.Setenv("JUDGE_KEY", key)
	s := testkit.StartJudge(t, testkit.JudgeOptions{Key: key, Reply: func(string) string { return "Bearer " + key }})
	path := filepath.Join(t.TempDir(), "judge.jsonl")
	c := open(t, s, func(o *Options) { o.Cache, o.KeyEnv = path, "JUDGE_KEY" })
	reply, err := c.Ask(t.Context(), "q")
	if err != nil || reply != "Bearer ***" {
		t.Errorf("%q, %v", reply, err)
	}
	if b, err := os.ReadFile(path); err != nil || bytes.Contains(b, []byte(key)) || !bytes.Contains(b, []byte("***")) {
		t.Errorf("%s, %v", b, err)
	}
	checkCacheHasNoKey(t, key)
	for _, code := range []int{400, 401, 429, 500} {
		echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
			http.Error(w, r.Header.Get("Authorization"), code)
		}))
		defer echo.Close()
		c := open(t, &testkit.JudgeServer{URL: echo.URL}, func(o *Options) { o.KeyEnv, o.Retries = "JUDGE_KEY", 1 })
		if _, err := c.Ask(t.Context(), "q"); err == nil || strings.Contains(err.Error(), key) ||
			!strings.Contains(err.Error(), "***") {
			t.Errorf("%d: %v", code, err)
		}
	}
}

// checkCacheHasNoKey: a server puts the key into the reason and, with a line end in it, into the reply and an error.
func checkCacheHasNoKey(t *testing.T, key string) {
	t.Helper()
	broken, tries := key[:12]+"\n"+key[12:], 0
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if tries++; tries == 1 {
			http.Error(w, broken, 500)
			return
		}
		json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"finish_reason": key,
			"message": map[string]any{"content": broken}}}})
	}))
	defer echo.Close()
	var warnings []string
	path := filepath.Join(t.TempDir(), "judge.jsonl")
	c := open(t, &testkit.JudgeServer{URL: echo.URL}, func(o *Options) {
		o.KeyEnv, o.Cache = "JUDGE_KEY", path
		o.Warn = func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	})
	reply, err := c.Ask(t.Context(), "q")
	b, _ := os.ReadFile(path)
	all := fmt.Sprint(reply, err, warnings, string(b))
	if err != nil || len(warnings) != 1 || !strings.HasPrefix(warnings[0], "judge: http://127.0.0.1:") ||
		!strings.Contains(warnings[0], "tries left: 8") || strings.Contains(all, key[:12]) ||
		strings.Contains(all, key[12:]) {
		t.Errorf("%q, %v, warnings %q, cache %s", reply, err, warnings, b)
	}
}

// TestErrors: each error is one clear line after the expected number of requests.
func TestErrors(t *testing.T) {
	status := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, code) }
	}
	for _, c := range []struct {
		name  string
		reply http.HandlerFunc
		want  string
		asked int
	}{
		{"no key", status(401, `{"error": {"message": "You didn't provide an API key."}}`),
			"the server requires a key: set JUDGE_KEY in the environment (401", 1},
		{"wrong base URL: another service", status(200, "<html>hello</html>"),
			"the reply is no chat completion (invalid character '<' looking for beginning of value): want the base " +
				"URL of an OpenAI-compatible server", 3},
		{"wrong base URL: wrong path", status(404, "404 page not found"),
			"the base URL is not that of an OpenAI-compatible server, which usually ends in /v1 (404", 1},
		{"prompt too long", status(400, `{"error": {"message": "maximum context length is 512 tokens"}}`),
			"the server refuses the request (400", 1},
		{"spent quota", status(429, `{"error": {"message": "You exceeded", "code": "insufficient_quota"}}`),
			"spent quota, tried once", 1},
		{"always fails", status(500, "oops"), "the server fails, tried 4 times (500", 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("JUDGE_KEY", "")
			var asked atomic.Int32
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
				r *http.Request) {
				asked.Add(1)
				c.reply(w, r)
			}))
			defer s.Close()
			client := open(t, &testkit.JudgeServer{URL: s.URL},
				func(o *Options) { o.KeyEnv, o.Retries = "JUDGE_KEY", 3 })
			_, err := client.Ask(t.Context(), "q")
			if err == nil || !strings.HasPrefix(err.Error(), "judge: http://127.0.0.1:") ||
				!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want one line with %q", err, c.want)
			}
			if int(asked.Load()) != c.asked || client.Stats().Failed != 1 {
				t.Errorf("%d requests, want %d; %+v", asked.Load(), c.asked, client.Stats())
			}
		})
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	c := open(t, &testkit.JudgeServer{URL: gone.URL})
	if _, err := c.Ask(t.Context(), "q"); err == nil || !strings.Contains(err.Error(), "no server answers (dial tcp") ||
		!strings.HasSuffix(err.Error(), "tried 3 times") {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		change func(o *Options)
		want   string
	}{
		{func(o *Options) { o.BaseURL = "localhost:8000" },
			`judge: base_url "localhost:8000": want the URL of an OpenAI-compatible server, such as http://localhost:8000/v1`},
		{func(o *Options) { o.Model = "" }, `judge: model "": want the name of a model`},
		{func(o *Options) { o.BaseURL = "https://me:secret@host/v1" },
			`judge: base_url "https://…@host/v1": want the URL of an OpenAI-compatible server, such as http://localhost:8000/v1, without a key`},
		{func(o *Options) { o.Parallel = -1 }, "judge: parallel -1: want a whole number, 1 or more"},
		{func(o *Options) { o.MaxRequests = -1 }, "judge: max_requests -1: want a whole number, 0 (no limit) or more"},
		{func(o *Options) { o.Timeout = -1 }, "judge: timeout -1ns"},
		{func(o *Options) { o.Wait = -1 }, "judge: wait -1ns"},
		{func(o *Options) { o.MaxCost = 3 }, "judge: max_cost 3: want the prices"},
	} {
		o := Options{Name: "judge", Server: remote.Server{BaseURL: "https://host/v1"}, Model: "m"}
		c.change(&o)
		if _, err := Open(o); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// TestTopLogprobs: the likeliest first tokens are reported where the server gives them, and kept in the cache. What a
// question is depends on all messages, and on whether first tokens are asked for.
func TestTopLogprobs(t *testing.T) {
	s := testkit.StartJudge(t, testkit.JudgeOptions{Top: func(string) map[string]float64 {
		return map[string]float64{"m": -0.25, "M": -1.5}
	}})
	path := filepath.Join(t.TempDir(), "replies")
	talk := []data.Message{{Role: "system", Content: "judge"}, {Role: "user", Content: "which?"}}
	for _, top := range []int{5, 5, 0} {
		c := open(t, s, func(o *Options) { o.Cache, o.TopLogprobs = path, top })
		for range 2 {
			got, err := c.Chat(t.Context(), talk)
			if err != nil || got.Text != "Answer: Yes" || (got.Top != nil) != (top > 0) ||
				top > 0 && got.Top["m"] != -0.25 {
				t.Errorf("%+v, %v", got, err)
			}
		}
		expect.OK(t, c.Close())
	}
	if all, _ := s.Requests(); all != 2 {
		t.Errorf("%d requests, want one with first tokens and one without", all)
	}
	c := newClient(Options{Model: "tiny"})
	if one := c.name(chat{messages: talk[1:]}); one == c.name(chat{messages: talk}) ||
		one != sha256.Sum256([]byte(`["tiny","which?",0,0]`)) {
		t.Error("the names of questions: a single user message by its text, others by all messages")
	}
}
