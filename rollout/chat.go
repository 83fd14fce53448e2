package rollout

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
)

// Conversation is a chat and how to continue it.
type Conversation struct {
	Sampling // a server has no TopK and MinP; its own limit applies where MaxNew is 0
	Messages []data.Message
	Prefill  string // the beginning of the answer, which its text leaves out; of a server see [Dialect]
	Samples  int    // answers wanted; 0: 1
	Seed     uint64 // of the draws; a server may ignore it

	TopLogprobs int // likeliest first tokens of an answer to report (Answer.First); a server's alone; 0: none

	Schema json.RawMessage // JSON Schema of the answer, where a server offers structured output; nil: free text

	// OneDraw: Seed is the request's own, as in a call of the sampler. Otherwise the samples' seeds are derived from
	// it.
	OneDraw bool
}

// Answer is a model's reply in a chat.
type Answer struct {
	Text   string
	Tokens int    // how many the model drew; 0: a server does not say
	Reason string // EOS (servers use it for stop texts too), StopString, Length or the server's own word

	First *FirstToken // of a server's answer; nil: not asked for, or not given
	Usage Usage       // of a server's reply, at the first of its answers
}

// FirstToken is what could have begun an answer.
type FirstToken struct {
	Logprobs map[string]float64 // log-probabilities of the likeliest tokens, by their texts
}

// Chat answers conversations. Its promises:
//   - answers are in the order of the conversations, Samples for each;
//   - an error says in one line what is wrong; if the context has ended it is the cause.
type Chat interface {
	Answer(ctx context.Context, conversations []Conversation) ([][]Answer, error)
}

// Local is a Chat with a model in this process.
type Local struct {
	Sampler Sampler // with a Decoder
	Encoder *batch.Encoder
	Tick    func(done int) // called with the number of conversations answered; may be nil
}

// Prompt returns the tokens of a conversation's prompt.
func (l *Local) Prompt(c Conversation) ([]int32, error) {
	return l.Encoder.Prefilled(data.Text{Messages: c.Messages}, c.Prefill)
}

// Answer samples one batch after the other.
func (l *Local) Answer(ctx context.Context, conversations []Conversation) ([][]Answer, error) {
	var answers [][]Answer
	for at := 0; at < len(conversations); {
		n := batchOf(conversations[at:])
		part, err := l.answer(ctx, conversations[at:at+n], at)
		if err != nil {
			return nil, err
		}
		answers = append(answers, part...)
		if at += n; l.Tick != nil {
			l.Tick(at)
		}
	}
	return answers, nil
}

// chatBatch is the number of requests per call of the sampler. It decodes about that many together anyway, so smaller
// calls report progress at no cost.
const chatBatch = 128

// batchOf returns how many conversations one call of the sampler answers.
func batchOf(conversations []Conversation) int {
	requests := 0
	for n, c := range conversations {
		if requests += max(c.Samples, 1); requests > chatBatch && n > 0 {
			return n
		}
	}
	return len(conversations)
}

// answer samples one batch; first is the index of its first conversation.
func (l *Local) answer(ctx context.Context, conversations []Conversation, first int) ([][]Answer, error) {
	var requests []Request
	var owners []int
	for i, c := range conversations {
		prompt, err := l.Prompt(c)
		if err != nil {
			return nil, fmt.Errorf("conversation %d: %w", first+i, err)
		}
		for _, r := range c.requests(prompt) {
			requests, owners = append(requests, r), append(owners, i)
		}
	}
	completions, err := l.Sampler.Sample(ctx, requests)
	if err != nil {
		return nil, err
	}
	answers := make([][]Answer, len(conversations))
	for i, c := range completions {
		if c.Reason == Missing {
			return nil, ServerError{fmt.Errorf("conversation %d: no server gives an answer", first+owners[i])}
		}
		answers[owners[i]] = append(answers[owners[i]], Answer{Text: c.Text, Tokens: len(c.Tokens), Reason: c.Reason})
	}
	return answers, nil
}

// requests are the conversation's, one for each sample.
func (c Conversation) requests(prompt []int32) []Request {
	r := Request{Sampling: c.Sampling, Prompt: prompt, Seed: c.Seed}
	if c.OneDraw {
		return []Request{r}
	}
	return r.Samples(max(c.Samples, 1))
}
