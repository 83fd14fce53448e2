package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sashabaranov/go-openai"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/secret"
	"github.com/posttrain/posttrain/internal/web"
	"github.com/posttrain/posttrain/rollout"
)

// Options name a server's model and say how it is asked.
type Options struct {
	Server   `yaml:",inline"`
	Model    string        `yaml:"model" want:"given" words:"the name of a model that the server has"`
	Continue string        `yaml:"continue" want:"|vllm"` // see [Served]
	Key      string        // secret, in no message; "": the value of KeyEnv, which may be empty
	Wait     time.Duration `yaml:"wait" want:">=0" zero:"1s"` // before the first retry, doubled each time
	Retries  int           // after 429, 5xx, timeouts and broken connections; 0: 5, negative: none
	Grace    time.Duration // how long to wait for a request under way when the context ends: it is paid for

	// Warn hears that a request failed and is sent again, at most once in a minute; may be nil.
	Warn func(format string, args ...any)
	// Tick is called with the number of questions answered, one call at a time; may be nil.
	Tick func(done int)
}

// Check names values out of range.
func (o Options) Check() []fault.Fault {
	o.KeyEnv = cmp.Or(o.KeyEnv, DefaultKeyEnv) // a program may name none
	faults := fault.Check(o)
	if o.BaseURL == "" {
		faults.Add("base_url", "", "want one such as http://localhost:8000/v1")
	}
	return append(faults, Served{Server: o.Server, Continue: o.Continue}.Check()...)
}

// longestWait bounds the wait between two tries, whatever a server says.
const longestWait = 2 * time.Minute

// Client is an [ask.Model] with a server that speaks OpenAI's protocol, such as vLLM, llama.cpp, Ollama or OpenAI
// itself.
type Client struct {
	options  Options
	key      secret.Key
	http     *http.Client
	patience *Patience

	mu    sync.Mutex
	usage ask.Usage

	checking  sync.Mutex
	continues bool // the server was seen to continue the beginning of an answer
}

// New checks the options. It sends nothing to the server.
func New(o Options) (*Client, error) {
	o.setDefaults()
	if err := fault.Err("", o.Check()); err != nil {
		return nil, err
	}
	tune := func(t *http.Transport) { t.MaxIdleConnsPerHost, t.MaxResponseHeaderBytes = o.Parallel, maxHeaderBytes }
	return &Client{options: o, key: secret.New(o.Key), http: web.New(web.Options{Timeout: o.Timeout, Tune: tune}),
		patience: &Patience{Retries: o.Retries, Wait: o.Wait, Longest: longestWait, Warn: o.Warn}}, nil
}

func (o *Options) setDefaults() {
	o.Key = cmp.Or(o.Key, os.Getenv(o.KeyEnv))
	o.Parallel = cmp.Or(o.Parallel, 8)
	o.Timeout = cmp.Or(o.Timeout, 5*time.Minute)
	o.Retries = max(cmp.Or(o.Retries, 5), 0)
	o.Wait = cmp.Or(o.Wait, time.Second)
	if o.Tick == nil {
		o.Tick = func(int) {}
	}
}

// Usage returns the counts so far.
func (r *Client) Usage() ask.Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.usage
}

// Answer asks for all answers, several at a time, until the first error.
func (r *Client) Answer(ctx context.Context, questions []ask.Question) ([][]ask.Answer, error) {
	prefilled := false
	for i, c := range questions {
		if err := r.check(c); err != nil {
			return nil, fmt.Errorf("conversation %d: %w", i, err)
		}
		prefilled = prefilled || c.Prefill != ""
	}
	if prefilled {
		if err := r.checkContinues(ctx); err != nil {
			return nil, err
		}
	}
	answers, done := make([][]ask.Answer, len(questions)), 0
	err := InParallel(ctx, r.options.Parallel, len(questions), func(ctx context.Context, i int) error {
		a, err := r.one(ctx, questions[i])
		if err != nil {
			return err
		}
		for k := range a {
			a[k].To = &questions[i]
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		answers[i], done = a, done+1
		r.options.Tick(done)
		return nil
	})
	if done < len(questions) {
		return nil, err
	}
	return answers, nil // even if the context has ended meanwhile
}

// check refuses what OpenAI's protocol cannot ask for.
func (r *Client) check(c ask.Question) error {
	switch {
	case c.Prefill != "" && r.options.Continue == "":
		return fmt.Errorf("this server does not continue the beginning of the answer (%q): want continue: vllm where "+
			"it does", c.Prefill)
	case c.TopK != 0:
		return fmt.Errorf("top_k %d: OpenAI's protocol has no top_k: want 0 (off)", c.TopK)
	case c.MinP != 0:
		return fmt.Errorf("min_p %v: OpenAI's protocol has no min_p: want 0 (off)", c.MinP)
	}
	return nil
}

// one answers one conversation. A server that returns too few answers is asked again with other seeds.
func (r *Client) one(ctx context.Context, c ask.Question) ([]ask.Answer, error) {
	want := max(c.Samples, 1)
	var answers []ask.Answer
	for len(answers) < want {
		response, err := r.persist(ctx, r.request(c, want-len(answers), len(answers)))
		if err != nil {
			return nil, err
		}
		for i, choice := range response.Choices {
			answers = append(answers, r.answerOf(choice, c.Prefill))
			if i == 0 {
				answers[len(answers)-1].Usage = usageOf(response)
			}
		}
	}
	return answers, nil
}

// Ask asks for one answer and returns its usage, for callers that retry by themselves (Retries negative). The answer
// omits reasoning that the server returns separately; where the template opens the think block, and the server returns
// none, the answer begins with <think>. tries is the number of tries before, for messages. An error is a
// [*Error], or the cause of an ended context.
func (r *Client) Ask(ctx context.Context, c ask.Question, tries int) (ask.Answer, ask.Usage, error) {
	if err := r.check(c); err != nil {
		return ask.Answer{}, ask.Usage{}, err
	}
	response, err := r.complete(ctx, r.request(c, 1, 0), tries)
	switch {
	case err != nil && ctx.Err() != nil:
		return ask.Answer{}, ask.Usage{}, context.Cause(ctx)
	case err != nil:
		return ask.Answer{}, ask.Usage{}, err
	}
	choice := response.Choices[0]
	inside := r.options.ThinkOpened && choice.thoughts() == ""
	choice.Message.Reasoning, choice.Message.Newer = "", ""
	a := r.answerOf(choice, c.Prefill)
	if inside && !strings.HasPrefix(strings.TrimSpace(a.Text), data.ThinkOpen) {
		a.Text = data.ThinkOpen + a.Text
	}
	return a, usageOf(response), nil
}

// usageOf is the work of one reply.
func usageOf(r reply) ask.Usage {
	return ask.Usage{Requests: 1, PromptTokens: r.Usage.Prompt, CompletionTokens: r.Usage.Completion}
}

// persist tries until there is a reply or another try does not help.
func (r *Client) persist(ctx context.Context, q request) (response reply, err error) {
	err = r.insist(ctx, func(tries int) error {
		response, err = r.complete(ctx, q, tries)
		return err
	})
	return response, err
}

// insist calls send until it succeeds or another try does not help; tries is the number of tries before.
func (r *Client) insist(ctx context.Context, send func(tries int) error) error {
	for tries := 0; ; tries++ {
		err := send(tries)
		failed, ok := errors.AsType[*Error](err)
		if !ok || failed.Kind == Foreign {
			return err
		}
		wait, again := r.patience.Again(failed, tries)
		if !again {
			return err
		}
		if err := Pause(ctx, wait); err != nil {
			return err
		}
	}
}

// complete sends one request, and counts its reply; tries is the number of tries before.
func (r *Client) complete(ctx context.Context, q request, tries int) (reply, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return reply{}, err
	}
	response, err := try{r, tries + 1}.send(ctx, body, q.N)
	if err != nil {
		return reply{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.usage.Requests++
	r.usage.PromptTokens += response.Usage.Prompt
	r.usage.CompletionTokens += response.Usage.Completion
	return response, nil
}

// A request sends a temperature of 0 too, which the library omits although servers have other defaults, and tools as
// they are.
type request struct {
	openai.ChatCompletionRequest
	Temperature *float64        `json:"temperature,omitempty"`
	Tools       json.RawMessage `json:"tools,omitempty"`
	continuation
}

// request asks for n answers when the conversation already has some.
func (r *Client) request(c ask.Question, n, after int) request {
	seed := int(rollout.Mix(c.Seed+uint64(after)) >> 33) // 31 bits: what every server takes
	q := request{ChatCompletionRequest: openai.ChatCompletionRequest{
		Model: r.options.Model, N: n, Seed: &seed, Stop: c.Stop, TopP: float32(c.TopP), // 0 is omitted
	}}
	if reasons(r.options.Model) {
		q.MaxCompletionTokens = c.MaxNew
	} else {
		q.MaxTokens = c.MaxNew
	}
	if c.Temperature != 0 || !reasons(r.options.Model) {
		q.Temperature = &c.Temperature
	}
	if c.TopLogprobs > 0 {
		q.LogProbs, q.TopLogProbs = true, c.TopLogprobs
	}
	if c.Schema != nil {
		q.ResponseFormat = &openai.ChatCompletionResponseFormat{
			Type:       openai.ChatCompletionResponseFormatTypeJSONSchema,
			JSONSchema: &openai.ChatCompletionResponseFormatJSONSchema{Name: "reply", Strict: true, Schema: c.Schema},
		}
	}
	for i, m := range c.Messages() {
		q.Messages = append(q.Messages, sent(m))
		if i == 0 && m.Tools != "" {
			q.Tools = json.RawMessage(m.Tools)
		}
	}
	if c.Prefill != "" {
		q.prefill(c.Prefill)
	}
	return q
}

// reasons recognises OpenAI's models that want max_completion_tokens where others want max_tokens. Their temperature is
// fixed.
func reasons(model string) bool {
	return slices.ContainsFunc([]string{"o1", "o3", "o4", "gpt-5", "gpt-6"},
		func(series string) bool { return strings.HasPrefix(model, series) })
}

// answerOf returns the answer of a choice without its beginning. Reasoning that the server returns separately is put
// back in think tags, the first of which the beginning may have; tool calls follow in the form of Hermes's models. Some
// servers echo the key: it is removed, because answers are stored.
func (r *Client) answerOf(c choice, beginning string) ask.Answer {
	a := ask.Answer{First: r.first(c)}
	a.Text, a.Reason = c.Message.Content, reasonOf(c.Finish)
	if think := c.thoughts(); think != "" {
		if a.Text != "" || len(c.Message.ToolCalls) > 0 || a.Reason != rollout.Length { // else they were cut
			think += data.ThinkClose
		}
		a.Text = think + a.Text
		if !strings.HasPrefix(beginning, data.ThinkOpen) {
			a.Text = data.ThinkOpen + a.Text
		}
	}
	a.Text = r.hideKey(a.Text + c.calls())
	return a
}

func (r *Client) hideKey(text string) string {
	if len(r.key) < secret.Shortest {
		return text
	}
	return r.key.Hide(text)
}

// first are the likeliest first tokens, where the server gives them.
func (r *Client) first(c choice) *ask.FirstToken {
	if c.Logprobs == nil || len(c.Logprobs.Content) == 0 || len(c.Logprobs.Content[0].Top) == 0 {
		return nil
	}
	all := map[string]float64{}
	for _, t := range c.Logprobs.Content[0].Top {
		if t.Logprob != nil {
			all[r.hideKey(t.Token)] = *t.Logprob
		}
	}
	return &ask.FirstToken{Logprobs: all}
}

// reasonOf is why an answer ended: rollout.EOS, or one of the protocol's other words. Any other word could be anything,
// even the key.
func reasonOf(f openai.FinishReason) string {
	switch f {
	case openai.FinishReasonStop:
		return rollout.EOS
	case "", openai.FinishReasonLength, openai.FinishReasonContentFilter, openai.FinishReasonToolCalls,
		openai.FinishReasonFunctionCall, openai.FinishReasonNull:
		return string(f)
	}
	return "other"
}
