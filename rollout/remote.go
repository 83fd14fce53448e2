package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/sashabaranov/go-openai"
)

// RemoteOptions name a server and say how it is asked.
type RemoteOptions struct {
	BaseURL  string        // such as http://localhost:8000/v1
	Model    string        // as the server calls it
	Key      string        // secret, in no message; may be empty
	KeyName  string        // environment variable of the key, for messages
	Parallel int           // requests under way at a time; 0: 8
	Timeout  time.Duration // of one try; 0: 5 minutes
	Wait     time.Duration // before the first retry, doubled each time, unless the server says; 0: 1 second

	// Retries after 429, 5xx, timeouts and broken connections; 0: 5, negative: none.
	Retries int
	// Grace is how long to wait for a request under way when the context ends: it is paid for.
	Grace time.Duration
	// Tick is called with the number of conversations answered, one call at a time; may be nil.
	Tick func(done int)
}

// longestWait bounds the wait between two tries, whatever a server says.
const longestWait = 2 * time.Minute

// Usage counts a server's work.
type Usage struct {
	Requests         int `json:"requests"` // answered
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
}

// Remote is a Chat with a server that speaks OpenAI's protocol, such as vLLM, llama.cpp, Ollama or OpenAI itself.
type Remote struct {
	options RemoteOptions
	client  *openai.Client
	mu      sync.Mutex
	usage   Usage
}

// NewRemote checks the options. It sends nothing to the server.
func NewRemote(o RemoteOptions) (*Remote, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.setDefaults()
	c := openai.DefaultConfig(o.Key)
	c.BaseURL = strings.TrimRight(o.BaseURL, "/")
	c.HTTPClient = newRetrier(o)
	return &Remote{options: o, client: openai.NewClientWithConfig(c)}, nil
}

func (o *RemoteOptions) check() error {
	u, err := url.Parse(o.BaseURL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("base URL %q: want one such as http://localhost:8000/v1", o.BaseURL)
	case u.User != nil:
		return fmt.Errorf("base URL %s: a key does not belong there: set it in the environment", u.Redacted())
	case o.Model == "":
		return fmt.Errorf("no model is named: want one that %s serves", o.BaseURL)
	case o.Parallel < 0:
		return fmt.Errorf("%d parallel requests: want 1 or more", o.Parallel)
	case o.Timeout < 0:
		return fmt.Errorf("time-out %v: want more than 0", o.Timeout)
	}
	return nil
}

func (o *RemoteOptions) setDefaults() {
	o.Parallel = cmp.Or(o.Parallel, 8)
	o.Timeout = cmp.Or(o.Timeout, 5*time.Minute)
	o.Retries = max(cmp.Or(o.Retries, 5), 0)
	o.Wait = cmp.Or(o.Wait, time.Second)
	if o.Tick == nil {
		o.Tick = func(int) {}
	}
}

// Usage returns the counts so far.
func (r *Remote) Usage() Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.usage
}

// Answer asks for all answers, several at a time, until the first error.
func (r *Remote) Answer(ctx context.Context, conversations []Conversation) ([][]Answer, error) {
	for i, c := range conversations {
		if err := c.checkRemote(); err != nil {
			return nil, fmt.Errorf("conversation %d: %w", i, err)
		}
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answers := make([][]Answer, len(conversations))
	places := make(chan int)
	var wg sync.WaitGroup
	done := 0
	for range min(r.options.Parallel, len(conversations)) {
		wg.Go(func() {
			for i := range places {
				a, err := r.one(inner, conversations[i])
				if err != nil {
					cancel(err)
					continue // until no index is left
				}
				r.mu.Lock()
				answers[i], done = a, done+1
				r.options.Tick(done)
				r.mu.Unlock()
			}
		})
	}
	sendIndices(inner, places, len(conversations))
	wg.Wait()
	switch {
	case done == len(conversations): // even if the context has ended meanwhile
		return answers, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, context.Cause(inner)
}

// checkRemote refuses what OpenAI's protocol cannot ask for.
func (c Conversation) checkRemote() error {
	switch {
	case c.Prefill != "":
		return fmt.Errorf("a server takes no beginning of the answer (%q)", c.Prefill)
	case c.TopK != 0:
		return fmt.Errorf("top_k %d: OpenAI's protocol has no top_k: want 0 (off)", c.TopK)
	case c.MinP != 0:
		return fmt.Errorf("min_p %v: OpenAI's protocol has no min_p: want 0 (off)", c.MinP)
	}
	return nil
}

// sendIndices sends 0 to n-1 until the context ends.
func sendIndices(ctx context.Context, places chan<- int, n int) {
	defer close(places)
	for i := range n {
		select {
		case places <- i:
		case <-ctx.Done():
			return
		}
	}
}

// one answers one conversation. A server that returns too few answers is asked again with other seeds.
func (r *Remote) one(ctx context.Context, c Conversation) ([]Answer, error) {
	want := max(c.Samples, 1)
	var answers []Answer
	for len(answers) < want {
		response, err := r.complete(ctx, r.request(c, want-len(answers), len(answers)), 0)
		if err != nil {
			return nil, err
		}
		for _, choice := range response.Choices[:min(want-len(answers), len(response.Choices))] {
			answers = append(answers, r.answerOf(choice))
		}
	}
	return answers, nil
}

// Ask asks for one answer and returns its usage, for callers that retry by themselves (Retries negative). The answer
// omits reasoning that the server returns separately. tries is the number of tries before, for messages. An error is
// a [*RemoteError], or the cause of an ended context.
func (r *Remote) Ask(ctx context.Context, c Conversation, tries int) (Answer, Usage, error) {
	if err := c.checkRemote(); err != nil {
		return Answer{}, Usage{}, err
	}
	response, err := r.complete(ctx, r.request(c, 1, 0), tries)
	switch {
	case err != nil && ctx.Err() != nil:
		return Answer{}, Usage{}, context.Cause(ctx)
	case err != nil:
		return Answer{}, Usage{}, err
	}
	u, choice := response.Usage, response.Choices[0]
	choice.Message.ReasoningContent = ""
	return r.answerOf(choice), Usage{1, u.PromptTokens, u.CompletionTokens}, nil
}

// complete gets and counts a reply that has choices; tries is the number of tries before.
func (r *Remote) complete(ctx context.Context, q openai.ChatCompletionRequest, tries int) (
	openai.ChatCompletionResponse, error) {
	var sent sending
	response, err := r.client.CreateChatCompletion(context.WithValue(ctx, sendingKey{}, &sent), q)
	if err == nil && len(response.Choices) == 0 {
		err = errors.New("the reply has no choices")
	}
	if err != nil {
		sent.tries += tries
		return response, r.explain(err, sent)
	}
	r.count(response.Usage)
	return response, nil
}

func (r *Remote) count(u openai.Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.usage.Requests++
	r.usage.PromptTokens += u.PromptTokens
	r.usage.CompletionTokens += u.CompletionTokens
}

// request asks for n answers when the conversation already has some.
func (r *Remote) request(c Conversation, n, after int) openai.ChatCompletionRequest {
	seed := int(mix(c.Seed+uint64(after)) >> 33) // 31 bits: what every server takes
	q := openai.ChatCompletionRequest{
		Model: r.options.Model, N: n, Seed: &seed, Stop: c.Stop,
		Temperature: float32(c.Temperature), TopP: float32(c.TopP), // 0 is omitted; see withTemperature
	}
	if reasons(r.options.Model) {
		q.MaxCompletionTokens = c.MaxNew
	} else {
		q.MaxTokens = c.MaxNew
	}
	for _, m := range c.Messages {
		q.Messages = append(q.Messages, openai.ChatCompletionMessage{Role: m.Role, Content: m.Content})
	}
	return q
}

// reasons recognises OpenAI's models that want max_completion_tokens where others want max_tokens. Their temperature is
// fixed.
func reasons(model string) bool {
	for _, series := range []string{"o1", "o3", "o4", "gpt-5", "gpt-6"} {
		if strings.HasPrefix(model, series) {
			return true
		}
	}
	return false
}

// shortestSecret is the least length of a real key: for servers without keys users often set a word such as EMPTY.
const shortestSecret = 16

// answerOf returns a choice's answer. Reasoning that the server returns separately is put back in think tags. Some
// servers echo the key: it is removed, because answers are stored.
func (r *Remote) answerOf(c openai.ChatCompletionChoice) Answer {
	a := Answer{Text: c.Message.Content, Reason: string(c.FinishReason)}
	if think := c.Message.ReasoningContent; think != "" {
		a.Text = "<think>" + think + "</think>" + a.Text
	}
	if c.FinishReason == openai.FinishReasonStop {
		a.Reason = EOS
	}
	if key := r.options.Key; len(key) >= shortestSecret {
		a.Text = strings.ReplaceAll(a.Text, key, "***")
	}
	return a
}
