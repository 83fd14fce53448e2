package privacylens

import (
	"context"
	"sync"
)

// inParallel does n pieces of work, so many at a time, in order of their beginning. The first error ends it, as the end of the
// context does, whose cause is returned then; what is under way is waited for.
func inParallel(ctx context.Context, parallel, n int, work func(ctx context.Context, i int) error) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	places := make(chan int)
	var wg sync.WaitGroup
	for range min(max(parallel, 1), n) {
		wg.Go(func() {
			for i := range places {
				if err := work(inner, i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	for i := 0; i < n && inner.Err() == nil; i++ {
		select {
		case places <- i:
		case <-inner.Done():
		}
	}
	close(places)
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return context.Cause(inner)
}
