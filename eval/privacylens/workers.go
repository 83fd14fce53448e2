package privacylens

import (
	"context"
	"slices"
	"sync"

	"github.com/posttrain/posttrain/rollout"
)

// inParallel does n pieces of work, a number of them at a time, started in order. The first error or the end of the
// context stops it; it waits for the work under way. The error of an ended context is its cause.
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

// asking is how a stage puts rows to the model under test.
type asking[R any] struct {
	Chat     rollout.Chat
	Fits     func(rollout.Conversation) (bool, error) // nil: every prompt fits
	Parallel int                                      // calls of Chat under way
	Batch    int                                      // conversations a call; 0: 1
	Talk     func(R) (rollout.Conversation, error)
	Note     func(R, rollout.Conversation, *rollout.Answer) error // answer nil: it does not fit
}

func (a asking[R]) all(ctx context.Context, rows []R) error {
	batches := slices.Collect(slices.Chunk(rows, max(a.Batch, 1)))
	return inParallel(ctx, a.Parallel, len(batches), func(ctx context.Context,
		i int) error {
		return a.some(ctx, batches[i])
	})
}

// some is one call of Chat, or none where nothing fits.
func (a asking[R]) some(ctx context.Context, rows []R) error {
	asked, talks, err := a.fitting(rows)
	if err != nil || len(asked) == 0 {
		return err
	}
	answers, err := a.Chat.Answer(ctx, talks)
	if err != nil {
		return err
	}
	for i := range asked {
		if err := a.Note(asked[i], talks[i], &answers[i][0]); err != nil {
			return err
		}
	}
	return nil
}

// fitting are the rows whose conversations fit the model. The others are noted without an answer.
func (a asking[R]) fitting(rows []R) (asked []R, talks []rollout.Conversation, err error) {
	for _, row := range rows {
		talk, err := a.Talk(row)
		if err != nil {
			return nil, nil, err
		}
		fits := true
		if a.Fits != nil {
			if fits, err = a.Fits(talk); err != nil {
				return nil, nil, err
			}
		}
		if fits {
			asked, talks = append(asked, row), append(talks, talk)
		} else if err := a.Note(row, talk, nil); err != nil {
			return nil, nil, err
		}
	}
	return asked, talks, nil
}
