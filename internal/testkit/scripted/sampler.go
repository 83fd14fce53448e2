// Package scripted has a sampler that reads its completions from a script.
package scripted

import (
	"context"

	"github.com/posttrain/posttrain/rollout"
)

// Sampler answers every request with what Answer returns. It looks at the context before each.
type Sampler struct {
	Answer func(r rollout.Request, nth int) rollout.Completion // nth: requests answered before, over all calls
	Asked  []rollout.Request                                   // all requests so far
}

// Sample implements [rollout.Sampler].
func (s *Sampler) Sample(ctx context.Context, requests []rollout.Request) (completions []rollout.Completion, err error) {
	for _, r := range requests {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		nth := len(s.Asked)
		s.Asked = append(s.Asked, r)
		completions = append(completions, s.Answer(r, nth))
	}
	return completions, nil
}

// Says is a completion with a text, whose tokens are as many as the text has bytes, below the given vocabulary. It does not
// tell log-probs.
func Says(text string, vocabulary int) rollout.Completion {
	c := rollout.Completion{Text: text, Reason: rollout.EOS}
	for _, b := range []byte(text) {
		c.Tokens = append(c.Tokens, int32(int(b)%vocabulary))
	}
	return c
}
