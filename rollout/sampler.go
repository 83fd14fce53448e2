package rollout

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/posttrain/posttrain/model"
)

// Reasons why a completion ends.
const (
	EOS        = "eos"    // a stop token, which is the completion's last
	Length     = "length" // MaxNew tokens, or as many as the model has positions for
	StopString = "stop"   // one of the request's stop strings stands in the text
)

// Request is a prompt and how to continue it.
//
// Temperature, TopK, TopP and MinP cut off unlikely tokens in this order, as transformers does: the temperature divides
// the logits; TopK keeps the K likeliest; TopP keeps of these the likeliest, as few as it takes for their share to reach
// P; MinP keeps those at least MinP times as likely as the likeliest. Tokens as likely as the last one kept are kept
// too. The likeliest token is always kept, so that nothing of this matters to a greedy request.
type Request struct {
	Prompt      []int32                         // at least one token
	MaxNew      int                             // most tokens drawn
	Temperature float64                         // 0: always the likeliest token, the lowest id of equals
	TopK        int                             // 0: off
	TopP        float64                         // 0 or 1: off
	MinP        float64                         // 0: off
	Seed        uint64                          // of the draws
	Stop        []int32                         // tokens that end the completion; nil: the model's EOS ids
	StopStrings []string                        // texts that end the completion, wherever tokens begin and end; the sampler needs a Decoder
	OnToken     func(token int32, logp float32) // nil: none; told of every token as soon as it is drawn, by the goroutine that called Sample
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
	Tokens []int32   // all that were drawn
	Logps  []float32 // log-prob of every token under the model itself, at temperature 1, nothing cut off, as a trainer measures it
	Reason string    // EOS, Length or StopString
	Text   string    // the tokens decoded, without a stop token and without a stop string and what follows it; special tokens stay; "" without a Decoder
}

// Sampler answers requests. Its promises:
//   - completions stand in the order of the requests, of which there may be any number;
//   - the draws of a request depend on its seed and the tokens' indices alone; so its tokens do not depend on the
//     other requests, but for ties at the edge of two tokens that rounding decides;
//   - tokens come from the weights as they are when Sample is called;
//   - an error names the request by its index, or is the context's cause: Sample looks at it between two tokens.
type Sampler interface {
	Sample(ctx context.Context, requests []Request) ([]Completion, error)
}

// Decoder turns tokens into text.
type Decoder interface {
	Decode(ids []int32, skipSpecial bool) string
}

// Options of a sampler.
type Options struct {
	Graph   model.GraphOptions
	Decoder Decoder // of completions' texts and stop strings; nil: no texts
	Slots   int     // rows decoded together at most; 0: 128

	NoSharing    bool // for benchmarks: requests of one prompt read it once each
	NoCompaction bool // for benchmarks: finished rows keep their places until the last one ends
}

// limits are what a model and a sampler can take.
type limits struct {
	vocabulary, positions int
	decoder               bool
}

// check names what is wrong with a request, if anything.
func (l limits) check(r Request) error {
	switch {
	case len(r.Prompt) == 0:
		return fmt.Errorf("empty prompt: want one token or more")
	case len(r.Prompt) >= l.positions:
		return fmt.Errorf("prompt of %d tokens: the model has %d positions, want fewer tokens", len(r.Prompt), l.positions)
	case r.MaxNew < 1:
		return fmt.Errorf("%d new tokens: want 1 or more", r.MaxNew)
	}
	if i := slices.IndexFunc(r.Prompt, func(t int32) bool { return t < 0 || int(t) >= l.vocabulary }); i >= 0 {
		return fmt.Errorf("token %d of the prompt is %d: the model has ids 0 to %d", i, r.Prompt[i], l.vocabulary-1)
	}
	if err := l.checkStops(r); err != nil {
		return err
	}
	return r.checkRule()
}

func (l limits) checkStops(r Request) error {
	if len(r.StopStrings) > 0 && !l.decoder {
		return fmt.Errorf("stop string %q: the sampler has no decoder to find it with", r.StopStrings[0])
	}
	if i := slices.Index(r.StopStrings, ""); i >= 0 {
		return fmt.Errorf("stop string %d is empty: want one byte or more", i)
	}
	return nil
}

// checkRule looks at the numbers that a token is chosen by.
func (r Request) checkRule() error {
	switch {
	case !(r.Temperature >= 0) || math.IsInf(r.Temperature, 0):
		return fmt.Errorf("temperature %v: want 0 (greedy) or more", r.Temperature)
	case r.TopK < 0:
		return fmt.Errorf("top-k %d: want 0 (off) or more", r.TopK)
	case !(r.TopP >= 0 && r.TopP <= 1):
		return fmt.Errorf("top-p %v: want 0 to 1 (both: off)", r.TopP)
	case !(r.MinP >= 0 && r.MinP <= 1):
		return fmt.Errorf("min-p %v: want 0 (off) to 1", r.MinP)
	}
	return nil
}

// checkAll names the first bad request.
func (l limits) checkAll(requests []Request) error {
	for i, r := range requests {
		if err := l.check(r); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	return nil
}
