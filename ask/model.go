package ask

import (
	"context"
	"fmt"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/rollout"
)

// Model answers questions. Its promises:
//   - answers are in the order of the questions, Samples for each;
//   - an error says in one line what is wrong; if the context has ended it is the cause.
type Model interface {
	Answer(ctx context.Context, questions []Question) ([][]Answer, error)
}

// Local is a Model in this process.
type Local struct {
	Sampler rollout.Sampler // with a Decoder
	Encoder *batch.Encoder  // of questions without Tokens
	Tick    func(done int)  // called with the number of questions answered; may be nil
}

// Prompt returns the tokens of a question's prompt.
func (l *Local) Prompt(q *Question) ([]int32, error) {
	if q.Tokens != nil {
		return q.Tokens, nil
	}
	return l.Encoder.Prefilled(q.Prompt, q.Prefill)
}

// Answer samples one batch after the other. An answer that no server gives is an error.
func (l *Local) Answer(ctx context.Context, questions []Question) ([][]Answer, error) {
	asked := make([]Question, len(questions))
	for i := range questions {
		tokens, err := l.Prompt(&questions[i])
		if err != nil {
			return nil, fmt.Errorf("prompt %d: %w", i, err)
		}
		asked[i] = questions[i]
		asked[i].Tokens = tokens
	}
	answers := make([][]Answer, 0, len(questions))
	for at := 0; at < len(asked); {
		part, err := Sample(ctx, l.Sampler, asked[at:at+batchOf(asked[at:])])
		if err != nil {
			return nil, err
		}
		for i, some := range part {
			for k := range some {
				if some[k].To = &questions[at+i]; some[k].Reason == rollout.Missing {
					return nil, rollout.ServerError{Err: fmt.Errorf("prompt %d: no server gives an answer", at+i)}
				}
			}
		}
		answers = append(answers, part...)
		if at += len(part); l.Tick != nil {
			l.Tick(at)
		}
	}
	return answers, nil
}

// together is how many requests a call of a sampler has. It decodes about that many together anyway, so that smaller
// calls report progress at no cost.
const together = 128

// batchOf is how many questions one call of the sampler answers.
func batchOf(questions []Question) int {
	requests := 0
	for n, q := range questions {
		if requests += max(q.Samples, 1); requests > together && n > 0 {
			return n
		}
	}
	return len(questions)
}

// AtOnce is how many questions with this number of answers each a call has. It is the same in a run that was
// interrupted, so that its answers are, too: rounding may depend on what is decoded together.
func AtOnce(samples int) int { return max(1, together/samples) }

// Sample draws the answers to questions with Tokens in one call of a sampler, for each question in the order of its
// samples. Some may have the reason [rollout.Missing].
func Sample(ctx context.Context, s rollout.Sampler, questions []Question) ([][]Answer, error) {
	var requests []rollout.Request
	answers := make([][]Answer, len(questions))
	for i := range questions {
		own := questions[i].Requests()
		requests = append(requests, own...)
		answers[i] = make([]Answer, len(own))
	}
	completions, err := s.Sample(ctx, requests)
	if err == nil && len(completions) != len(requests) {
		err = fmt.Errorf("%d completions of %d requests", len(completions), len(requests))
	}
	if err != nil {
		return nil, err
	}
	for i := range answers {
		for k := range answers[i] {
			answers[i][k] = Answer{Completion: completions[0], To: &questions[i]}
			completions = completions[1:]
		}
	}
	return answers, nil
}
