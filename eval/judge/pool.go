package judge

import (
	"context"
	"sync"
)

// Run does tasks 0 to n-1, parallel of them at a time, and hands the results to take, one at a time and in order. The
// first error of a task or of take ends the context of the others and is returned; of an ended ctx, the cause is. What
// take has got until then is results 0, 1, … without a gap, all that were done before the first that is missing.
//
// Memory does not grow with n: tasks run ahead of the oldest that is not done by [ahead] times parallel at most.
func Run[T any](ctx context.Context, n, parallel int, task func(ctx context.Context, i int) (T, error), take func(i int, result T) error) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := pool[T]{task: task, window: make(chan struct{}, ahead*max(parallel, 1)), places: make(chan int), results: make(chan result[T])}
	go p.hand(inner, n)
	go p.work(inner, max(parallel, 1))
	done := p.collect(take, cancel)
	switch {
	case done == n:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return context.Cause(inner)
}

// ahead is how many tasks of each worker may wait for an older one.
const ahead = 8

type pool[T any] struct {
	task    func(ctx context.Context, i int) (T, error)
	window  chan struct{} // a token for each task from its start until its result is taken
	places  chan int
	results chan result[T]
}

type result[T any] struct {
	i     int
	value T
	err   error
}

// hand gives out the tasks until the context ends.
func (p *pool[T]) hand(ctx context.Context, n int) {
	defer close(p.places)
	for i := range n {
		select {
		case p.window <- struct{}{}:
		case <-ctx.Done():
			return
		}
		select {
		case p.places <- i:
		case <-ctx.Done():
			return
		}
	}
}

func (p *pool[T]) work(ctx context.Context, parallel int) {
	defer close(p.results)
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for i := range p.places {
				value, err := p.task(ctx, i)
				p.results <- result[T]{i, value, err}
			}
		})
	}
	workers.Wait()
}

// collect hands over results in order until there are no more, and returns how many.
func (p *pool[T]) collect(take func(int, T) error, cancel context.CancelCauseFunc) (done int) {
	early := map[int]T{} // results that came before an older one
	failed := false      // take did: it gets nothing more
	for r := range p.results {
		if r.err != nil {
			cancel(r.err)
			continue
		}
		for early[r.i] = r.value; !failed; done++ {
			value, ok := early[done]
			if !ok {
				break
			}
			delete(early, done)
			if err := take(done, value); err != nil {
				cancel(err)
				failed = true
				break
			}
			<-p.window
		}
	}
	return done
}
