package rollout

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// AnswerText is what an answer adds to the text of its prompt: decode(prompt + answer) behind decode(prompt). Alone the
// answer may have another text: decoders of Llama 2's kind cut off the blank that a text begins with. Special tokens
// are left out, unless keep.
func AnswerText(d Decoder, prompt, answer []int32, keep bool) string {
	before, whole := d.Decode(prompt, !keep), d.Decode(slices.Concat(prompt, answer), !keep)
	return whole[common(before, whole):]
}

// common is the length of the beginning, of whole characters, that a text has in common with b.
func common(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(b) && !utf8.RuneStart(b[n]) {
		n--
	}
	return n
}

// isSpecial says that a token is markup.
func isSpecial(d Decoder, token int32) bool {
	one := []int32{token}
	return d.Decode(one, true) == "" && d.Decode(one, false) != ""
}

// Incremental decodes tokens one by one behind others.
type Incremental struct {
	decode  func(ids []int32) string
	settled func(ids []int32) bool
	ids     []int32
	context int    // first token decoded with the next ones: some decoders look back
	read    int    // tokens decoded for good
	base    string // the text of those from context to read
	begun   bool   // there is text after the prompt's, which may have ended within a character
}

// NewIncremental decodes tokens that come behind a prompt, of which the special tokens count only with keep.
func NewIncremental(d Decoder, prompt []int32, keep bool) *Incremental {
	t := &Incremental{ids: slices.Clone(prompt), read: len(prompt), settled: func([]int32) bool { return true }}
	t.decode = func(ids []int32) string { return d.Decode(ids, !keep) }
	if settler, ok := d.(Settler); ok {
		t.settled = settler.Settled
	}
	t.base = t.decode(t.ids)
	return t
}

// Add adds a token and returns the text that is there for good since the last call, and the length of that which more
// tokens can change.
func (t *Incremental) Add(token int32) (text string, ahead int) {
	t.ids = append(t.ids, token)
	now := t.decode(t.ids[t.context:])
	text, ok := strings.CutPrefix(now, t.base)
	if !ok && !t.begun {
		text, ok = now[common(t.base, now):], true
	}
	if !ok || strings.HasSuffix(now, "\uFFFD") { // it ends within a character, or changes earlier text
		return "", 0
	}
	if !t.settled(t.ids) {
		return "", len(text)
	}
	t.base = now
	last := t.decode(t.ids[t.read:])
	if last != "" { // else a decoder that strips a text's beginning has not seen it
		t.context, t.base = t.read, last
	}
	t.read, t.begun = len(t.ids), true
	return text, 0
}
