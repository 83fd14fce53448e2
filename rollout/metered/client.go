package metered

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/rollout"
)

// Client asks a server's model. It is safe for concurrent use.
type Client struct {
	options  Options
	send     func(ctx context.Context, q chat, tries int) (rollout.Answer, rollout.Usage, error)
	cache    *cache // nil: replies are not kept
	ledger   *ledger
	limits   *limits
	places   chan struct{} // holds one element per request under way
	patience *rollout.Patience

	alive context.Context // of requests under way
	kill  context.CancelCauseFunc

	mu      sync.Mutex
	flights map[name]*flight
	closed  bool
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
}

// flight gets the reply to one question while at least one caller waits for it.
type flight struct {
	done    chan struct{} // closed when reply and err are set
	reply   Reply
	err     error
	callers int                     // guarded by the client's mu
	wanted  context.Context         // ends when the last caller has left
	leave   context.CancelCauseFunc // ends wanted
}

// name identifies a question in the cache: the SHA-256 of model, prompt and parameters.
type name [sha256.Size]byte

// errClosed is the error of calls to a closed client.
var errClosed = errors.New("the client is closed")

// Open checks the options and opens the cache. It sends nothing to the server.
func Open(o Options) (*Client, error) {
	if err := fault.Err("", o.Check()); err != nil {
		return nil, o.blame(err)
	}
	o.setDefaults()
	remote, err := o.remote()
	if err != nil {
		return nil, o.blame(err)
	}
	c := newClient(o)
	c.send = func(ctx context.Context, q chat, tries int) (rollout.Answer, rollout.Usage, error) {
		return remote.Ask(ctx, rollout.Conversation{
			Sampling: rollout.Sampling{Temperature: o.Temperature, MaxNew: o.MaxTokens},
			Messages: q.messages, Schema: q.schema, TopLogprobs: o.TopLogprobs,
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
	c := &Client{options: o, ledger: newLedger(o), limits: newLimits(o), places: make(chan struct{}, o.Parallel),
		patience: &rollout.Patience{Retries: o.Retries, Wait: o.Wait, Longest: longestWait, Warn: o.warn},
		flights:  map[name]*flight{}}
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
	return c.Structured(ctx, messages, nil)
}

// Structured is Chat for a reply in JSON. A server that has no structured output refuses schema, or ignores it.
func (c *Client) Structured(ctx context.Context, messages []data.Message, schema json.RawMessage) (Reply, error) {
	q := chat{messages, schema}
	n := c.name(q)
	for ctx.Err() == nil {
		f, joined, err := c.join(n, q)
		switch {
		case err != nil:
			return Reply{}, err
		case f == nil:
			reply, err := c.cache.read(n)
			return c.ledger.count(true, reply, err)
		}
		select {
		case <-f.done:
			if joined {
				return c.ledger.count(false, f.reply, f.err)
			} // else its callers had left before we came: look again
		case <-ctx.Done():
			if joined {
				c.quit(f)
			}
		}
	}
	return Reply{}, context.Cause(ctx)
}

// name hashes what a reply depends on.
func (c *Client) name(q chat) name {
	o := c.options
	var asked any = q.messages
	if len(q.messages) == 1 && q.messages[0].Role == "user" {
		asked = q.messages[0].Content
	}
	all := []any{o.Model, asked, o.Temperature, o.MaxTokens}
	if o.TopLogprobs > 0 {
		all = append(all, o.TopLogprobs)
	}
	if q.schema != nil {
		all = append(all, q.schema)
	}
	if o.ThinkOpened { // replies get a beginning
		all = append(all, "think opened")
	}
	b, _ := json.Marshal(all) // strings and finite numbers
	return sha256.Sum256(b)
}

// join returns a question's flight, and starts it if needed; nil if the reply is in the cache. A flight that its
// callers have left is not joined: it ends without a try more, perhaps with a reply in the cache.
func (c *Client) join(n name, q chat) (f *flight, joined bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false, errClosed
	}
	if f := c.flights[n]; f != nil {
		if f.callers == 0 {
			return f, false, nil
		}
		f.callers++
		c.ledger.share()
		return f, true, nil
	}
	if c.cache.has(n) {
		return nil, false, nil
	}
	f = &flight{done: make(chan struct{}), callers: 1}
	f.wanted, f.leave = context.WithCancelCause(context.Background())
	c.flights[n] = f
	c.flying.Go(func() { c.fly(f, n, q) })
	return f, true, nil
}

// quit removes a caller from a flight.
func (c *Client) quit(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.callers--; f.callers == 0 {
		f.leave(context.Canceled)
	}
}

// fly gets a flight's reply.
func (c *Client) fly(f *flight, n name, q chat) {
	f.reply, f.err = c.get(f.wanted, n, q)
	c.mu.Lock()
	delete(c.flights, n)
	c.mu.Unlock()
	f.leave(nil)
	close(f.done)
}

// get tries until there is a reply, and keeps it.
func (c *Client) get(wanted context.Context, n name, q chat) (Reply, error) {
	for tries := 0; ; tries++ {
		answer, usage, err := c.try(wanted, q, tries)
		if err == nil {
			c.patience.NoteAnswer()
			return Reply{answer.Text, top(answer), answer.Reason == rollout.Length}, c.keep(n, answer, usage)
		}
		failed, ok := errors.AsType[*rollout.RemoteError](err)
		if !ok {
			return Reply{}, err
		}
		wait, again := c.patience.Again(failed, tries)
		if !again {
			return Reply{}, c.options.blame(err)
		}
		if err := rollout.Pause(wanted, wait); err != nil {
			return Reply{}, err
		}
	}
}

func top(a rollout.Answer) map[string]float64 {
	if a.First == nil {
		return nil
	}
	return a.First.Logprobs
}

func (c *Client) keep(n name, a rollout.Answer, u rollout.Usage) error {
	if c.cache == nil {
		return nil
	}
	o := c.options
	return c.cache.add(n, entry{Server: o.server(), Model: o.Model, Temperature: o.Temperature, MaxTokens: o.MaxTokens,
		Reply: a.Text, Top: top(a), Reason: a.Reason,
		PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens})
}

// try sends one request when there is room for it. Waiting ends when no caller wants the reply any more; a request that
// was sent continues.
func (c *Client) try(wanted context.Context, q chat, tries int) (rollout.Answer, rollout.Usage, error) {
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
	case <-wanted.Done():
		return rollout.Answer{}, rollout.Usage{}, context.Cause(wanted)
	}
	guess := c.guess(q)
	if err := c.waitForRoom(wanted, guess); err != nil {
		return rollout.Answer{}, rollout.Usage{}, err
	}
	c.ledger.send(tries > 0)
	answer, usage, err := c.send(c.alive, q, tries)
	used := costOf(guess, usage, err)
	c.ledger.settle(guess, used, usage)
	c.limits.settle(guess.total(), used.total())
	return answer, usage, err
}

// waitForRoom waits until budget and limits allow a request.
func (c *Client) waitForRoom(wanted context.Context, guess tokens) error {
	if err := c.ledger.reserve(wanted, guess); err != nil {
		return err
	}
	err := c.limits.wait(wanted, guess.total())
	if err == nil && wanted.Err() != nil {
		err = context.Cause(wanted)
	}
	if err != nil {
		c.ledger.release(guess)
	}
	return err
}

// guess is an upper bound in practice: English has four bytes or more per token, and a chat template adds a few tokens.
func (c *Client) guess(q chat) tokens {
	bytes := 0
	for _, m := range q.messages {
		bytes += len(m.Content)
	}
	return tokens{bytes/3 + 16, c.options.MaxTokens}
}

// costOf is what a request costs in tokens: the guess if the server does not say, or if its reply was lost after it may
// have been made; nothing if the server made no reply.
func costOf(guess tokens, usage rollout.Usage, err error) tokens {
	failed, ok := errors.AsType[*rollout.RemoteError](err)
	if ok && failed.Kind != rollout.Lost && failed.Kind != rollout.Foreign {
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
	c.mu.Lock()
	c.closed = true
	for _, f := range c.flights {
		f.leave(errClosed)
	}
	c.mu.Unlock()
	end := time.AfterFunc(c.options.Grace, func() { c.kill(errClosed) })
	c.flying.Wait()
	end.Stop()
	c.kill(nil)
	return c.cache.close()
}
