package judge

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// TestRun: all tasks once, so many at a time, results in order, however long each takes.
func TestRun(t *testing.T) {
	for _, n := range []int{0, 1, 5, 300} {
		var now, most atomic.Int32
		var got []int
		err := Run(t.Context(), n, 7, func(_ context.Context, i int) (int, error) {
			if now := now.Add(1); now > most.Load() {
				most.Store(now)
			}
			defer now.Add(-1)
			time.Sleep(rand.N(2 * time.Millisecond))
			return i * i, nil
		}, func(i, r int) error {
			if r != i*i {
				t.Errorf("task %d: %d", i, r)
			}
			got = append(got, i)
			return nil
		})
		if err != nil || len(got) != n || !slices.IsSorted(got) || most.Load() > 7 {
			t.Errorf("%d tasks: %v, %v, %d at a time", n, got, err, most.Load())
		}
	}
}

// TestRunKeepsMemoryFlat: one slow task holds back those far behind it.
func TestRunKeepsMemoryFlat(t *testing.T) {
	var started atomic.Int32
	release := make(chan struct{})
	go func() {
		time.Sleep(50 * time.Millisecond)
		if n := started.Load(); n > 4*ahead {
			t.Errorf("%d tasks ran ahead of the first, want %d at most", n, 4*ahead)
		}
		close(release)
	}()
	err := Run(t.Context(), 10000, 4, func(_ context.Context, i int) (struct{}, error) {
		if started.Add(1); i == 0 {
			<-release
		}
		return struct{}{}, nil
	}, func(int, struct{}) error { return nil })
	if err != nil || started.Load() != 10000 {
		t.Errorf("%v after %d tasks", err, started.Load())
	}
}

// TestRunStops: at the first error, or with its context; what was taken has no gap.
func TestRunStops(t *testing.T) {
	why := errors.New("enough")
	for _, where := range []string{"task", "take", "context"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		fail := func(here string, i int) error {
			if i == 50 && here == where {
				return why
			}
			return nil
		}
		var asked atomic.Int32
		next := 0
		err := Run(ctx, 10000, 4, func(ctx context.Context, i int) (int, error) {
			asked.Add(1)
			time.Sleep(time.Millisecond)
			if fail("context", i) != nil {
				cancel(why)
			}
			return i, fail("task", i)
		}, func(i, _ int) error {
			if i != next {
				t.Errorf("%s: %d after %d", where, i, next-1)
			}
			next++
			return fail("take", i)
		})
		if err != why || next < 40 || asked.Load() > 50+2*4*ahead {
			t.Errorf("%s: %v after %d tasks, %d taken", where, err, asked.Load(), next)
		}
		cancel(nil)
	}
}
