package rollout

import (
	"fmt"
	"math"
	"slices"
)

// Reasons why a completion ends.
const (
	EOS    = "eos"    // a stop token, which is the completion's last
	Length = "length" // MaxNew tokens, or as many as the model has positions for
)

// Request is a prompt and how to continue it.
type Request struct {
	Prompt      []int32 // at least one token
	MaxNew      int     // most tokens drawn
	Temperature float64 // 0: always the likeliest token, the lowest id of equals
	Seed        uint64  // of the draws
	Stop        []int32 // tokens that end the completion; nil: the model's EOS ids
}

// Samples are n requests like r, with seeds of their own that follow from r's.
func (r Request) Samples(n int) []Request {
	out := make([]Request, n)
	for i := range out {
		out[i] = r
		out[i].Seed = mix(r.Seed ^ mix(uint64(i)+1))
	}
	return out
}

// Completion is what a model answered.
type Completion struct {
	Tokens []int32
	Logps  []float32 // log-prob of every token under the model itself, at temperature 1, as a trainer measures it
	Reason string    // EOS or Length
}

// Sampler answers requests. Its promises:
//   - completions stand in the order of the requests;
//   - the draws of a request depend on its seed and the tokens' indices alone; so its tokens do not depend on the
//     other requests, but for ties at the edge of two tokens that rounding decides;
//   - tokens come from the weights as they are when Sample is called;
//   - an error names the request by its index.
type Sampler interface {
	Sample(requests []Request) ([]Completion, error)
}

// limits are what a model can take.
type limits struct{ vocabulary, positions int }

// check names what is wrong with a request, if anything.
func (l limits) check(r Request) error {
	switch {
	case len(r.Prompt) == 0:
		return fmt.Errorf("empty prompt: want one token or more")
	case len(r.Prompt) >= l.positions:
		return fmt.Errorf("prompt of %d tokens: the model has %d positions, want fewer tokens", len(r.Prompt), l.positions)
	case r.MaxNew < 1:
		return fmt.Errorf("%d new tokens: want 1 or more", r.MaxNew)
	case !(r.Temperature >= 0) || math.IsInf(r.Temperature, 0):
		return fmt.Errorf("temperature %v: want 0 (greedy) or more", r.Temperature)
	}
	if i := slices.IndexFunc(r.Prompt, func(t int32) bool { return t < 0 || int(t) >= l.vocabulary }); i >= 0 {
		return fmt.Errorf("token %d of the prompt is %d: the model has ids 0 to %d", i, r.Prompt[i], l.vocabulary-1)
	}
	return nil
}
