package data

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Turn marks of the plain dialogues of HH-RLHF.
const (
	humanMark     = "\n\nHuman:"
	assistantMark = "\n\nAssistant:"
)

// extractPrompt splits off the prompt that stands inside both answers, as TRL's extract_prompt does: for conversations
// the messages they begin with in common, for plain text what splitPlain says.
func extractPrompt(chosen, rejected Text) (prompt, c, r Text, err error) {
	if chosen.IsChat() != rejected.IsChat() {
		return prompt, c, r, errors.New("one of chosen and rejected is a string, the other a conversation: want both alike")
	}
	if !chosen.IsChat() {
		n := splitPlain(chosen.Plain, rejected.Plain)
		return Text{Plain: chosen.Plain[:n]}, Text{Plain: chosen.Plain[n:]}, Text{Plain: rejected.Plain[n:]}, nil
	}
	n := splitMessages(chosen.Messages, rejected.Messages)
	return Text{Messages: chosen.Messages[:n:n]}, Text{Messages: chosen.Messages[n:]}, Text{Messages: rejected.Messages[n:]}, nil
}

// splitMessages counts the messages that both begin with; at least one is left for the shorter answer.
func splitMessages(a, b []Message) int {
	n := 0
	for n < min(len(a), len(b))-1 && a[n] == b[n] {
		n++
	}
	return n
}

// splitPlain is the length in bytes of the prompt that both texts begin with. In an HH-RLHF dialogue it ends with the
// last "\n\nAssistant:" that both have. Elsewhere it ends where the texts part, cut back to the end of a word: the
// white space before the first differing word belongs to the answers. (TRL gives them only the one space, and splits
// inside a word where the words begin alike.) Text without white space is split between two characters.
func splitPlain(a, b string) int {
	n := commonPrefix(a, b)
	common := a[:n]
	if strings.Contains(common, humanMark) {
		if i := strings.LastIndex(common, assistantMark); i >= 0 {
			return i + len(assistantMark)
		}
	}
	if cut := lastWordEnd(common); cut > 0 {
		return cut
	}
	return n
}

// commonPrefix is the length in bytes of the longest common prefix that ends between two characters of both.
func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	for n > 0 && (!startsRune(a, n) || !startsRune(b, n)) {
		n--
	}
	return n
}

func startsRune(s string, i int) bool { return i >= len(s) || utf8.RuneStart(s[i]) }

// lastWordEnd is where the last run of white space begins; 0 without any, or when it opens the text.
func lastWordEnd(s string) int {
	i := strings.LastIndexFunc(s, unicode.IsSpace)
	if i < 0 {
		return 0
	}
	return len(strings.TrimRightFunc(s[:i], unicode.IsSpace))
}

// severalTurns says whether an answer goes on past the assistant's own turn.
func severalTurns(t Text) bool {
	for _, m := range t.Messages {
		if m.Role == "user" {
			return true
		}
	}
	return strings.Contains(t.Plain, humanMark)
}
