package batch

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// EncodeAll encodes rows on all cores, with a method of the Encoder such as (*Encoder).Preference. The results have the
// order of the rows. An error is the first row's that has one, or the context's.
func EncodeAll[R, T any](ctx context.Context, e *Encoder, rows []R, encode func(*Encoder, R) (T, error)) ([]T, error) {
	all, errs := make([]T, len(rows)), make([]error, len(rows))
	var next, drift, plain, marked atomic.Int64
	var failed, ended atomic.Bool
	var wg sync.WaitGroup
	for range min(len(rows), runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			own := &Encoder{Tokenizer: e.Tokenizer, Converse: e.Converse}
			for !failed.Load() && ctx.Err() == nil {
				i := int(next.Add(1)) - 1 // a row that was taken is encoded: no row before one that fails is missed
				if i >= len(rows) {
					break
				}
				if all[i], errs[i] = encode(own, rows[i]); errs[i] != nil {
					failed.Store(true)
				}
			}
			drift.Add(int64(own.Drift))
			plain.Add(int64(own.Plain))
			marked.Add(int64(own.Marked))
			if own.Ended {
				ended.Store(true)
			}
		})
	}
	wg.Wait()
	e.Drift += int(drift.Load())
	e.Plain += int(plain.Load())
	e.Marked += int(marked.Load())
	e.Ended = e.Ended || ended.Load()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return all, ctx.Err()
}
