package grpo

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout"
)

// watched is a sampler that says how far it is.
type watched struct {
	rollout.Sampler
	say func(run.Part)

	mu    sync.Mutex
	part  run.Part
	begun int // answers that have a token
	ended int // tokens of those that have ended
	most  int // tokens of an answer
}

// Sampling is the part of a step that draws its answers.
const Sampling = "sampling"

// watch makes a sampler that says how far it is with a number of answers; what is their purpose.
func (rs *Rollouts) watch(what string, answers int) rollout.Sampler {
	if rs.OnPart == nil {
		return rs.Sampler
	}
	w := &watched{Sampler: rs.Sampler, say: rs.OnPart, most: rs.longest()}
	w.part = run.Part{What: what, Total: answers, Start: time.Now()}
	w.say(w.part)
	return w
}

// Sample implements [rollout.Sampler]. Servers do not say an answer's tokens before its end.
func (w *watched) Sample(ctx context.Context, requests []rollout.Request) ([]rollout.Completion, error) {
	requests = slices.Clone(requests)
	for i := range requests {
		own := 0
		requests[i].OnToken = func(int32, float32) { w.count(&own, 1, false) }
		requests[i].OnEnd = func(tokens int) { w.count(&own, tokens-own, true) }
	}
	return w.Sampler.Sample(ctx, requests)
}

// count counts tokens of an answer, which has own so far. For the share of the work, an answer that has begun counts as
// the longest one until it ends; those that have not are as long as these on average.
func (w *watched) count(own *int, tokens int, ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &w.part
	if *own == 0 {
		w.begun++
	}
	*own, p.Tokens = *own+tokens, p.Tokens+tokens
	if ended {
		p.Done, w.ended = p.Done+1, w.ended+*own
	}
	mean := float64(w.ended+(w.begun-p.Done)*w.most) / float64(w.begun)
	p.Share = float64(p.Tokens) / (mean * float64(p.Total))
	w.say(*p)
}
