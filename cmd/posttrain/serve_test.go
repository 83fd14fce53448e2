package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/sashabaranov/go-openai"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// locked is a stream that several goroutines write.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// served is posttrain serve at work.
type served struct {
	url  string
	name string
	err  *locked
	stop func() (code int) // as Ctrl-C does
}

var serving = regexp.MustCompile(`^serving (\S+) on (http://127\.0\.0\.1:\d+/v1)\n$`)

// serveTiny serves the working directory's model.
func serveTiny(t *testing.T, more ...string) served {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	out, in := io.Pipe()
	s := served{err: &locked{}}
	code := make(chan int, 1)
	args := append([]string{"serve", "--model", "model", "--backend", "go", "--addr", "127.0.0.1:0"}, more...)
	go func() {
		defer in.Close()
		code <- execute(ctx, streams{in: strings.NewReader(""), out: in, err: s.err}, args)
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	m := serving.FindStringSubmatch(line)
	if err != nil || m == nil {
		t.Fatalf("%q, %v: %s", line, err, s.err)
	}
	s.name, s.url = m[1], m[2]
	s.stop = func() int {
		cancel()
		return <-code
	}
	return s
}

// TestServe: a model is served to who has the token, as a chat and as what eval asks, and Ctrl-C ends it well.
func TestServe(t *testing.T) {
	work(t, "qwen2-newer")
	t.Setenv("POSTTRAIN_SERVE_TOKEN", "secret-word")
	s := serveTiny(t, "--max-new-tokens", "4")
	c := openai.DefaultConfig("secret-word")
	c.BaseURL = s.url
	q := openai.ChatCompletionRequest{Model: "model", Messages: []openai.ChatCompletionMessage{{Role: "user",
		Content: "Where is key 3?"}}}
	got, err := openai.NewClientWithConfig(c).CreateChatCompletion(t.Context(), q)
	if err != nil || s.name != "model" || got.Usage.CompletionTokens == 0 || got.Usage.CompletionTokens > 4 {
		t.Errorf("%+v, %v", got, err)
	}
	o := must(t, "eval", "ci", "--base-url", s.url, "--api-model", "model", "--api-key-env", "POSTTRAIN_SERVE_TOKEN",
		"--n", "2", "--max-new-tokens", "3")
	if !strings.Contains(o.out, "0/2") {
		t.Errorf("%s", o.out)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d: %s", code, s.err)
	}
	log := s.err.String()
	if strings.Count(log, " 200 in ") != 3 || strings.Contains(log, "key 3") || strings.Contains(log, "secret") {
		t.Errorf("the log: %s", log)
	}
}

// TestServeConfig: the name comes from a file, and a flag wins over it.
func TestServeConfig(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "s.yaml", "command: serve\nname: judge\nquiet: false\nmax_queue: 3\n")
	s := serveTiny(t, "--config", "s.yaml", "--quiet")
	c := openai.DefaultConfig("")
	c.BaseURL = s.url
	list, err := openai.NewClientWithConfig(c).ListModels(t.Context())
	if err != nil || len(list.Models) != 1 || list.Models[0].ID != "judge" {
		t.Errorf("%+v, %v", list, err)
	}
	if code := s.stop(); code != 0 || s.err.String() != "" {
		t.Errorf("exit code %d, %q", code, s.err)
	}
}

// TestServeBase: a model without a chat template completes texts and refuses chats.
func TestServeBase(t *testing.T) {
	work(t, "qwen2-newer")
	remove(t, "model/chat_template.jinja")
	s := serveTiny(t, "--max-new-tokens", "4")
	c := openai.DefaultConfig("none")
	c.BaseURL = s.url
	client := openai.NewClientWithConfig(c)
	got, err := client.CreateCompletion(t.Context(), openai.CompletionRequest{Model: "model", Prompt: "Where is key 3?"})
	if err != nil || got.Usage.CompletionTokens == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = client.CreateChatCompletion(t.Context(), openai.ChatCompletionRequest{Model: "model",
		Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "Where is key 3?"}}})
	expect.Error(t, err, "status code: 400", "no chat template: want chat_template.jinja")
	if code, log := s.stop(), s.err.String(); code != 0 ||
		!strings.Contains(log, "model has no chat template: chats are refused") {
		t.Errorf("exit code %d: %s", code, log)
	}
}

// TestServeRefusals: what cannot be served is refused in one line.
func TestServeRefusals(t *testing.T) {
	work(t, "qwen2-newer")
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, f := range []faultCase{
		{name: "no port", args: []string{"--addr", "localhost"}, code: 2,
			says: []string{"--addr", `addr "localhost"`, "HOST:PORT"}},
		{name: "busy port", args: []string{"--addr", busy.Addr().String()}, code: 1,
			says: []string{"addr " + busy.Addr().String(), "address already in use"}},
		{name: "odd token", make: func(t *testing.T) { t.Setenv("POSTTRAIN_SERVE_TOKEN", "two words") }, code: 1,
			says: []string{"POSTTRAIN_SERVE_TOKEN", "one word"}},
		{name: "no line", args: []string{"--max-queue", "0"}, code: 2,
			says: []string{"--max-queue", "max_queue 0", "1 or more"}},
		{name: "no tokens", args: []string{"--max-request-tokens", "0"}, code: 2,
			says: []string{"--max-request-tokens", "max_request_tokens 0", "1 or more"}},
		{name: "no batch", args: []string{"--max-batch", "1000"}, code: 2,
			says: []string{"--max-batch", "max_batch 1000", "1 or more and at most 128"}},
		{name: "no grace", args: []string{"--grace", "-1s"}, code: 2,
			says: []string{"--grace", `grace "-1s"`, "above 0"}},
		{name: "no name", args: []string{"--name", ""}, code: 2, says: []string{"--name is empty"}},
	} {
		t.Run(f.name, func(t *testing.T) {
			if f.make != nil {
				f.make(t)
			}
			args := append([]string{"serve", "--model", "model", "--backend", "go", "--addr", "127.0.0.1:0"}, f.args...)
			checkRefusal(t, cli(t, args...), f)
		})
	}
}
