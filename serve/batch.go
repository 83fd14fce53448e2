package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posttrain/posttrain/rollout"
)

// gather is how long a batch waits for others to join it once there is one: clients that are answered together come
// again together.
const gather = 5 * time.Millisecond

// errServed ends a batch in which nobody is left.
var errServed = errors.New("everybody is served")

// work samples what comes until the context ends, which ends the batch under way too.
func (s *Server) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			s.turnAway(context.Cause(ctx))
			return
		case <-s.line.news:
		}
		time.Sleep(gather)
		for jobs := s.line.next(s.options.Rows); len(jobs) > 0; jobs = s.line.next(s.options.Rows) {
			began := time.Now()
			s.batch(ctx, jobs)
			s.line.done(time.Since(began))
			time.Sleep(gather)
		}
	}
}

// turnAway ends all jobs that wait.
func (s *Server) turnAway(err error) {
	for jobs := s.line.next(1); len(jobs) > 0; jobs = s.line.next(1) {
		for _, j := range jobs {
			j.end(err)
		}
	}
	s.line.done(0)
}

// batch samples the answers to some jobs. It ends early when the clients of all that is not done are gone.
func (s *Server) batch(ctx context.Context, jobs []*job) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var open atomic.Int64
	open.Store(int64(len(jobs)))
	var requests []rollout.Request
	for _, j := range jobs {
		settled := sync.OnceFunc(func() {
			if open.Add(-1) == 0 {
				cancel(errServed)
			}
		})
		defer context.AfterFunc(j.ctx, settled)()
		for _, r := range j.requests {
			take := r.OnToken
			r.OnToken = func(token int32, logp float32) {
				if take(token, logp); j.ended() {
					settled()
				}
			}
			requests = append(requests, r)
		}
	}
	err := s.sample(ctx, requests)
	if err == nil {
		err = errors.New("the sampler ended before its answers did") // of jobs that are not over, of which there are none
	}
	for _, j := range jobs {
		j.end(err)
	}
}

// sample calls the sampler. A panic of its ends the batch, not the server.
func (s *Server) sample(ctx context.Context, requests []rollout.Request) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("internal error, please report it: %v", r)
		}
	}()
	_, err = s.options.Sampler.Sample(ctx, requests)
	return err
}
