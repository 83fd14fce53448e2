package ask

import (
	"encoding/json"
	"fmt"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/rollout"
)

// Question is a prompt, how it is answered, and what its answers are scored by.
type Question struct {
	rollout.Sampling           // a server has no TopK and MinP; its own limit applies where MaxNew is 0
	Prompt           data.Text // a text, or a conversation
	Source           string    // its place in a file, for messages

	Prefill string  // the beginning of the answer, which Answer.Text leaves out
	Opened  bool    // the chat template opens the think block: [Fit] finds out, a server's user says
	Tokens  []int32 // the prompt with the prefill, after [Fit]

	Samples int    // answers wanted; 0: 1
	Seed    uint64 // of the draws; a server may ignore it
	// OneDraw: Seed is the request's own, as in a call of the sampler. Otherwise the samples' seeds are derived from
	// it.
	OneDraw bool

	Item   *ci.Item       // whose keywords a judge looks for; nil: none
	Row    map[string]any // the other columns of its row, which a judge may use; nil: none
	Target string         // what answers are compared with, such as the right one: a run is not resumed with others

	Open func() rollout.World `json:"-"` // the world of an episode of it; nil: an answer is one message

	TopLogprobs int             // likeliest first tokens of an answer to report (Answer.First); a server's alone; 0: none
	Schema      json.RawMessage // JSON Schema of the answer, where a server offers structured output; nil: free text
}

// Of is the question of a file's prompt.
func Of(p data.PromptRow) Question { return Question{Prompt: p.Prompt, Source: p.Source, Row: p.Row} }

// Thinks says that the answer begins inside the think block.
func (q *Question) Thinks() bool { return q.Opened || q.Prefill != "" }

// Head is the beginning of an answer that belongs to it: what the chat template writes belongs to the prompt.
func (q *Question) Head() string {
	if q.Opened {
		return ""
	}
	return q.Prefill
}

// Messages are the prompt's; a text is the user's message.
func (q *Question) Messages() []data.Message {
	if q.Prompt.IsChat() || q.Prompt.Plain == "" {
		return q.Prompt.Messages
	}
	return []data.Message{{Role: "user", Content: q.Prompt.Plain}}
}

// Requests are the question's for a sampler, one for each sample. Tokens is set.
func (q *Question) Requests() []rollout.Request {
	r := rollout.Request{Sampling: q.Sampling, Prompt: q.Tokens, Seed: q.Seed, Open: q.Open}
	if m := q.Prompt.Messages; len(m) > 0 && m[0].Tools != "" {
		r.KeepSpecial = true // the marks of calls may be special tokens
	}
	if q.OneDraw {
		return []rollout.Request{r}
	}
	return r.Samples(max(q.Samples, 1))
}

// Answer is a completion of a question.
type Answer struct {
	rollout.Completion           // of a server: Text and Reason alone
	To                 *Question // nil: not said
	Said               data.Text // the response as a file has it; zero: Text as the reply to the prompt
	Score              Score     // after a judge has been asked

	First *FirstToken // of a server's answer; nil: not asked for, or not given
	Usage Usage       // of a server's reply, at the first of its answers
}

// Response is what follows the prompt: a text, or the conversation's next messages.
func (a *Answer) Response() data.Text {
	if a.Said.IsChat() || a.Said.Plain != "" {
		return a.Said
	}
	return a.To.Prompt.Reply(a.To.Head() + a.Text)
}

// Length is how many tokens the model drew; 0: a server does not say.
func (a *Answer) Length() int {
	if n := a.DrawnTokens(); n > 0 {
		return n
	}
	return a.Usage.CompletionTokens
}

// FirstToken is what could have begun an answer.
type FirstToken struct {
	Logprobs map[string]float64 // log-probabilities of the likeliest tokens, by their texts
}

// Usage counts a server's work.
type Usage struct {
	Requests         int `json:"requests"` // answered
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
}

// Left says how many questions were left out because their prompts are too long.
type Left struct{ Count, Of, Limit, Longest int }

func (l Left) String() string {
	return fmt.Sprintf("%d of %d prompts left out: they have no token, or more than %d tokens (the longest has %d)",
		l.Count, l.Of, l.Limit, l.Longest)
}

// And adds what was left out of other questions.
func (l Left) And(other Left) Left {
	return Left{l.Count + other.Count, l.Of + other.Of, other.Limit, max(l.Longest, other.Longest)}
}

// Err is an error where no question is left.
func (l Left) Err() error {
	if l.Count < l.Of {
		return nil
	}
	return fmt.Errorf("no prompt fits: all %d have more than %d tokens (the longest has %d)", l.Of, l.Limit, l.Longest)
}

// Fit encodes the prompts and leaves out the questions without a token, and those with more than limit; 0 is no limit.
func Fit(e *batch.Encoder, questions []Question, limit int) (kept []Question, left Left, err error) {
	left.Of, left.Limit = len(questions), limit
	for _, q := range questions {
		if err := q.encode(e); err != nil {
			return nil, left, fmt.Errorf("%s: %w", q.Source, err)
		}
		left.Longest = max(left.Longest, len(q.Tokens))
		if n := len(q.Tokens); n == 0 || limit > 0 && n > limit {
			left.Count++
			continue
		}
		kept = append(kept, q)
	}
	return kept, left, nil
}

// encode finds out the prompt's tokens, and of an item whether the chat template opens the think block.
func (q *Question) encode(e *batch.Encoder) (err error) {
	if q.Tokens, err = e.Prefilled(q.Prompt, q.Prefill); err == nil && q.Item != nil {
		q.Opened, err = e.Opens(q.Prompt, ci.ThinkPrefill)
	}
	return err
}

// SeedDraws gives each question draws of its own, which follow from the seed and the question's place in the list.
func SeedDraws(questions []Question, seed uint64) {
	for i := range questions {
		questions[i].Seed = rollout.DrawSeed(seed, i)
	}
}
