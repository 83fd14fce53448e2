package remote

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
)

// InParallel does n pieces of work, a number of them at a time, started in order. The first error or the end of the
// context stops it; it waits for the work under way. The error of an ended context is its cause.
func InParallel(ctx context.Context, parallel, n int, work func(ctx context.Context, i int) error) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var begun atomic.Int64
	var wg sync.WaitGroup
	for range min(max(parallel, 1), n) {
		wg.Go(func() {
			for inner.Err() == nil {
				i := int(begun.Add(1)) - 1
				if i >= n {
					return
				}
				if err := work(inner, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return cmp.Or(context.Cause(ctx), context.Cause(inner))
}
