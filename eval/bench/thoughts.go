package bench

import "strings"

// What becomes of the thoughts ahead of an answer, the values of options named think.
const (
	ThinkStrip = "strip" // nobody reads them but the model
	ThinkKeep  = "keep"  // they are read as the rest of the answer
)

const thinkOpen, thinkClose = "<think>", "</think>"

// WithoutThoughts drops the think block that an output begins with, up to its end. opened says that the prompt ends
// inside the block; an output with the end alone shows that itself. A block that never closes leaves nothing.
func WithoutThoughts(output string, opened bool) (rest string, closed bool) {
	if _, after, found := strings.Cut(output, thinkClose); found {
		return after, true
	}
	if opened || strings.HasPrefix(strings.TrimSpace(output), thinkOpen) {
		return "", false
	}
	return output, true
}
