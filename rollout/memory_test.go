package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
)

// TestAFullDeviceSaysWhatToLower: the error of a device without memory, which stops a call of either kind,
// names the option.
func TestAFullDeviceSaysWhatToLower(t *testing.T) {
	full := fmt.Errorf("run step on xla: %w: 12 bytes", backend.ErrMemory)
	ctx, stop := context.WithCancelCause(t.Context())
	stop(full)
	s := first(newCached(t, backendtest.Go(t), testkit.Model(t, "llama"), Options{}))
	rs := requests(1, 4, 0)
	_, called := s.Sample(ctx, rs)
	continuous := s.SampleContinuously(ctx, 1, func(int) []Arrival { return []Arrival{{Request: rs[0]}} })
	for name, err := range map[string]error{"a call": called, "a arrivals": continuous} {
		if !errors.Is(err, backend.ErrMemory) || !strings.Contains(err.Error(), "lower cache_gb") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if other := errors.New("x"); adviseMemory(other) != other || adviseMemory(nil) != nil {
		t.Error("another error changed")
	}
}
