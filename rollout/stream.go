package rollout

import (
	"strings"
	"unicode/utf8"

	"github.com/posttrain/posttrain/model"
)

// Stream decodes a request's answer token by token, to show it while it is drawn or before the other requests of the
// call have ended. The request's OnToken calls [Stream.Take]. The answer ends exactly where the sampler ends it.
type Stream struct {
	Completion
	answer *answer

	text   *Incremental
	starts []int           // length of the text before each token
	known  int             // length of the text that is there for good
	ahead  int             // length of the text of the other tokens, which more tokens can change
	held   []heldText      // known text that may be part of a stop string
	given  strings.Builder // text returned so far
}

// heldText is of tokens that follow each other; special ones, which are not shown, can be part of a stop string.
type heldText struct {
	text   string
	hidden bool
}

// NewStream prepares a stream for a request to a sampler of model c with decoder d.
func NewStream(r Request, c *model.Config, d Decoder) *Stream {
	s := &Stream{}
	r.OnToken, r.OnTop = nil, nil
	s.answer = newAnswer(r, 0, c, d, &s.Completion)
	s.text = NewIncremental(d, r.Prompt, r.KeepSpecial)
	return s
}

// IsComplete says whether the answer is complete.
func (s *Stream) IsComplete() bool { return s.answer.isFinished() }

// Take adds a token and returns the text that can be shown now: whole characters that cannot be part of a stop string.
// With the last token it returns all the rest.
func (s *Stream) Take(token int32, logp float32) (piece string) {
	s.starts = append(s.starts, s.known+s.ahead)
	s.answer.take(token, logp)
	if s.IsComplete() {
		return s.give(s.rest())
	}
	s.read(token)
	return s.give(s.safe())
}

// read decodes a token.
func (s *Stream) read(token int32) {
	a := s.answer
	if !a.request.KeepSpecial && isSpecial(a.decoder, token) {
		s.held = append(s.held, heldText{a.decoder.Decode([]int32{token}, false), true})
		return
	}
	var now string
	now, s.ahead = s.text.Add(token)
	s.known += len(now)
	s.held = append(s.held, heldText{now, false})
}

func (s *Stream) give(piece string) string {
	s.given.WriteString(piece)
	return piece
}

// rest is the part of the text that was not given yet. Where a decoder changed earlier text, it is what exceeds the
// length given.
func (s *Stream) rest() string {
	if rest, ok := strings.CutPrefix(s.Text, s.given.String()); ok {
		return rest
	}
	return strings.ToValidUTF8(s.Text[min(s.given.Len(), len(s.Text)):], "")
}

// ShownTokens is the number of tokens of the text given so far, without a stop token and without tokens that show
// nothing.
func (s *Stream) ShownTokens() int {
	n := len(s.Tokens)
	switch s.Reason {
	case EOS:
		return n - 1
	case Length:
		return n
	}
	for n > 0 && s.starts[n-1] >= s.given.Len() {
		n--
	}
	return n
}

// safe takes the part of the held text that cannot be part of a stop string, whatever follows.
func (s *Stream) safe() (shown string) {
	var all strings.Builder
	for _, h := range s.held {
		all.WriteString(h.text)
	}
	n := s.safeLen(all.String())
	for len(s.held) > 0 {
		first := &s.held[0]
		part := first.text[:min(n, len(first.text))]
		if n -= len(part); !first.hidden {
			shown += part
		}
		if first.text = first.text[len(part):]; first.text != "" {
			break
		}
		s.held = s.held[1:]
	}
	return shown
}

// safeLen is the length of the held text that cannot be part of a stop string, whatever follows.
func (s *Stream) safeLen(held string) int {
	safe := len(held)
	for _, stop := range s.answer.request.Stop {
		for n := min(len(stop)-1, len(held)); n > 0; n-- {
			if strings.HasSuffix(held, stop[:n]) {
				safe = min(safe, len(held)-n)
				break
			}
		}
	}
	return safe
}

// Starts are how many characters of the text that was given come before each token. They are the same for the tokens of
// one character.
func (s *Stream) Starts() []int {
	starts, given := make([]int, len(s.starts)), s.given.String()
	for i, at := range s.starts {
		starts[i] = utf8.RuneCountInString(given[:min(at, len(given))])
	}
	return starts
}
