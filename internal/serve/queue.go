package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/posttrain/posttrain/rollout"
)

// signal is a channel of capacity 1 that holds an element from set to the next reception.
type signal chan struct{}

func (s signal) set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// queue holds jobs until the sampler takes their requests, first come, first served.
type queue struct {
	most  int    // waiting jobs
	share int    // most rows of a job, so that many choices of one leave room for others
	news  signal // a job may be waiting

	mu      sync.Mutex
	waiting []*job        // with requests that the sampler does not have yet
	running []*job        // with requests that it has
	holds   int           // clients that change the weights: jobs that have not begun wait
	paused  bool          // by a client: they wait, too
	version string        // of the weights, as the client that sent them names it
	took    time.Duration // from the first row of a job to its end
}

func newQueue(most, rows int) *queue {
	return &queue{most: most, share: rows - rows/4, news: make(signal, 1), took: time.Second}
}

// join adds a job. If the queue is full, it returns when to try again.
func (q *queue) join(j *job) (retry time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= q.most {
		return min(max(q.took, time.Second), time.Minute), false
	}
	q.waiting = append(q.waiting, j)
	q.news.set()
	return 0, true
}

// leave removes a job.
func (q *queue) leave(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.running, j); i >= 0 && j.isOver() {
		q.took = time.Since(j.began)
	}
	same := func(other *job) bool { return other == j }
	q.waiting, q.running = slices.DeleteFunc(q.waiting, same), slices.DeleteFunc(q.running, same)
}

// next hands out at most n requests to a model, of jobs before the first one to another.
func (q *queue) next(n int, model string) (out []rollout.Arrival) {
	q.mu.Lock()
	defer q.mu.Unlock()
	other := false
	q.waiting = slices.DeleteFunc(q.waiting, func(j *job) bool {
		other = other || j.ask.model != model && !j.isOver()
		if other || j.began.IsZero() && (q.holds > 0 || q.paused) || j.hasEcho() {
			return j.isOver()
		}
		more := j.next(n-len(out), q.share)
		if len(more) > 0 {
			q.begin(j)
		}
		out = append(out, more...)
		return len(j.requests) == j.handed || j.isOver()
	})
	return out
}

// begin notes that a job is under way, unless it was.
func (q *queue) begin(j *job) {
	if j.began.IsZero() {
		j.began, j.version, q.running = time.Now(), q.version, append(q.running, j)
	}
}

// nextEcho begins the first job to a model that wants an echo, of those before the first one to another model. It is
// nil where no job wants one, and while the queue pauses or is held.
func (q *queue) nextEcho(model string) *job {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range q.waiting {
		switch {
		case j.isOver():
		case j.ask.model != model:
			return nil
		case j.hasEcho() && !(q.holds > 0 || q.paused):
			q.begin(j)
			return j
		}
	}
	return nil
}

// first is the model of the job that has waited longest.
func (q *queue) first() (model string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range q.waiting {
		if !j.isOver() {
			return j.ask.model
		}
	}
	return ""
}

// locked changes the queue. While it is held the sampler ends when it has answered the jobs that have begun.
func (q *queue) locked(change func(q *queue)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	change(q)
}

// endRunning ends the jobs that the sampler has.
func (q *queue) endRunning(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range q.running {
		j.end(err)
	}
}

// endWaiting ends the jobs that wait for a model, or where model is "" for any.
func (q *queue) endWaiting(model string, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range q.waiting {
		if model == "" || j.ask.model == model {
			j.end(err)
		}
	}
}

// counts returns the numbers of jobs that have rows and of those that wait for their first, and whether these are held.
func (q *queue) counts() (running, waiting int, held bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range q.waiting {
		if j.began.IsZero() {
			waiting++
		}
	}
	return len(q.running), waiting, q.holds > 0 || q.paused
}

// gather is how long an idle sampler waits for more jobs: clients answered together send their next requests together.
const gather = 5 * time.Millisecond

var (
	errUnfinished = errors.New("the sampler ended before its answers did") // should not happen
	errUnloaded   = errors.New("the adapter was unloaded")                 // before the job began
)

// work samples jobs until the context ends.
func (s *Server) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			s.queue.endRunning(context.Cause(ctx))
			s.queue.endWaiting("", context.Cause(ctx))
			return
		case change := <-s.changes:
			change()
			continue
		case <-s.queue.news:
		}
		time.Sleep(gather)
		err := s.sample(ctx)
		s.queue.endRunning(cmp.Or(err, errUnfinished))
		if _, waiting, held := s.queue.counts(); waiting > 0 && !held {
			s.queue.news.set()
		}
	}
}

// sample calls the sampler until no job waits. A panic ends the jobs that it has, not the server.
func (s *Server) sample(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("internal error, please report it: %v", r)
		}
	}()
	model := s.queue.first()
	sampler := s.samplerOf(model)
	if sampler == nil {
		s.queue.endWaiting(model, errUnloaded)
		return nil
	}
	return sampler.SampleContinuously(ctx, s.options.Rows, func(n int) []rollout.Arrival {
		s.echo(sampler, model)
		return s.queue.next(n, model)
	})
}

// echoTokens is how many tokens of prompts are measured between two steps, so that running answers go on.
const echoTokens = 1024

// echo measures the prompts of jobs that wait for it.
func (s *Server) echo(sampler Sampler, model string) {
	for measured := 0; measured < echoTokens; {
		j := s.queue.nextEcho(model)
		if j == nil {
			return
		}
		var prompts [][]int32
		for i := 0; i < len(j.requests); i += j.ask.n {
			prompts = append(prompts, j.requests[i].Prompt)
		}
		echoes, err := sampler.(echoer).Echo(prompts)
		if err != nil {
			j.end(err)
			continue
		}
		j.answerWith(echoes)
		measured += j.countPrompts()
	}
}
