package bench

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/posttrain/posttrain/rollout"
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

// Asking is how a stage puts its rows to the model under test.
type Asking struct {
	Chat     rollout.Chat
	Seed     uint64
	Parallel int                                      // calls of Chat under way; 0: 1
	Batch    int                                      // conversations a call; 0: 1
	Fits     func(rollout.Conversation) (bool, error) // nil: every prompt fits
	Opened   func(rollout.Conversation) (bool, error) // the prompt ends inside a think block; nil: none does
	Settings map[string]string                        // what a later call must agree with
	Tick     func(Progress)                           // one call at a time
}

// BeginsInside says whether an answer begins inside a think block.
func (a Asking) BeginsInside(talk rollout.Conversation) (bool, error) {
	if a.Opened == nil {
		return false, nil
	}
	return a.Opened(talk)
}

// Ask puts every row to the model in the words of talk, and notes it with its answer; nil: its prompt does not fit.
func Ask[R any](ctx context.Context, a Asking, rows []R, talk func(R) (rollout.Conversation, error),
	note func(R, rollout.Conversation, *rollout.Answer) error) error {
	batches := slices.Collect(slices.Chunk(rows, max(a.Batch, 1)))
	return InParallel(ctx, a.Parallel, len(batches), func(ctx context.Context, i int) error {
		var asked []R
		var talks []rollout.Conversation
		for _, row := range batches[i] {
			c, err := talk(row)
			fits := true
			if err == nil && a.Fits != nil {
				fits, err = a.Fits(c)
			}
			switch {
			case err != nil:
			case fits:
				asked, talks = append(asked, row), append(talks, c)
			default:
				err = note(row, c, nil)
			}
			if err != nil {
				return err
			}
		}
		if len(asked) == 0 {
			return nil
		}
		answers, err := a.Chat.Answer(ctx, talks)
		for i := 0; i < len(asked) && err == nil; i++ {
			err = note(asked[i], talks[i], &answers[i][0])
		}
		return err
	})
}
