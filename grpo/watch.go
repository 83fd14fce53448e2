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

// Sample implements [rollout.Sampler].
func (w *watched) Sample(ctx context.Context, requests []rollout.Request) ([]rollout.Completion, error) {
	requests = slices.Clone(requests)
	for i := range requests {
		own := 0
		requests[i].OnToken = func(int32, float32) { w.add(&own, 1) }
		requests[i].OnEnd = func(tokens int) { w.end(&own, tokens) }
	}
	return w.Sampler.Sample(ctx, requests)
}

// add counts tokens of an answer, which has own so far.
func (w *watched) add(own *int, tokens int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if *own == 0 {
		w.begun++
	}
	*own += tokens
	w.part.Tokens += tokens
	w.part.Share = w.share()
	w.say(w.part)
}

// end counts an answer that has ended. Servers do not say its tokens before.
func (w *watched) end(own *int, tokens int) {
	w.add(own, tokens-*own)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.part.Done, w.ended = w.part.Done+1, w.ended+tokens
	w.say(w.part)
}

// share is the part of the tokens that are drawn. An answer that has begun counts as the longest one until it ends;
// those that have not are as long as these on average.
func (w *watched) share() float64 {
	mean := float64(w.ended+(w.begun-w.part.Done)*w.most) / float64(w.begun)
	return float64(w.part.Tokens) / (mean * float64(w.part.Total))
}
