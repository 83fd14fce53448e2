package batch

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// start is a prompt whose answers are encoded. The template writes the prompt once, and once more with each answer.
type start struct {
	*Encoder
	prompt data.Text
	text   string // the prompt as the template writes it
	ids    []int32
	merged bool             // the prompt's last token is part of a longer one in a whole text
	frames map[string]frame // what the template writes around an answer, by its role
}

func (s *start) encode() (err error) {
	if !s.prompt.IsChat() {
		s.text = s.prompt.Plain
		s.ids, err = s.encodeStart(s.text)
		return err
	}
	if s.text, err = s.Render(s.prompt.Messages, true); err == nil {
		err = checkCalls(s.text, s.prompt.Messages)
	}
	if err == nil {
		s.ids, err = s.Tokenizer.Encode(s.text, false)
	}
	return err
}

// answer encodes one completion: its tokens behind the prompt, and the whole text's tokens.
func (s *start) answer(a data.Text) (tokens, full []int32, err error) {
	if err := sameForm(s.prompt, a); err != nil {
		return nil, nil, err
	}
	if a.IsChat() {
		tail, err := s.turn(a.Messages)
		if err != nil {
			return nil, nil, err
		}
		if full, err = s.Tokenizer.Encode(s.text+tail, false); err != nil {
			return nil, nil, err
		}
		tokens, err = s.after(full, tail)
		return tokens, full, err
	}
	if full, err = s.encodeStart(s.text + a.Plain); err != nil {
		return nil, nil, err
	}
	tokens, err = s.after(full, a.Plain)
	return s.withEOS(tokens), s.withEOS(full), err
}

// sameForm refuses a conversation beside plain text.
func sameForm(prompt, answer data.Text) error {
	if answer.IsChat() != prompt.IsChat() {
		return errors.New("the prompt and the completion must both be text or both be messages")
	}
	return nil
}

// after gives the tokens of tail behind the prompt, where full are the tokens of the whole text.
func (s *start) after(full []int32, tail string) ([]int32, error) {
	if n := len(s.ids); len(full) >= n && slices.Equal(full[:n], s.ids) {
		return full[n:], nil
	}
	apart, err := s.Tokenizer.Encode(tail, false)
	if err == nil && s.changes(full, s.ids, apart) {
		s.merged = true
	} else {
		s.Drift++
	}
	return apart, err
}

// changes says that stretches that are tokenised apart have another text than the whole: tokenizers such as Llama 2's and
// Mistral's begin every text with a blank.
func (e *Encoder) changes(full []int32, apart ...[]int32) bool {
	return e.Tokenizer.Decode(slices.Concat(apart...), false) != e.Tokenizer.Decode(full, false)
}

// shared is how many tokens two texts, or bytes two strings, have in common at their beginning.
func shared[T int32 | byte](a, b []T) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// turn gives the text that the template writes behind the prompt for these messages. Templates that rewrite an answer
// (strip its think block, say) would train another text than the data's: then the content is set in by hand between
// what the template puts before and after an answer, without the <think> that the prompt ends with.
func (s *start) turn(answer []data.Message) (string, error) {
	full, err := s.Render(slices.Concat(s.prompt.Messages, answer), false)
	if err != nil {
		return "", err
	}
	tail, ok := strings.CutPrefix(full, s.text)
	last := answer[len(answer)-1]
	content := withoutThought(s.text, last.Content)
	if ok && holds(thought(s.text)+tail, last) {
		if err = checkThought(s.text, tail); err == nil || content == last.Content {
			return tail, err
		}
	}
	if ok && !writesCalls(tail, last) {
		return "", callsError(len(s.prompt.Messages) + len(answer) - 1)
	}
	f, err := s.frame(last.Role)
	if err != nil {
		return "", err
	}
	if err := s.opensOther(f); err != nil && !ok {
		return "", err
	}
	if len(answer) != 1 {
		return "", fmt.Errorf("the chat template rewrites the prompt when the answer of %d messages follows it",
			len(answer))
	}
	if last.Calls() != "" || last.Thoughts() != "" {
		return "", fmt.Errorf("the chat template does not write the whole answer, or rewrites the prompt before it: " +
			"want its thoughts in content, as <think>…</think>, or a template that writes them")
	}
	lead := f.before[shared([]byte(f.before), []byte(s.text)):]
	if thought(s.text) != "" || strings.Contains(lead, data.ThinkOpen) { // the answer has it
		lead = ""
	}
	tail = lead + content + f.after
	return tail, checkThought(s.text, tail)
}

// opensOther is an error where the generation prompt begins a thought, or something else, with which the template does
// not begin an answer without it. Thoughts within <think> are [checkThought]'s.
func (s *start) opensOther(f frame) error {
	common := shared([]byte(f.before), []byte(s.text))
	opened := s.text[common:]
	bare, err := s.Render(s.prompt.Messages, false)
	if opened == "" || err != nil || common < len(bare) || !strings.HasPrefix(s.text, bare) {
		return nil // what is before the generation prompt is rewritten
	}
	if strings.HasSuffix(thought(s.text), opened) {
		return nil
	}
	opened = strings.TrimSpace(s.text[strings.LastIndex(s.text[:common], "\n")+1:]) // from the beginning of its line
	if opened == "" {
		return nil
	}
	return fmt.Errorf("the generation prompt of the chat template ends with %.60q, with which the template does not "+
		"begin this answer: want answers with the thoughts that it opens, or a template, or chat.variables, for "+
		"answers without thoughts", opened)
}

// frame is what the template writes before and behind the content of an answer.
type frame struct{ before, after string }

// frame is seen with a word that no template rewrites.
func (s *start) frame(role string) (frame, error) {
	if f, known := s.frames[role]; known {
		return f, nil
	}
	full, err := s.Render(append(slices.Clone(s.prompt.Messages), data.Message{Role: role, Content: probe}), false)
	if err != nil {
		return frame{}, err
	}
	i := strings.LastIndex(full, probe)
	if i < 0 {
		return frame{}, fmt.Errorf("the chat template drops the content of a %q message", role)
	}
	if s.frames == nil {
		s.frames = map[string]frame{}
	}
	s.frames[role] = frame{full[:i], full[i+len(probe):]}
	return s.frames[role], nil
}
