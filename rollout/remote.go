package rollout

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/sashabaranov/go-openai"
)

// RemoteOptions say where a server is and how it is asked.
type RemoteOptions struct {
	BaseURL  string         // such as http://localhost:8000/v1
	Model    string         // as the server calls it
	Key      string         // secret: in no message; empty: none is sent
	KeyName  string         // the environment variable of the key, for messages
	Parallel int            // requests under way at a time; 0: 8
	Timeout  time.Duration  // of one try; 0: 5 minutes
	Retries  int            // tries after the first, after 429, 5xx, time-outs and broken connections; 0: 5, negative: none
	Grace    time.Duration  // how long a request under way is waited for when the context ends: it is paid for; 0: not at all
	Wait     time.Duration  // before the first retry, doubled each time, unless the server says; 0: 1 second
	Tick     func(done int) // nil: none; told how many conversations are answered, one call at a time
}

// The defaults of RemoteOptions, and the longest wait between two tries, whatever a server says.
const (
	defaultParallel = 8
	defaultTimeout  = 5 * time.Minute
	defaultRetries  = 5
	defaultWait     = time.Second
	longestWait     = 2 * time.Minute
)

// Usage is what a server was asked for.
type Usage struct {
	Requests         int `json:"requests"` // answered ones
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

// NewRemote checks the options. It asks the server nothing.
func NewRemote(o RemoteOptions) (*Remote, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.settle()
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

func (o *RemoteOptions) settle() {
	if o.Parallel == 0 {
		o.Parallel = defaultParallel
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Retries == 0 {
		o.Retries = defaultRetries
	}
	o.Retries = max(o.Retries, 0)
	if o.Wait == 0 {
		o.Wait = defaultWait
	}
	if o.Tick == nil {
		o.Tick = func(int) {}
	}
}

// Usage is what the server was asked for so far.
func (r *Remote) Usage() Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.usage
}

// Answer asks for all answers, several at a time. The first error ends it.
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
					continue // drains what was handed out
				}
				r.mu.Lock()
				answers[i], done = a, done+1
				r.options.Tick(done)
				r.mu.Unlock()
			}
		})
	}
	hand(inner, places, len(conversations))
	wg.Wait()
	switch {
	case done == len(conversations): // the last of them may have come after the end
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

// hand gives out the places 0 to n-1, until the context ends.
func hand(ctx context.Context, places chan<- int, n int) {
	defer close(places)
	for i := range n {
		select {
		case places <- i:
		case <-ctx.Done():
			return
		}
	}
}

// one answers one conversation. A server that gives fewer answers than it is asked for is asked again, with other seeds.
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

// Ask is for callers that wait and try again by themselves, with Retries negative: it asks for one answer and says what
// it took. The answer is without the reasoning that a server keeps beside it. Tries were made before, for messages. An
// error is a [*RemoteError], or the cause of an ended context.
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

// complete gets a reply that has choices, and counts it. Tries were made before.
func (r *Remote) complete(ctx context.Context, q openai.ChatCompletionRequest, tries int) (openai.ChatCompletionResponse, error) {
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

// request asks for n answers after the first so many.
func (r *Remote) request(c Conversation, n, after int) openai.ChatCompletionRequest {
	seed := int(mix(c.Seed+uint64(after)) >> 33) // 31 bits: what every server takes
	q := openai.ChatCompletionRequest{
		Model: r.options.Model, N: n, Seed: &seed, Stop: c.Stop,
		Temperature: float32(c.Temperature), TopP: float32(c.TopP), // a 0 is left out; the retrier puts the temperature in again
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

// reasons tells OpenAI's own models that take max_completion_tokens and refuse max_tokens, which everybody else takes.
// Their temperature is fixed.
func reasons(model string) bool {
	for _, series := range []string{"o1", "o3", "o4", "gpt-5", "gpt-6"} {
		if strings.HasPrefix(model, series) {
			return true
		}
	}
	return false
}

// shortestSecret is how long a key must be to be one: servers that want none are often given a word such as EMPTY.
const shortestSecret = 16

// answerOf takes an answer out of a reply. Servers that cut the reasoning out of the text give it beside: it is put
// back, in think tags. Some say back what they are sent, key and all: answers are stored, so it is taken out.
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
