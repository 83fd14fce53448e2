package batch

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// Templates of thinking models end their generation prompt with data.ThinkOpen, or with an empty thought where thinking
// is switched off.
var (
	emptyThought = struct{ start, end *regexp.Regexp }{regexp.MustCompile(`^<think>\s*</think>\s*`),
		regexp.MustCompile(`<think>\s*</think>\s*$`)}
	lastThought = regexp.MustCompile(`<think>\s*(</think>\s*)?$`)
)

// thought is the beginning of a thought, or the empty one, with which a prompt ends.
func thought(prompt string) string { return lastThought.FindString(prompt) }

// withoutThought cuts off an answer what the prompt has of its thought.
func withoutThought(prompt, answer string) string {
	switch {
	case emptyThought.end.MatchString(prompt):
		return emptyThought.start.ReplaceAllString(answer, "")
	case thought(prompt) != "":
		if rest, repeats := strings.CutPrefix(answer, thought(prompt)); repeats {
			return rest
		}
		if inside, opens := strings.CutPrefix(strings.TrimSpace(answer), data.ThinkOpen); opens {
			return strings.TrimLeft(inside, "\n")
		}
	}
	return answer
}

// checkThought refuses an answer behind a prompt that would give two thoughts, or one that never ends.
func checkThought(prompt, answer string) error {
	end := strings.Index(answer, data.ThinkClose)
	begin := strings.Index(answer, data.ThinkOpen)
	switch {
	case endsWith(prompt, data.ThinkOpen) && end < 0:
		return errors.New("the chat template begins a thought that the answer does not end: want answers with " +
			"<think>…</think>, or a template, or chat.variables, for answers without thoughts")
	case endsWith(prompt, data.ThinkOpen) && (begin >= 0 && begin < end ||
		strings.HasPrefix(strings.TrimSpace(answer[end+len(data.ThinkClose):]), data.ThinkOpen)):
		return errors.New("the chat template and the answer both begin a thought: want <think> once")
	case emptyThought.end.MatchString(prompt) && end >= 0:
		return errors.New("the chat template ends the thought before the answer, which has another: want thinking " +
			"switched on (such as chat.variables enable_thinking=true), or no thoughts in answers")
	}
	return nil
}

// callsError says that the calls of message i are lost.
func callsError(i int) error {
	return fmt.Errorf("the chat template does not write the calls of tools of messages[%d]: want a template that "+
		"writes them, or rows without calls", i)
}

// checkCalls wants in a text the calls of all messages that it is of.
func checkCalls(text string, msgs []data.Message) error {
	if i := slices.IndexFunc(msgs, func(m data.Message) bool { return !writesCalls(text, m) }); i >= 0 {
		return callsError(i)
	}
	return nil
}

// writesCalls says that a text has the names of all tools that a message calls.
func writesCalls(text string, m data.Message) bool {
	var calls []struct {
		Name     string
		Function struct{ Name string }
	}
	if m.Calls() == "" || json.Unmarshal([]byte(m.Calls()), &calls) != nil {
		return true
	}
	for _, c := range calls {
		if !strings.Contains(text, cmp.Or(c.Function.Name, c.Name)) {
			return false
		}
	}
	return true
}

// holds says that a text has all that a message says and calls, and thinks in a key of its own; white space may differ.
func holds(text string, m data.Message) bool {
	if !writesCalls(text, m) {
		return false
	}
	squeezed := ""
	for _, part := range []string{m.Content, m.Thoughts()} {
		if strings.Contains(text, strings.TrimSpace(part)) {
			continue
		}
		if squeezed == "" {
			squeezed = squeeze(text)
		}
		if !strings.Contains(squeezed, squeeze(part)) {
			return false
		}
	}
	return true
}

func squeeze(text string) string { return strings.Join(strings.Fields(text), "") }
