package serve

import (
	"crypto/rand"
	"net/http"
	"strings"
	"time"

	"github.com/posttrain/posttrain/rollout"
)

// Replies and chunks of streams in the protocol's format. Fields that clients expect are always present, null if empty.
type (
	reply struct {
		ID      string        `json:"id"`
		Object  string        `json:"object"`
		Created int64         `json:"created"`
		Model   string        `json:"model"`
		Choices []replyChoice `json:"choices"`
		Usage   any           `json:"usage,omitempty"` // *usage, which may be null, or missing
	}
	replyChoice struct {
		Index    int       `json:"index"`
		Message  *message  `json:"message,omitempty"` // of a reply
		Delta    *delta    `json:"delta,omitempty"`   // of a chunk
		Logprobs *logprobs `json:"logprobs"`
		Finish   *string   `json:"finish_reason"`
	}
	delta struct {
		Role    string  `json:"role,omitempty"`
		Content *string `json:"content,omitempty"`
		Calls   []call  `json:"tool_calls,omitempty"`
	}
	message struct {
		Role    string  `json:"role"`
		Content *string `json:"content"` // null where there are only calls
		Calls   []call  `json:"tool_calls,omitempty"`
		Refusal *string `json:"refusal"`
	}
	usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"` // stop tokens included
		Total      int `json:"total_tokens"`
	}
	logprobs struct {
		Content []tokenLogprob `json:"content"`
		Refusal []tokenLogprob `json:"refusal"` // always null
	}
	tokenLogprob struct {
		alternative
		Top []alternative `json:"top_logprobs"`
	}
	alternative struct {
		Token   string  `json:"token"`
		Logprob float32 `json:"logprob"`
		Bytes   []int   `json:"bytes"` // null if the token is not whole characters
	}
)

// finish translates the sampler's reasons.
func finish(reason string) *string {
	if reason != rollout.Length {
		reason = "stop"
	}
	return &reason
}

// finish is the reason of a choice that may have calls.
func (t *toolAsk) finish(reason string, calls []call) *string {
	if calls != nil && reason != rollout.Length {
		called := "tool_calls"
		return &called
	}
	return finish(reason)
}

// newReply begins a reply, or every chunk of a stream.
func (j *job) newReply(object string) reply {
	return reply{ID: "chatcmpl-" + rand.Text(), Object: object, Created: time.Now().Unix(), Model: j.ask.model}
}

// answer waits for a job and writes its reply.
func (s *Server) answer(w http.ResponseWriter, j *job) (status int) {
	for over, err := false, error(nil); !over; {
		if _, over, err = j.wait(); err != nil {
			return s.fail(w, j, err)
		}
	}
	var whole any
	switch {
	case j.ask.plain == nil:
		whole = s.chatReply(j)
	case j.ask.plain.native:
		whole = j.nativeReply()
	default:
		whole = s.plainReply(j)
	}
	if writeJSON(w, http.StatusOK, whole) != nil {
		return statusGone
	}
	return http.StatusOK
}

func (s *Server) chatReply(j *job) reply {
	c := j.newReply("chat.completion")
	c.Usage = j.usage()
	for i, a := range j.choices {
		content, calls := j.ask.calls(a.Text)
		m := &message{Role: "assistant", Content: &content, Calls: calls}
		if calls != nil && content == "" {
			m.Content = nil
		}
		part := replyChoice{Index: i, Message: m, Finish: j.ask.finish(a.Reason, calls)}
		if j.ask.logprobs {
			part.Logprobs = &logprobs{Content: s.logprobs(j.requests[i].Prompt, a.stretch(0, a.ShownTokens(), j.ask))}
		}
		c.Choices = append(c.Choices, part)
	}
	return c
}

func (j *job) usage() *usage {
	u := usage{Prompt: j.countPrompts(), Completion: j.countTokens()}
	u.Total = u.Prompt + u.Completion
	return &u
}

// logprobs describes tokens that follow others. The log-probs are the model's own, at temperature 1.
func (s *Server) logprobs(before []int32, d stretch) []tokenLogprob {
	out := make([]tokenLogprob, len(d.tokens))
	for i, token := range d.tokens {
		out[i] = tokenLogprob{alternative: s.alternative(before, token, d.logps[i]), Top: []alternative{}}
		if d.tops != nil {
			for _, l := range d.tops[i] {
				out[i].Top = append(out[i].Top, s.alternative(before, l.Token, l.Logp))
			}
		}
		before = d.tokens[:i+1]
	}
	return out
}

func (s *Server) alternative(before []int32, token int32, logp float32) alternative {
	alt := alternative{Token: s.text(before, token), Logprob: logp}
	if !strings.Contains(alt.Token, "\uFFFD") {
		alt.Bytes = []int{}
		for _, b := range []byte(alt.Token) {
			alt.Bytes = append(alt.Bytes, int(b))
		}
	}
	return alt
}

// text returns a token's text after other tokens: some decoders remove a space from the first one.
func (s *Server) text(before []int32, token int32) string {
	d := s.options.Decoder
	if len(before) > 0 {
		last := before[len(before)-1]
		if rest, ok := strings.CutPrefix(d.Decode([]int32{last, token}, false), d.Decode([]int32{last}, false)); ok {
			return rest
		}
	}
	return d.Decode([]int32{token}, false)
}
