package metered

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/remote"
)

// Client asks a server's model. It is safe for concurrent use.
type Client struct {
	options  Options
	send     func(ctx context.Context, q chat, tries int) (ask.Answer, ask.Usage, error)
	cache    *cache // nil: replies are not kept
	ledger   *ledger
	requests *rate.Limiter
	places   chan struct{} // holds one element per request under way
	patience *remote.Patience

	open  context.Context // ends with Close: nothing more is sent
	end   context.CancelCauseFunc
	alive context.Context // of requests under way
	kill  context.CancelCauseFunc

	mu      sync.Mutex
	flights map[name]*flight
	flying  sync.WaitGroup
	closing func() error
}

// Reply is what a server answers.
type Reply struct {
	Text string
	Top  map[string]float64 // log-probabilities of the likeliest first tokens; nil: not asked for, or not given
	Cut  bool               // it met its limit of tokens
}

// chat is what a reply is asked for.
type chat struct {
	messages []data.Message
	schema   json.RawMessage // of the reply; nil: free text
	again    int             // how often it was asked before, where each reply counts
}

// flight gets the reply to one question, for all who ask it meanwhile.
type flight struct {
	done  chan struct{} // closed when reply and err are set
	reply Reply
	err   error
}

// name identifies a question in the cache: the SHA-256 of model, prompt and parameters.
type name [sha256.Size]byte

// errClosed is the error of calls to a closed client.
var errClosed = errors.New("the client is closed")

// Open checks the options and opens the cache. It sends nothing to the server.
func Open(o Options) (*Client, error) {
	o.setDefaults()
	if err := fault.Err("", o.faults()); err != nil {
		return nil, o.blame(err)
	}
	remote, err := o.remote()
	if err != nil {
		return nil, o.blame(err)
	}
	c := newClient(o)
	c.send = func(ctx context.Context, q chat, tries int) (ask.Answer, ask.Usage, error) {
		return remote.Ask(ctx, ask.Question{
			Sampling: rollout.Sampling{Temperature: o.Temperature, MaxNew: o.MaxNew},
			Prompt:   data.Text{Messages: q.messages}, Schema: q.schema, TopLogprobs: o.TopLogprobs,
		}, tries)
	}
	if o.Cache != "" {
		server := ""
		if o.OfServer {
			server = o.server()
		}
		if c.cache, err = openCache(o.Cache, server); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// newClient makes a client that cannot send and has no cache.
func newClient(o Options) *Client {
	limit := rate.Inf
	if o.RequestsPerMinute > 0 {
		limit = rate.Limit(o.RequestsPerMinute) / 60
	}
	c := &Client{options: o, ledger: newLedger(o), requests: rate.NewLimiter(limit, 1),
		places:   make(chan struct{}, o.Parallel),
		patience: &remote.Patience{Retries: o.Retries, Wait: o.Wait, Longest: longestWait, Warn: o.warn},
		flights:  map[name]*flight{}}
	c.open, c.end = context.WithCancelCause(context.Background())
	c.alive, c.kill = context.WithCancelCause(context.Background())
	c.closing = sync.OnceValue(c.close)
	return c
}

// Ask returns the reply to a prompt, from the cache if it is there. If the context has ended, the error is its cause;
// other errors say in one line what is wrong.
func (c *Client) Ask(ctx context.Context, prompt string) (string, error) {
	reply, err := c.Chat(ctx, []data.Message{{Role: "user", Content: prompt}})
	return reply.Text, err
}

// Chat is Ask for messages: a system's and a user's, say.
func (c *Client) Chat(ctx context.Context, messages []data.Message) (Reply, error) {
	return c.reply(ctx, chat{messages: messages})
}

// Again is Chat for a question that is asked several times, each time for a reply of its own; n counts from 0.
func (c *Client) Again(ctx context.Context, messages []data.Message, n int) (Reply, error) {
	return c.reply(ctx, chat{messages: messages, again: n})
}

// Structured is Chat for a reply in JSON. A server that has no structured output refuses schema, or ignores it.
func (c *Client) Structured(ctx context.Context, messages []data.Message, schema json.RawMessage) (Reply, error) {
	return c.reply(ctx, chat{messages: messages, schema: schema})
}

func (c *Client) reply(ctx context.Context, q chat) (Reply, error) {
	if ctx.Err() != nil {
		return Reply{}, context.Cause(ctx)
	}
	f, kept, err := c.join(c.name(q), q)
	switch {
	case err != nil:
		return Reply{}, err
	case f == nil:
		return c.ledger.count(true, kept, nil)
	}
	select {
	case <-f.done:
		return c.ledger.count(false, f.reply, f.err)
	case <-ctx.Done():
		return Reply{}, context.Cause(ctx)
	}
}

// name hashes what a reply depends on.
func (c *Client) name(q chat) name {
	o := c.options
	var asked any = q.messages
	if len(q.messages) == 1 && q.messages[0].Role == "user" {
		asked = q.messages[0].Content
	}
	all := []any{o.Model, asked, o.Temperature, o.MaxNew}
	if o.TopLogprobs > 0 {
		all = append(all, o.TopLogprobs)
	}
	if q.schema != nil {
		all = append(all, q.schema)
	}
	if tools := (data.Text{Messages: q.messages}).Unwritten(); tools != nil {
		all = append(all, tools)
	}
	if q.again > 0 {
		all = append(all, fmt.Sprint("again ", q.again))
	}
	if o.ThinkOpened { // replies get a beginning
		all = append(all, "think opened")
	}
	b, _ := json.Marshal(all) // strings and finite numbers
	return sha256.Sum256(b)
}

// join returns a question's flight, and starts it if needed; nil with the reply if the cache has that.
func (c *Client) join(n name, q chat) (f *flight, kept Reply, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open.Err() != nil {
		return nil, kept, errClosed
	}
	if f := c.flights[n]; f != nil {
		return f, kept, nil
	}
	if kept, found := c.cache.get(n); found {
		return nil, kept, nil
	}
	f = &flight{done: make(chan struct{})}
	c.flights[n] = f
	c.flying.Go(func() {
		f.reply, f.err = c.get(n, q)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.flights, n)
		close(f.done)
	})
	return f, kept, nil
}

// get tries until there is a reply, and keeps it.
func (c *Client) get(n name, q chat) (Reply, error) {
	for tries := 0; ; tries++ {
		answer, usage, err := c.try(q, tries)
		if err == nil {
			c.patience.NoteAnswer()
			return Reply{answer.Text, top(answer), answer.Reason == rollout.Length}, c.keep(n, answer, usage)
		}
		failed, ok := errors.AsType[*remote.Error](err)
		if !ok {
			return Reply{}, err
		}
		wait, again := c.patience.Again(failed, tries)
		if !again {
			return Reply{}, c.options.blame(err)
		}
		if err := remote.Pause(c.open, wait); err != nil {
			return Reply{}, err
		}
	}
}

func top(a ask.Answer) map[string]float64 {
	if a.First == nil {
		return nil
	}
	return a.First.Logprobs
}

func (c *Client) keep(n name, a ask.Answer, u ask.Usage) error {
	if c.cache == nil {
		return nil
	}
	o := c.options
	return c.cache.add(n, entry{Server: o.server(), Model: o.Model, Temperature: o.Temperature, MaxTokens: o.MaxNew,
		Reply: a.Text, Top: top(a), Reason: a.Reason,
		PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens})
}

// try sends one request when there is room for it. Waiting ends with Close; a request that was sent continues.
func (c *Client) try(q chat, tries int) (answer ask.Answer, usage ask.Usage, err error) {
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
	case <-c.open.Done():
		return answer, usage, context.Cause(c.open)
	}
	guess := c.guess(q)
	if err := c.ledger.reserve(c.open, guess); err != nil {
		return answer, usage, err
	}
	if c.requests.Wait(c.open) != nil {
		c.ledger.release(guess)
		return answer, usage, context.Cause(c.open)
	}
	c.ledger.send(tries > 0)
	answer, usage, err = c.send(c.alive, q, tries)
	c.ledger.settle(guess, costOf(guess, usage, err), usage)
	return answer, usage, err
}

// guess is an upper bound in practice: English has four bytes or more per token, and a chat template adds a few tokens.
func (c *Client) guess(q chat) tokens {
	bytes := 0
	for _, m := range q.messages {
		bytes += len(m.Content)
	}
	return tokens{bytes/3 + 16, c.options.MaxNew}
}

// costOf is what a request costs in tokens: the guess if the server does not say, or if its reply was lost after it may
// have been made; nothing if the server made no reply.
func costOf(guess tokens, usage ask.Usage, err error) tokens {
	failed, ok := errors.AsType[*remote.Error](err)
	if ok && failed.Kind != remote.Lost && failed.Kind != remote.Foreign {
		return tokens{}
	}
	if usage.PromptTokens+usage.CompletionTokens > 0 {
		return tokens{usage.PromptTokens, usage.CompletionTokens}
	}
	return guess
}

// Stats returns the counts so far.
func (c *Client) Stats() Stats { return c.ledger.stats() }

// Close sends nothing more, waits up to [Options].Grace for the requests under way, keeps their replies and closes the
// cache. Callers that still wait get an error.
func (c *Client) Close() error { return c.closing() }

func (c *Client) close() error {
	c.mu.Lock() // no flight begins afterwards
	c.end(errClosed)
	c.mu.Unlock()
	end := time.AfterFunc(c.options.Grace, func() { c.kill(errClosed) })
	c.flying.Wait()
	end.Stop()
	c.kill(nil)
	return c.cache.close()
}
