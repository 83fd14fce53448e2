package reward

import "strings"

// Find looks for keywords in any text, such as a think block, by the options' match mode: a Match each, its offset
// that of the text.
func Find(keywords []string, text string, o Options) []Match {
	return fold(text).find(keywords, o.Match == "word")
}

// Think is the trimmed inside of a completion's first think block, which ends at </think>, or where that is missing at
// <answer> or the end. prefilled says that the prompt opened the block. ok is false for a completion without one.
func Think(completion string, prefilled bool) (think string, ok bool) {
	before, rest, opened := strings.Cut(completion, thinkOpen)
	switch {
	case opened && !(prefilled && strings.Contains(before, thinkClose)):
	case prefilled:
		rest = completion
	default:
		return "", false
	}
	think, _, closed := strings.Cut(rest, thinkClose)
	if !closed {
		think, _, _ = strings.Cut(rest, answerOpen)
	}
	return strings.TrimSpace(think), true
}
