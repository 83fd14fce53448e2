package protocol_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/posttrain/posttrain/federated/protocol"
)

// TestPause: a pause takes its time and ends with its context.
func TestPause(t *testing.T) {
	o := protocol.RandomQuadratic(2, 1)
	o.Pause = 5 * time.Millisecond
	w := o.Of(0, 1)
	start := time.Now()
	if _, err := w.Collect(t.Context(), w.Start(), 0); err != nil || time.Since(start) < o.Pause {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	o.Pause = time.Hour
	w = o.Of(0, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := w.Collect(ctx, w.Start(), 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
