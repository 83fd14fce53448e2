package rollout

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/model"
)

// Reasons for the end of a completion.
const (
	EOS        = "eos"    // a stop token, the completion's last
	Length     = "length" // MaxNew tokens, or no position left
	StopString = "stop"   // the text has one of the request's stop strings

	// Missing is the reason of a completion that no server gave; it has no tokens.
	Missing = "missing"
)

// Sampling says how tokens are drawn.
//
// Temperature, TopK, TopP and MinP drop unlikely tokens in this order, as transformers does: the temperature divides
// the logits; TopK keeps the K likeliest tokens; TopP keeps the fewest of the likeliest whose share reaches P; MinP
// keeps tokens at least MinP times as likely as the likeliest. A token as likely as the last one kept is kept too.
// The likeliest token is always kept.
type Sampling struct {
	MaxNew      int      `yaml:"max_new_tokens" want:">=1" flag:"max-new-tokens" help:"most tokens of an answer"`
	Temperature float64  `yaml:"temperature" want:">=0" zero:"greedy" flag:"temperature" help:"of the draws; 0 always takes the likeliest token"`
	TopK        int      `yaml:"top_k" want:">=0" zero:"off" flag:"top-k" help:"draw only from the k likeliest tokens; 0: off"`
	TopP        float64  `yaml:"top_p" want:">=0 <=1" zero:"off" flag:"top-p" help:"draw only from the likeliest tokens that together have this probability; 0: off"`
	MinP        float64  `yaml:"min_p" want:">=0 <=1" zero:"off" flag:"min-p" help:"draw only from tokens at least this share as likely as the likeliest; 0: off"`
	Stop        []string `yaml:"stop,omitempty" want:"@text" words:"texts that are not empty" flag:"stop,exact" help:"text that ends an answer (may be repeated)"`
	KeepSpecial bool     `yaml:"keep_special_tokens" flag:"keep-special-tokens" json:",omitempty" help:"leave special tokens in the text of answers, as skip_special_tokens false of other programs"`
}

// CheckVaried refuses draws that cannot differ. why ends in what is wanted: "all answers would be the same: want ".
func (s Sampling) CheckVaried(why string) []fault.Fault {
	var faults fault.Faults
	if s.Temperature == 0 {
		faults.Add("temperature", 0, "%s", why+"a number above 0")
	}
	if s.TopK == 1 {
		faults.Add("top_k", 1, "%s", why+"2 or more, or 0 (off)")
	}
	if s.MinP == 1 {
		faults.Add("min_p", 1, "%s", why+"a number below 1")
	}
	return faults
}

// Check names values out of range, and rules that temperature 0 makes useless.
func (s Sampling) Check() []fault.Fault {
	faults := fault.Faults(s.outOfRange())
	idle := func(used bool, key string, value any) {
		if used && s.Temperature == 0 {
			faults.Add(key, value, "temperature 0 always takes the likeliest token; remove one of the two")
		}
	}
	idle(s.TopK > 0, "top_k", s.TopK)
	idle(s.TopP > 0 && s.TopP < 1, "top_p", s.TopP)
	idle(s.MinP > 0 && s.MinP <= 1, "min_p", s.MinP)
	return faults
}

// outOfRange names the values that no sampler accepts.
func (s Sampling) outOfRange() []fault.Fault {
	faults := fault.Check(s)
	if slices.Contains(s.Stop, "") {
		faults.Add("stop", "", "want texts that are not empty")
	}
	return faults
}

// Request is a prompt and how to continue it.
type Request struct {
	Sampling           // the sampler needs a Decoder for Stop
	Prompt     []int32 // at least one token
	Seed       uint64  // of the draws
	StopTokens []int32 // end the completion; nil: the model's EOS ids

	Adjust Adjust // of the logits
	Top    int    // likeliest tokens that OnTop gets

	Open func() World // the world of an episode, see [Episodes]; nil: the completion is one message

	// more gives what continues a completion: a prompt that begins with all its tokens; nil: it is over. Only [Cached]
	// asks, on engines that share the host's memory.
	more  func(Completion) (*Request, error)
	about int // tokens after the prompt that the cache of a request with more should have room for

	// OnToken is called with every token as it is drawn, in Sample's goroutine; may be nil.
	OnToken func(token int32, logp float32)
	// OnTop is called before it with the likeliest tokens in the place of that one, the likeliest first; may be nil.
	OnTop func(likeliest []Likely)
	// OnEnd is called with the tokens that were drawn, when an answer or an episode has ended, in any goroutine; may be
	// nil.
	OnEnd func(tokens int)
}

// DrawSeed gives prompt i of a list the seed of its draws.
func DrawSeed(seed uint64, i int) uint64 { return rand.New(rand.NewPCG(seed, uint64(i))).Uint64() }

// Samples returns n copies of r with seeds derived from its seed.
func (r Request) Samples(n int) []Request {
	out := make([]Request, n)
	for i := range out {
		out[i] = r
		out[i].Seed = Mix(r.Seed ^ Mix(uint64(i)+1))
	}
	return out
}

// Completion is a model's answer to a request.
type Completion struct {
	Tokens []int32   // all drawn tokens; of an episode with what the world replied
	Logps  []float32 // log-prob of each token under the model: at temperature 1, as a trainer measures it
	Reason string    // EOS, Length or StopString; of an episode its last message's, or Turns

	// Of an episode.
	Drawn    []bool // the tokens that the model drew; nil: all. The others' log-probs are 0
	Messages int    // of the model
	World    World  // that the episode was with

	Version int // of the weights that drew it, where they are on servers: it counts their changes

	// Text is the decoded tokens up to a stop token or stop text ([AnswerText]); "" without a Decoder. Of an episode it
	// is the last message. Raw is the same with special tokens, where that differs.
	Text, Raw string
}

// Sampler answers requests. Its promises:
//   - completions are in the order of the requests, of which there may be any number;
//   - a request's draws depend only on its seed and the tokens' indices, so its tokens do not depend on the other
//     requests, except if a draw is so close to the boundary of two tokens that rounding decides;
//   - tokens come from the weights at the time of the call;
//   - an error names the request by its index, or is the context's cause, which is checked between two tokens.
type Sampler interface {
	Sample(ctx context.Context, requests []Request) ([]Completion, error)
}

// ServerError is the error of a sampler on other machines: the model's weights did not cause it.
type ServerError struct{ Err error }

func (e ServerError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e ServerError) Unwrap() error { return e.Err }

// Decoder turns tokens into text.
type Decoder interface {
	Decode(ids []int32, skipSpecial bool) string
}

// A Settler is a decoder that says whether the text of ids stays whatever ids follow. For other decoders it does,
// unless it ends with U+FFFD: a character that is not complete.
type Settler interface {
	Settled(ids []int32) bool
}

// Options of a sampler.
type Options struct {
	Graph   model.GraphOptions
	Decoder Decoder // of texts and stop texts; nil: completions have no text
	Slots   int     // most rows decoded together; 0: 128, on engines with memory of their own 512
	// CacheGB bounds the cache of keys and values, in gigabytes; 0: a quarter of the device's memory, or of the
	// machine's.
	CacheGB float64
}

// check refuses a request to a model, by a sampler with a decoder or without.
func (r Request) check(c *model.Config, d Decoder) error {
	switch {
	case len(r.Prompt) == 0:
		return fmt.Errorf("empty prompt: want one token or more")
	case len(r.Prompt) >= c.MaxPositions:
		return fmt.Errorf("prompt of %d tokens: the model has %d positions, want fewer tokens",
			len(r.Prompt), c.MaxPositions)
	case len(r.Stop) > 0 && d == nil:
		return fmt.Errorf("stop string %q: the sampler has no decoder to find it with", r.Stop[0])
	}
	unknown := func(t int32) bool { return t < 0 || int(t) >= c.VocabSize }
	if i := slices.IndexFunc(r.Prompt, unknown); i >= 0 {
		return fmt.Errorf("token %d of the prompt is %d: the model has ids 0 to %d", i, r.Prompt[i], c.VocabSize-1)
	}
	if faults := r.outOfRange(); faults != nil {
		return faults[0]
	}
	return nil
}
