package grpo

import (
	"context"

	"github.com/posttrain/posttrain/rollout"
)

// scripted is a sampler that answers every request with Answer, and stops when the context ends.
type scripted struct {
	Answer func(r rollout.Request, nth int) rollout.Completion // nth: requests answered before, over all calls
	Asked  []rollout.Request                                   // all requests so far
}

// Sample implements [rollout.Sampler].
func (s *scripted) Sample(ctx context.Context, requests []rollout.Request) (all []rollout.Completion, err error) {
	for _, r := range requests {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		nth := len(s.Asked)
		s.Asked = append(s.Asked, r)
		all = append(all, s.Answer(r, nth))
	}
	return all, nil
}

// says is a completion with a text. It has a token below the given vocabulary for each byte, and no log-probs.
func says(text string, vocabulary int) rollout.Completion {
	c := rollout.Completion{Text: text, Reason: rollout.EOS}
	for _, b := range []byte(text) {
		c.Tokens = append(c.Tokens, int32(int(b)%vocabulary))
	}
	return c
}
