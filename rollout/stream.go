package rollout

import (
	"strings"

	"github.com/posttrain/posttrain/model"
)

// Stream decodes a request's answer token by token, to show it while it is drawn or before the other requests of the
// call have ended. The request's OnToken calls [Stream.Take]. The answer ends exactly where the sampler ends it.
type Stream struct {
	Completion
	answer *answer

	starts  []int           // length of the text before each token
	context int             // first token decoded with the next ones: some decoders look back
	read    int             // tokens decoded for good
	known   int             // length of their text
	ahead   int             // length of the text of the other tokens, which more tokens can change
	held    string          // known text that may be part of a stop string
	given   strings.Builder // text returned so far
}

// NewStream prepares a stream for a request to a sampler of model c with decoder d.
func NewStream(r Request, c *model.Config, d Decoder) *Stream {
	s := &Stream{}
	r.OnToken = nil
	s.answer = newAnswer(r, 0, c, d, &s.Completion)
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
	now, ok := s.decode()
	if !ok {
		return ""
	}
	s.known += len(now)
	s.held += now
	n := s.safeLen()
	piece, s.held = s.held[:n], s.held[n:]
	return s.give(piece)
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

// decode returns the text of the tokens since the last call, or false if more tokens can change it.
func (s *Stream) decode() (text string, ok bool) {
	s.ahead = 0
	if text, ok = s.unread(); !ok {
		return "", false
	}
	d := s.answer.decoder
	if settler, ok := d.(Settler); ok && !settler.Settled(s.Tokens) {
		s.ahead = len(text)
		return "", false
	}
	if d.Decode(s.Tokens[s.read:], false) != "" { // else a decoder that strips a text's beginning has not seen it
		s.context = s.read
	}
	s.read = len(s.Tokens)
	return text, true
}

// unread is the text of the tokens that are not decoded for good, or false if they end within a character, whose bytes
// decode to U+FFFD, or change earlier text.
func (s *Stream) unread() (text string, ok bool) {
	d := s.answer.decoder
	now := d.Decode(s.Tokens[s.context:], false)
	if strings.HasSuffix(now, "\uFFFD") {
		return "", false
	}
	return strings.CutPrefix(now, d.Decode(s.Tokens[s.context:s.read], false))
}

// safeLen is the length of the held text that cannot be part of a stop string, whatever follows.
func (s *Stream) safeLen() int {
	safe := len(s.held)
	for _, stop := range s.answer.request.Stop {
		for n := min(len(stop)-1, len(s.held)); n > 0; n-- {
			if strings.HasSuffix(s.held, stop[:n]) {
				safe = min(safe, len(s.held)-n)
				break
			}
		}
	}
	return safe
}
