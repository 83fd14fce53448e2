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
	}
	message struct {
		Role    string  `json:"role"`
		Content string  `json:"content"`
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
		part := replyChoice{Index: i, Message: &message{Role: "assistant", Content: a.Text}, Finish: finish(a.Reason)}
		if j.ask.logprobs {
			n := a.ShownTokens()
			part.Logprobs = &logprobs{Content: s.logprobs(j.ask, nil, a.Tokens[:n], a.Logps[:n])}
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
func (s *Server) logprobs(a *ask, before, tokens []int32, logps []float32) []tokenLogprob {
	out := make([]tokenLogprob, len(tokens))
	for i, token := range tokens {
		if i > 0 {
			before = tokens[:i]
		}
		text := s.text(before, token)
		alt := alternative{Token: text, Logprob: logps[i]}
		if !strings.Contains(text, "\uFFFD") {
			alt.Bytes = []int{}
			for _, b := range []byte(text) {
				alt.Bytes = append(alt.Bytes, int(b))
			}
		}
		out[i] = tokenLogprob{alternative: alt, Top: []alternative{}}
		if a.top > 0 { // the temperature is 0, so the token was the likeliest
			out[i].Top = append(out[i].Top, alt)
		}
	}
	return out
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
