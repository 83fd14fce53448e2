package rollout

import (
	"strings"

	"github.com/posttrain/posttrain/model"
)

// Stream follows a request's answer token by token, for those who show it while it is drawn, or want it before the other
// requests of a call have theirs: [Stream.Take] is what a request's OnToken calls. It ends the answer where the sampler
// does, by the same code.
type Stream struct {
	Completion
	answer *answer

	starts  []int // length of the text known before each token
	context int   // tokens before read that are decoded with the next ones: some decoders look back
	read    int   // tokens that are decoded for good
	known   int   // length of their text
	held    string
	given   strings.Builder
}

// NewStream follows a request to a model's sampler with this decoder.
func NewStream(r Request, c *model.Config, d Decoder) *Stream {
	s := &Stream{}
	r.OnToken = nil
	s.answer = newAnswer(r, 0, c, d, &s.Completion)
	return s
}

// Ended tells whether the answer is whole.
func (s *Stream) Ended() bool { return s.answer.finished() }

// Take adds a token, and gives the text that can be shown now: whole characters, and nothing of what may turn out to be
// a stop string. With the last token comes all that is left.
func (s *Stream) Take(token int32, logp float32) (piece string) {
	s.starts = append(s.starts, s.known)
	s.answer.take(token, logp)
	if s.Ended() {
		return s.give(s.rest())
	}
	now, ok := s.decode()
	if !ok {
		return ""
	}
	s.known += len(now)
	s.held += now
	n := s.safe()
	piece, s.held = s.held[:n], s.held[n:]
	return s.give(piece)
}

func (s *Stream) give(piece string) string {
	s.given.WriteString(piece)
	return piece
}

// rest is what of the whole text was not given yet. Bytes that are no character make some decoders take back what they
// had said: then it is what is longer.
func (s *Stream) rest() string {
	if rest, ok := strings.CutPrefix(s.Text, s.given.String()); ok {
		return rest
	}
	return strings.ToValidUTF8(s.Text[min(s.given.Len(), len(s.Text)):], "")
}

// Shown is how many tokens make up the text given so far: not a stop token, nor those of which nothing was given.
func (s *Stream) Shown() int {
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

// decode gives the text of the tokens since the last time. It is not there yet where they end within a character: such
// bytes decode to U+FFFD.
func (s *Stream) decode() (text string, ok bool) {
	d := s.answer.decoder
	before := d.Decode(s.Tokens[s.context:s.read], false)
	now := d.Decode(s.Tokens[s.context:], false)
	if strings.HasSuffix(now, "\uFFFD") {
		return "", false
	}
	text, ok = strings.CutPrefix(now, before)
	if !ok { // bytes that are no character made some decoders take back what they had said
		text = d.Decode(s.Tokens[s.read:], false)
	}
	s.context, s.read = s.read, len(s.Tokens)
	return text, true
}

// safe is how much of the held text no stop string touches, whatever follows.
func (s *Stream) safe() int {
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
