package serve

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
)

// job is an ask being answered. The sampler's goroutine writes into it; the handler reads.
type job struct {
	ask      *ask
	ctx      context.Context   // ends when the client has gone
	requests []rollout.Request // n of each prompt
	choices  []*choice         // owned by the sampler until the job is over
	echoes   []rollout.Echo    // of the prompts, where they are echoed; the same
	handed   int               // requests that the sampler has or had; this and the next one belong to the queue
	began    time.Time         // when it got the first
	version  string            // of the weights then

	mu     sync.Mutex
	open   int     // unfinished choices
	events []event // not read by the handler yet
	over   bool
	err    error
	news   signal // there is something to read
}

// choice is one of the answers to an ask.
type choice struct {
	*rollout.Stream
	sent int                // tokens that were in events
	tops [][]rollout.Likely // of each token, where they are wanted
}

// stretch has tokens of a choice, or of a prompt.
type stretch struct {
	tokens []int32
	logps  []float32
	tops   [][]rollout.Likely // nil: not wanted
	starts []int              // characters of the text before each token; of plain requests
}

// and are these tokens and those that follow.
func (d stretch) and(next stretch) stretch {
	return stretch{slices.Concat(d.tokens, next.tokens), slices.Concat(d.logps, next.logps),
		slices.Concat(d.tops, next.tops), slices.Concat(d.starts, next.starts)}
}

// stretch has the tokens of a choice from one to another.
func (c *choice) stretch(from, to int, a *ask) (d stretch) {
	d.tokens, d.logps = slices.Clone(c.Tokens[from:to]), slices.Clone(c.Logps[from:to])
	if a.top > 0 {
		d.tops = slices.Clone(c.tops[from:to])
	}
	if a.plain != nil && a.logprobs {
		d.starts = c.Starts()[from:to]
	}
	return d
}

// event is progress of a choice: text to show and the tokens since the event before.
type event struct {
	choice int
	piece  string
	stretch
	reason string // of the end; "": the choice continues
}

// newJob makes the sampler's requests. Each prompt gets the answers that it would get alone.
func newJob(ctx context.Context, a *ask, prompts [][]int32, c *model.Config, d rollout.Decoder) *job {
	r := rollout.Request{Sampling: a.Sampling, Adjust: a.adjust, Top: a.top}
	j := &job{ask: a, ctx: ctx, open: a.n * len(prompts), news: make(signal, 1)}
	if a.plain != nil && a.plain.stops != nil { // the model's own end an answer, too
		r.StopTokens = slices.Clone(a.plain.stops)
		for _, id := range c.EOS {
			r.StopTokens = append(r.StopTokens, int32(id))
		}
	}
	for _, r.Prompt = range prompts {
		if r.Seed = rand.Uint64(); a.seed != nil { // else equal prompts get answers of their own
			r.Seed = uint64(*a.seed)
		}
		if a.plain != nil && a.n == 1 { // with the seed itself, for a trainer that draws every sample's
			j.requests = append(j.requests, r)
		} else {
			j.requests = append(j.requests, r.Samples(a.n)...)
		}
	}
	for i := range j.requests {
		j.choices = append(j.choices, &choice{Stream: rollout.NewStream(j.requests[i], c, d)})
		if a.top > 0 {
			c := j.choices[i]
			j.requests[i].OnTop = func(top []rollout.Likely) { c.tops = append(c.tops, top) }
		}
		j.requests[i].OnToken = func(token int32, logp float32) { j.take(i, token, logp) }
	}
	return j
}

// next hands out at most n requests, as long as the sampler has at most share of them.
func (j *job) next(n, share int) (out []rollout.Arrival) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n = min(n, len(j.requests)-j.handed, share-(j.handed-(len(j.requests)-j.open)))
	for !j.over && len(out) < n {
		out = append(out, rollout.Arrival{Request: j.requests[j.handed], Left: j.ctx.Done()})
		j.handed++
	}
	return out
}

// hasEcho says that the job wants an echo that is not measured yet.
func (j *job) hasEcho() bool { return j.ask.plain != nil && j.ask.plain.echo && j.echoes == nil }

// answerWith ends the job where the echoes have all of its answers: no token, or the likeliest one.
func (j *job) answerWith(echoes []rollout.Echo) {
	j.echoes = echoes
	switch {
	case j.ask.plain.none:
		j.mu.Lock()
		for i, c := range j.choices {
			c.Reason = rollout.Length
			j.events = append(j.events, event{choice: i, reason: c.Reason})
		}
		j.mu.Unlock()
		j.end(nil)
	case j.ask.MaxNew == 1 && j.ask.Temperature == 0 && j.ask.adjust.IsNone():
		for i := range j.choices {
			e := echoes[i/j.ask.n]
			last := len(e.Best) - 1
			j.choices[i].tops = [][]rollout.Likely{{{Token: e.Best[last], Logp: e.Top[last]}}}
			j.take(i, e.Best[last], e.Top[last])
		}
	}
}

// take adds a token to choice i.
func (j *job) take(i int, token int32, logp float32) {
	c := j.choices[i]
	if c.IsComplete() {
		return
	}
	piece := c.Take(token, logp)
	if !c.IsComplete() && (piece == "" || !j.ask.stream) {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ask.stream {
		j.events = append(j.events, j.event(i, piece))
		j.news.set()
	}
	if c.IsComplete() {
		j.open--
	}
	if j.open == 0 {
		j.finish(nil)
	}
}

// event returns what is new of choice i, of a chat without final tokens that show no text.
func (j *job) event(i int, piece string) event {
	c := j.choices[i]
	e, to := event{choice: i, piece: piece, reason: c.Reason}, c.ShownTokens()
	if j.ask.plain != nil && c.IsComplete() {
		to = len(c.Tokens)
	}
	if to > c.sent {
		e.stretch, c.sent = c.stretch(c.sent, to, j.ask), to
	}
	return e
}

// end ends a job unless it is over.
func (j *job) end(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.finish(err)
}

func (j *job) finish(err error) {
	if j.over {
		return
	}
	j.over, j.err = true, err
	j.news.set()
}

func (j *job) isOver() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.over
}

// wait returns the events since the last call as soon as there are any; over says that these were the last.
func (j *job) wait() (events []event, over bool, err error) {
	select {
	case <-j.news:
	case <-j.ctx.Done():
		return nil, true, context.Cause(j.ctx)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	events, j.events = j.events, nil
	return events, j.over, j.err
}

// countPrompts counts the tokens of all prompts.
func (j *job) countPrompts() (n int) {
	for i := 0; i < len(j.requests); i += j.ask.n {
		n += len(j.requests[i].Prompt)
	}
	return n
}

// countTokens counts the tokens of all choices of a job that is over.
func (j *job) countTokens() (n int) {
	for _, c := range j.choices {
		n += len(c.Tokens)
	}
	return n
}
