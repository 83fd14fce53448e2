package judge

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout"
)

// Client asks a judge. It is safe for concurrent use.
type Client struct {
	options  Options
	send     func(ctx context.Context, prompt string, tries int) (rollout.Answer, rollout.Usage, error)
	cache    *cache // nil: none
	ledger   *ledger
	limits   *limits
	places   chan struct{} // a token for each request under way
	answered atomic.Bool   // by the server, ever: it is one that speaks the protocol

	alive context.Context // of requests under way
	kill  context.CancelCauseFunc

	mu      sync.Mutex
	flights map[name]*flight
	closed  bool
	flying  sync.WaitGroup
	closing func() error
}

// flight is the asking of one question, which goes on as long as somebody waits for it.
type flight struct {
	done   chan struct{} // closed when reply or err stand
	reply  string
	err    error
	askers int                     // guarded by the client's mu
	wanted context.Context         // ends when the last asker is gone
	leave  context.CancelCauseFunc // ends wanted
}

// name is a question's in the cache: the SHA-256 of model, prompt and parameters.
type name [sha256.Size]byte

// errClosed is what askers get of a closed client.
var errClosed = errors.New("judge: the client is closed")

// Open checks the options and opens the cache. It asks the server nothing.
func Open(o Options) (*Client, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.settle()
	remote, err := o.remote()
	if err != nil {
		return nil, err
	}
	c := newClient(o)
	c.send = func(ctx context.Context, prompt string, tries int) (rollout.Answer, rollout.Usage, error) {
		return remote.Ask(ctx, c.conversation(prompt), tries)
	}
	if o.Cache != "" {
		if c.cache, err = openCache(o.Cache); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// newClient is one that sends nothing and keeps nothing yet.
func newClient(o Options) *Client {
	c := &Client{options: o, ledger: newLedger(o), limits: newLimits(o), places: make(chan struct{}, o.Parallel), flights: map[name]*flight{}}
	c.alive, c.kill = context.WithCancelCause(context.Background())
	c.closing = sync.OnceValue(c.close)
	return c
}

func (c *Client) conversation(prompt string) rollout.Conversation {
	return rollout.Conversation{Messages: []data.Message{{Role: "user", Content: prompt}},
		Sampling: rollout.Sampling{Temperature: c.options.Temperature, MaxNew: c.options.MaxTokens}}
}

// Ask returns the judge's reply to a prompt, from the cache if it is there. The error of an ended context is its cause;
// others say in one line what is wrong.
func (c *Client) Ask(ctx context.Context, prompt string) (string, error) {
	n := c.name(prompt)
	for ctx.Err() == nil {
		f, ours, err := c.join(n, prompt)
		switch {
		case err != nil:
			return "", err
		case f == nil:
			return c.ledger.cached(c.cache.read(n))
		}
		select {
		case <-f.done:
			if ours {
				return c.ledger.handed(f.reply, f.err)
			} // else it was given up before we came: look again
		case <-ctx.Done():
			if ours {
				c.quit(f)
			}
		}
	}
	return "", context.Cause(ctx)
}

// name hashes what a reply depends on.
func (c *Client) name(prompt string) name {
	b, _ := json.Marshal([]any{c.options.Model, prompt, c.options.Temperature, c.options.MaxTokens}) // strings and finite numbers
	return sha256.Sum256(b)
}

// join returns the flight of a question, a new one if need be, or none where the reply is in the cache. A flight that was
// given up is not ours: its reply is not for us, but in the cache perhaps once it is done.
func (c *Client) join(n name, prompt string) (f *flight, ours bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false, errClosed
	}
	if f := c.flights[n]; f != nil {
		if f.askers == 0 {
			return f, false, nil
		}
		f.askers++
		c.ledger.shared()
		return f, true, nil
	}
	if c.cache.has(n) {
		return nil, false, nil
	}
	f = &flight{done: make(chan struct{}), askers: 1}
	f.wanted, f.leave = context.WithCancelCause(context.Background())
	c.flights[n] = f
	c.flying.Go(func() { c.fly(f, n, prompt) })
	return f, true, nil
}

// quit takes an asker off a flight.
func (c *Client) quit(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.askers--; f.askers == 0 {
		f.leave(context.Canceled)
	}
}

// fly gets the reply of a flight.
func (c *Client) fly(f *flight, n name, prompt string) {
	f.reply, f.err = c.get(f.wanted, n, prompt)
	c.mu.Lock()
	delete(c.flights, n)
	c.mu.Unlock()
	f.leave(nil)
	close(f.done)
}

// get tries until there is a reply, and keeps it.
func (c *Client) get(wanted context.Context, n name, prompt string) (string, error) {
	for tries := 0; ; tries++ {
		answer, usage, err := c.try(wanted, prompt, tries)
		if err == nil {
			c.answered.Store(true)
			return answer.Text, c.keep(n, answer, usage)
		}
		wait, again := c.again(err, tries)
		if !again {
			return "", named(err)
		}
		if err := sleep(wanted, wait); err != nil {
			return "", err
		}
	}
}

// named says whose error it is.
func named(err error) error {
	var failed *rollout.RemoteError
	if errors.As(err, &failed) {
		return fmt.Errorf("judge: %w", err)
	}
	return err
}

func (c *Client) keep(n name, a rollout.Answer, u rollout.Usage) error {
	if c.cache == nil {
		return nil
	}
	o := c.options
	return c.cache.add(n, entry{Model: o.Model, Temperature: o.Temperature, MaxTokens: o.MaxTokens,
		Reply: a.Text, Reason: a.Reason, PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens})
}

// Stats are the counts so far.
func (c *Client) Stats() Stats { return c.ledger.stats() }

// Close sends nothing more, waits for the requests under way for [Options].Grace at most, and closes the cache with what
// came of them. Whoever still waits for a reply gets an error.
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
