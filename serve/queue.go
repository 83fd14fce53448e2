package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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

// queue holds jobs until the sampler takes them, first come, first served.
type queue struct {
	most int    // waiting jobs
	news signal // a job may be waiting

	mu      sync.Mutex
	waiting []*job
	running int           // jobs in the batch under way
	took    time.Duration // duration of the last batch
}

func newQueue(most int) *queue {
	return &queue{most: most, news: make(signal, 1), took: time.Second}
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

// leave removes a job if it still waits.
func (q *queue) leave(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, j); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}

// next removes and returns the jobs to sample together: as many as fit the rows, but at least one if any waits.
func (q *queue) next(rows int) []*job {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, sum := 0, 0
	for n < len(q.waiting) {
		if sum += len(q.waiting[n].requests); n > 0 && sum > rows {
			break
		}
		n++
	}
	jobs := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.running = n
	return jobs
}

// done ends a batch.
func (q *queue) done(took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running, q.took = 0, took
}

// counts returns the numbers of jobs in the batch and in the queue.
func (q *queue) counts() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running, len(q.waiting)
}

// gather is how long a batch waits for more jobs: clients answered together send their next requests together.
const gather = 5 * time.Millisecond

// errServed ends a batch without open jobs.
var errServed = errors.New("all jobs are done")

// work samples jobs until the context ends, which also ends the batch under way.
func (s *Server) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			s.rejectWaiting(context.Cause(ctx))
			return
		case <-s.queue.news:
		}
		time.Sleep(gather)
		for jobs := s.queue.next(s.options.Rows); len(jobs) > 0; jobs = s.queue.next(s.options.Rows) {
			began := time.Now()
			s.batch(ctx, jobs)
			s.queue.done(time.Since(began))
			time.Sleep(gather)
		}
	}
}

// rejectWaiting ends all waiting jobs.
func (s *Server) rejectWaiting(err error) {
	for jobs := s.queue.next(1); len(jobs) > 0; jobs = s.queue.next(1) {
		for _, j := range jobs {
			j.end(err)
		}
	}
	s.queue.done(0)
}

// batch samples the answers to jobs. It ends early if the clients of all open jobs have gone.
func (s *Server) batch(ctx context.Context, jobs []*job) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var open atomic.Int64
	open.Store(int64(len(jobs)))
	var requests []rollout.Request
	for _, j := range jobs {
		closeJob := sync.OnceFunc(func() {
			if open.Add(-1) == 0 {
				cancel(errServed)
			}
		})
		defer context.AfterFunc(j.ctx, closeJob)()
		for _, r := range j.requests {
			take := r.OnToken
			r.OnToken = func(token int32, logp float32) {
				if take(token, logp); j.isOver() {
					closeJob()
				}
			}
			requests = append(requests, r)
		}
	}
	err := s.sample(ctx, requests)
	if err == nil {
		err = errors.New("the sampler ended before its answers did") // should not happen
	}
	for _, j := range jobs {
		j.end(err)
	}
}

// sample calls the sampler. A panic ends the batch, not the server.
func (s *Server) sample(ctx context.Context, requests []rollout.Request) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("internal error, please report it: %v", r)
		}
	}()
	_, err = s.options.Sampler.Sample(ctx, requests)
	return err
}
