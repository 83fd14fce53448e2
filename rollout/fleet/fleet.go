package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
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
)

// Policy is the model that learns.
type Policy interface {
	Version() int              // updates so far
	Write(folder string) error // the present weights: a model folder, for vllm an adapter's

	// Logps are the log-probs of the answers' tokens under the present weights, or under those that Write wrote to a
	// folder, an adapter's product times scale. Only a fleet with probes calls it, once at a time.
	Logps(prompts, answers [][]int32, folder string, scale float64) ([][]float32, error)
}

// Fleet is a [rollout.Sampler] on servers. It answers one call at a time.
type Fleet struct {
	options  Options
	protocol protocol
	policy   Policy
	config   *model.Config
	decoder  rollout.Decoder
	warn     func(format string, args ...any)
	servers  []*server
	written  written
	id       string // of this fleet, in the names of its weights

	probing sync.Mutex
	usual   float64 // the largest distance of a probe so far without an alarm

	mu   sync.Mutex
	free *sync.Cond // a server has room, or is lost
}

// server is one of a fleet. Its fields are guarded by the fleet's lock.
type server struct {
	*rollout.Remote
	address string
	busy    int      // requests under way
	weights string   // name of the weights that it has; "": unknown
	held    []string // names of weights that it keeps, oldest first
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
	f.free = sync.NewCond(&f.mu)
	if warn == nil {
		f.warn = func(string, ...any) {}
	}
	for _, address := range o.URLs {
		r, err := rollout.NewRemote(rollout.RemoteOptions{BaseURL: root(address), Model: "policy",
			Key: o.Key, KeyName: KeyVariable,
			Parallel: o.Parallel, Timeout: o.Timeout, Retries: cmp.Or(o.Retries, 2), Wait: cmp.Or(o.Wait, time.Second)})
		if err != nil {
			return nil, err
		}
		f.servers = append(f.servers, &server{Remote: r, address: root(address)})
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
	completions, err := f.sample(ctx, requests)
	if err != nil && ctx.Err() == nil {
		err = rollout.ServerError{Err: err}
	}
	return completions, err
}

func (f *Fleet) sample(ctx context.Context, requests []rollout.Request) ([]rollout.Completion, error) {
	completions := make([]rollout.Completion, len(requests))
	open := make([]int, len(requests)) // requests without an answer
	for i := range open {
		open[i] = i
	}
	for round := 0; round < rounds && len(open) > 0; round++ {
		if err := f.swap(ctx); err != nil {
			if round == 0 || len(open) == len(requests) {
				return nil, err
			}
			break
		}
		if err := f.answerAll(ctx, requests, open, completions); err != nil {
			return nil, err
		}
		open = slices.DeleteFunc(open, func(i int) bool { return completions[i].Reason != "" })
	}
	if len(open) > 0 && len(open) == len(requests) {
		return nil, fmt.Errorf("no server gives a completion: %s", f.whyLost())
	}
	for _, i := range open {
		completions[i].Reason = rollout.Missing
	}
	return completions, nil
}

// answerAll asks for the completions of some requests. Those that no server gives keep no reason.
func (f *Fleet) answerAll(ctx context.Context, requests []rollout.Request, open []int,
	completions []rollout.Completion) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, f.wake)()
	work := make(chan int, len(open))
	for _, i := range open {
		work <- i
	}
	close(work)
	var wg sync.WaitGroup
	for range min(len(open), f.options.Parallel*len(f.servers)) {
		wg.Go(func() {
			for i := range work {
				c, err := f.answer(ctx, requests[i])
				if err != nil {
					cancel(fmt.Errorf("request %d: %w", i, err))
					return
				}
				completions[i] = c
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// answer asks servers until one gives a completion, or none is left.
func (f *Fleet) answer(ctx context.Context, r rollout.Request) (rollout.Completion, error) {
	for {
		s := f.take(ctx)
		if s == nil {
			return rollout.Completion{}, context.Cause(ctx)
		}
		c, err := f.ask(ctx, s, r)
		failed, remote := errors.AsType[*rollout.RemoteError](err)
		switch {
		case err == nil || ctx.Err() != nil:
			f.giveBack(s, nil)
			return c, context.Cause(ctx)
		case !remote:
			f.giveBack(s, nil)
			return c, fmt.Errorf("%s: %w", s.address, err)
		case failed.Kind == rollout.Refused:
			f.giveBack(s, nil)
			f.warn("%v; a completion is missing", err)
			return rollout.Completion{Reason: rollout.Missing}, nil
		}
		f.giveBack(s, err)
	}
}

// ask asks one server. An error that is no [*rollout.RemoteError] is the reply's.
func (f *Fleet) ask(ctx context.Context, s *server, r rollout.Request) (rollout.Completion, error) {
	if r.StopTokens == nil { // servers may have other ones
		for _, id := range f.config.EOS {
			r.StopTokens = append(r.StopTokens, int32(id))
		}
	}
	path, body := f.protocol.ask(r, f.written.name)
	var text json.RawMessage
	err := s.Exchange(ctx, path, body, &text)
	if failed, ok := errors.AsType[*rollout.RemoteError](err); ok && failed.Status == http.StatusNotFound {
		err = s.Fail("it has no weights %s any more", f.written.name) // as one that was started anew
	}
	if err != nil {
		return rollout.Completion{}, err
	}
	tokens, logps, weights, err := f.protocol.read(text)
	if err != nil {
		return rollout.Completion{}, err
	}
	if weights != f.written.name { // it was started anew, or another trainer uses it
		return rollout.Completion{}, s.Fail("it has the weights %q: want %q, which it was given", weights,
			f.written.name)
	}
	return f.complete(r, tokens, logps)
}

// take waits for the server with the fewest requests under way. It is nil if all are lost, or the context has ended.
func (f *Fleet) take(ctx context.Context) *server {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ctx.Err() == nil {
		var best *server
		left := 0
		for _, s := range f.servers {
			if s.lost != nil {
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
		s.lost, s.weights, s.held = failed, "", nil
		f.warn("%v; its requests go to the other servers", failed)
	}
	f.free.Broadcast()
}

// wake lets take see that its context has ended.
func (f *Fleet) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free.Broadcast()
}

// whyLost says why servers are lost.
func (f *Fleet) whyLost() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var words []string
	for _, s := range f.servers {
		if s.lost != nil {
			words = append(words, s.lost.Error())
		}
	}
	return strings.Join(words, "; ")
}
