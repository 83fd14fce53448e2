package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/remote"
)

// Policy is the model that learns.
type Policy interface {
	Version() int              // updates so far
	Write(folder string) error // the present weights: a model folder, for vllm an adapter's

	// Logps are the log-probs of the answers' tokens under the present weights. Only a fleet with probes calls it, once
	// at a time.
	Logps(prompts, answers [][]int32) ([][]float32, error)
}

// Fleet is a [rollout.Sampler] on servers. It answers
// one call of Sample at a time.
type Fleet struct {
	options  Options
	protocol protocol
	policy   Policy
	config   *model.Config
	decoder  rollout.Decoder
	warn     func(format string, args ...any)
	servers  []*server
	written  written
	folders  []string // of weights that servers may have, oldest first
	run, id  string   // of this fleet, in the names of its weights

	probing sync.Mutex
	usual   float64 // the largest distance of a probe so far without an alarm
	probed  bool    // there was such a probe

	mu      sync.Mutex
	free    *sync.Cond // a server has room, or is lost
	refusal error      // the last of a request; nil: there was none
}

// server is one of a fleet. Its fields are guarded by the fleet's lock.
type server struct {
	*remote.Client
	address string
	busy    int      // requests under way
	has     []string // names of the weights that it surely has, oldest first
	left    []string // names of weights that it may have, too, since it failed
	lost    error    // why it failed: it is not asked before it has been given weights again; nil: it answers
}

// New makes a fleet. It sends nothing. warn hears of servers that fail; it may be nil.
func New(o Options, p Policy, c *model.Config, d rollout.Decoder, warn func(format string, args ...any)) (*Fleet,
	error) {
	if err := fault.Err("rollout", o.Check()); err != nil {
		return nil, err
	}
	o.Parallel = cmp.Or(o.Parallel, defaultParallel)
	f := &Fleet{options: o, protocol: protocols[o.Engine], policy: p, config: c, decoder: d, warn: warn,
		id: strings.ToLower(rand.Text()[:8])}
	if o.Run != "" {
		f.run = fmt.Sprintf("%.3x-", sha256.Sum256([]byte(o.Run)))
	}
	f.free = sync.NewCond(&f.mu)
	if warn == nil {
		f.warn = func(string, ...any) {}
	}
	for _, address := range o.URLs {
		r, err := remote.New(remote.Options{Model: "policy", Key: o.Key, Server: remote.Server{BaseURL: root(address),
			KeyEnv: KeyVariable, Parallel: o.Parallel, Timeout: o.Timeout}, Retries: cmp.Or(o.Retries, 2), Wait: cmp.Or(o.Wait, time.Second)})
		if err != nil {
			return nil, err
		}
		f.servers = append(f.servers, &server{Client: r, address: root(address)})
	}
	return f, nil
}

// rounds are how often servers that fail while they sample are given the weights again, and the requests that they
// left unanswered.
const rounds = 2

// Sample gives every server the present weights and asks them. Completions that no server gives are
// [rollout.Missing]; it is an error if there is no other, or if a server has another model. An error is a
// [rollout.ServerError], or the cause of an ended context.
func (f *Fleet) Sample(ctx context.Context, requests []rollout.Request) ([]rollout.Completion, error) {
	completions, err := f.askAll(ctx, requests)
	if err != nil && ctx.Err() == nil { // it is not the weights'
		err = rollout.ServerError{Err: err}
	}
	return completions, err
}

func (f *Fleet) askAll(ctx context.Context, requests []rollout.Request) ([]rollout.Completion, error) {
	completions := make([]rollout.Completion, len(requests))
	open := unanswered(completions)
	for round := 0; round < rounds && len(open) > 0; round++ {
		if err := f.swap(ctx); err != nil {
			if round == 0 || len(open) == len(requests) {
				return nil, err
			}
			break
		}
		if err := f.answerAll(ctx, f.written, requests, open, completions); err != nil {
			return nil, err
		}
		open = unanswered(completions)
	}
	for _, i := range open {
		completions[i].Reason = rollout.Missing
	}
	given := func(c rollout.Completion) bool { return c.Reason != rollout.Missing }
	if len(requests) > 0 && !slices.ContainsFunc(completions, given) {
		return nil, fmt.Errorf("no server gives a completion: %s", f.whyLost())
	}
	return completions, nil
}

// unanswered are the numbers of the completions without a reason.
func unanswered(completions []rollout.Completion) (open []int) {
	for i, c := range completions {
		if c.Reason == "" {
			open = append(open, i)
		}
	}
	return open
}

// answerAll asks for the completions of some requests. Those that no server gives keep no reason.
func (f *Fleet) answerAll(ctx context.Context, w written, requests []rollout.Request, open []int,
	completions []rollout.Completion) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { // take sees that its context has ended
		f.mu.Lock()
		defer f.mu.Unlock()
		f.free.Broadcast()
	})()
	return remote.InParallel(ctx, f.options.Parallel*len(f.servers), len(open), func(ctx context.Context, k int) error {
		c, err := f.answer(ctx, w, requests[open[k]])
		if err != nil {
			cancel(fmt.Errorf("request %d: %w", open[k], err))
			return err
		}
		completions[open[k]] = c
		if end := requests[open[k]].OnEnd; end != nil {
			end(len(c.Tokens))
		}
		return nil
	})
}

// answer asks servers until one gives a completion, or none is left that has the weights.
func (f *Fleet) answer(ctx context.Context, w written, r rollout.Request) (rollout.Completion, error) {
	for {
		s := f.take(ctx, w.name)
		if s == nil {
			return rollout.Completion{}, context.Cause(ctx)
		}
		c, err := f.ask(ctx, s, w, r)
		failed, ofServer := errors.AsType[*remote.Error](err)
		switch {
		case err == nil || ctx.Err() != nil:
			f.giveBack(s, nil)
			return c, context.Cause(ctx)
		case !ofServer:
			f.giveBack(s, nil)
			return c, fmt.Errorf("%s: %w", s.address, err)
		case failed.Kind == remote.Refused || failed.Kind == remote.Filtered:
			f.giveBack(s, nil)
			f.mu.Lock()
			f.refusal = err
			f.warn("%v; a completion is missing", err)
			f.mu.Unlock()
			return rollout.Completion{Reason: rollout.Missing}, nil
		}
		f.giveBack(s, err)
	}
}

// ask asks one server. An error that is no [*remote.Error] is the reply's.
func (f *Fleet) ask(ctx context.Context, s *server, w written, r rollout.Request) (rollout.Completion, error) {
	if r.StopTokens == nil { // servers may have other ones
		for _, id := range f.config.EOS {
			r.StopTokens = append(r.StopTokens, int32(id))
		}
	}
	path, body := f.protocol.ask(r, w.name)
	var text json.RawMessage
	err := s.Exchange(ctx, path, body, &text)
	if failed, ok := errors.AsType[*remote.Error](err); ok && failed.Status == http.StatusNotFound {
		err = s.Fail("it has no weights %s any more", w.name) // as one that was started anew
	}
	if err != nil {
		return rollout.Completion{}, err
	}
	tokens, logps, weights, err := f.protocol.read(text)
	if err != nil {
		return rollout.Completion{}, err
	}
	if weights != w.name { // it was started anew, went back to older ones, or another trainer uses it
		return rollout.Completion{}, s.Fail("it has the weights %q: want %q, which it was given", weights, w.name)
	}
	c, err := f.complete(r, tokens, logps)
	c.Version = w.version
	return c, err
}

// take waits for the server with the fewest requests under way of those that have the weights. It is nil if there is
// none, or the context has ended.
func (f *Fleet) take(ctx context.Context, weights string) *server {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ctx.Err() == nil {
		var best *server
		left := 0
		for _, s := range f.servers {
			if s.lost != nil || !slices.Contains(s.has, weights) {
				continue
			}
			if left++; s.busy < f.options.Parallel && (best == nil || s.busy < best.busy) {
				best = s
			}
		}
		if best != nil {
			best.busy++
			return best
		}
		if left == 0 {
			return nil
		}
		f.free.Wait()
	}
	return nil
}

// giveBack ends a request to a server, which is lost if it failed.
func (f *Fleet) giveBack(s *server, failed error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.busy--; failed != nil && s.lost == nil {
		s.lost, s.left, s.has = failed, append(s.left, s.has...), nil
		f.warn("%v; its requests go to the other servers", failed)
	}
	f.free.Broadcast()
}

// whyLost says why servers are lost, or that they refuse the requests.
func (f *Fleet) whyLost() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var words []string
	for _, s := range f.servers {
		if s.lost != nil {
			words = append(words, s.lost.Error())
		}
	}
	if words == nil && f.refusal != nil {
		return f.refusal.Error()
	}
	return strings.Join(words, "; ")
}
