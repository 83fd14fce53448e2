package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/rollout"
)

// World is the [rollout.World] of one episode: it reads the model's messages, asks the environment, and writes what the
// model reads next as the chat template does. What the model drew stays as it is: where the template would write an
// earlier message in another way (other white space in a call; Qwen3 without thoughts that are long past; Mistral with
// the tools before the user's last message) the episode has what was there when it was drawn.
type World struct {
	Encoder     *batch.Encoder
	Form        Form
	Environment Environment
	Messages    []data.Message // the conversation so far; at first what [Prompt] gives
	Name        string         // of the item, for errors

	turns, calls int
}

// Reply implements [rollout.World].
func (w *World) Reply(m rollout.Completion) (reply []int32, err error) {
	text := m.Text
	if m.Raw != "" && len(w.Form.read(m.Raw).calls) > 0 { // the marks of calls may be special tokens
		text = m.Raw
	}
	x, over, err := w.hear(text)
	if err != nil || over {
		return nil, err
	}
	return reply, w.add(x, func(how writing) (err error) {
		reply, err = w.behind(x, how, m)
		return err
	})
}

// hear acts on a message: it makes all calls, also those behind one that ends the episode.
func (w *World) hear(text string) (x exchange, over bool, err error) {
	w.turns++
	x = exchange{said: w.Form.read(text), form: w.Form}
	if len(x.calls) == 0 {
		var reply string
		reply, over, err = w.Environment.Say(x.content)
		x.heard = []string{reply}
	}
	for i := 0; i < len(x.calls) && err == nil; i++ {
		w.calls++
		result := x.calls[i].fault
		if result == "" {
			var ends bool
			result, ends, err = w.Environment.Call(x.calls[i].Call)
			over = over || ends
		}
		x.ids, x.heard = append(x.ids, callID(w.calls)), append(x.heard, result)
	}
	if err != nil {
		return x, false, fmt.Errorf("%s, message %d: the environment fails: %w", w.Name, w.turns, err)
	}
	if over {
		w.Messages = append(w.Messages, x.messages(writing{})...)
	}
	return x, over, nil
}

// add adds an exchange to the conversation: calls as such where the template takes them, or else as the model wrote
// them. Where a call cannot be read, the message as the model wrote it is tried first.
func (w *World) add(x exchange, fits func(writing) error) error {
	faulty := slices.ContainsFunc(x.calls, func(c made) bool { return c.fault != "" })
	how := writing{verbatim: faulty}
	err := fits(how)
	if err != nil {
		how.verbatim = !faulty
		if fits(how) != nil {
			return fmt.Errorf("%s, message %d: %w", w.Name, w.turns, err)
		}
	}
	w.Messages = append(w.Messages, x.messages(how)...)
	return nil
}

// behind are the tokens that come behind a message. The template writes the conversation with a probe in the place of
// what the model said, up to which the text is left out. The end of the message comes once: the model has drawn it, or
// was stopped before it.
func (w *World) behind(x exchange, how writing, m rollout.Completion) ([]int32, error) {
	if !w.Encoder.Tokenizer.HasTemplate() {
		return w.encode(x.plain(m.Reason == rollout.StopString), m.Tokens)
	}
	how.probing = true
	tail, err := w.tail(slices.Concat(w.Messages, x.messages(how)), true)
	if err != nil {
		return nil, err
	}
	end, err := w.end()
	if err != nil {
		return nil, err
	}
	_, tail, found := strings.Cut(tail, end)
	if !found || end == "" && len(x.calls) > 0 && x.form != Text && !how.verbatim {
		return nil, fmt.Errorf("the chat template does not end a message with tool calls as other messages (%q)", end)
	}
	if m.Reason != rollout.EOS {
		tail = end + tail
	}
	return w.encode(tail, m.Tokens)
}

// tail is what the template writes behind the probe.
func (w *World) tail(messages []data.Message, generate bool) (string, error) {
	text, err := w.Encoder.Render(messages, generate)
	if err != nil {
		return "", err
	}
	_, tail, found := strings.Cut(text, probe)
	if !found {
		return "", fmt.Errorf("the chat template does not write what a model says: want one that does, or the form %s", Text)
	}
	return tail, nil
}

// end is the token that ends a message in the template; "": it has none.
func (w *World) end() (string, error) {
	tail, err := w.tail([]data.Message{{Role: "user", Content: "Hello"}, {Role: "assistant", Content: probe}}, false)
	if err != nil {
		return "", err
	}
	t := w.Encoder.Tokenizer
	ids, err := t.Encode(tail, false)
	eos, has := t.EOS()
	for _, id := range ids {
		if t.Special(id) || has && id == eos {
			return t.Decode([]int32{id}, false), nil
		}
	}
	return "", err
}

// encode gives the tokens of a text behind others: those that it has behind their last one, which may differ from those
// that it has alone where a tokenizer begins every text with a blank.
func (w *World) encode(text string, before []int32) ([]int32, error) {
	t := w.Encoder.Tokenizer
	if n := len(before); n > 0 {
		last := before[n-1:]
		ids, err := t.Encode(t.Decode(last, false)+text, false)
		if err != nil || len(ids) > 0 && ids[0] == last[0] {
			return ids[min(1, len(ids)):], err
		}
	}
	return t.Encode(text, false)
}
