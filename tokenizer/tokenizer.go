package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// A Tokenizer is safe for concurrent use.
type Tokenizer struct {
	name  string // the folder, for error messages
	files []file

	added     addedTokens
	normalize normalizer
	split     splitter
	model     *bpe
	post      postProcessor
	decode    decoder

	ends  []int             // at which the model stops
	named map[string]string // tokens by their names in the configuration: bos_token, eos_token, pad_token, ...
	chat  chat

	warnings []string
}

// A file is one of the tokenizer's files as it was read.
type file struct {
	name string
	data []byte
}

// Encode returns the ids of text, in which it recognises added tokens. With addSpecial it adds the post-processor's
// ids, mostly BOS; leave them out for text from Render, which has them. Bytes that are not UTF-8 count as U+FFFD. It is
// an error if a regular expression of tokenizer.json takes too long.
func (t *Tokenizer) Encode(text string, addSpecial bool) (ids []int32, err error) {
	defer t.catch(&err)
	if !utf8.ValidString(text) {
		text = decodeLossy([]byte(text))
	}
	ids = make([]int32, 0, 2+len(text)/3)
	if addSpecial {
		ids = append(ids, t.post.before...)
	}
	t.added.cut(text, t.normalize, func(p piece) {
		if p.added {
			ids = append(ids, p.id)
			return
		}
		t.split(p, func(word piece) { ids = t.model.encode(ids, word.text) })
	})
	if addSpecial {
		ids = append(ids, t.post.after...)
	}
	return ids, nil
}

// Decode returns the text of ids, with skipSpecial without the special tokens. It skips ids that do not exist. Unlike
// transformers it never removes spaces before punctuation: it ignores clean_up_tokenization_spaces.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	tokens := make([]string, 0, len(ids))
	for _, id := range ids {
		token, ok := t.token(id)
		if !ok || skipSpecial && t.added.special[token] {
			continue
		}
		tokens = append(tokens, token)
	}
	if t.decode == nil {
		return strings.Join(tokens, " ")
	}
	return strings.Join(t.decode(tokens), "")
}

// Settled says whether the text of ids stays whatever ids follow, but for a last character that is not complete. It may
// change where ids end with a byte token <0xNN>: one that makes the bytes in a row invalid makes U+FFFD of each.
func (t *Tokenizer) Settled(ids []int32) bool {
	for _, id := range slices.Backward(ids) {
		if token, ok := t.token(id); ok { // Decode skips other ids, which do not end the row
			_, isByte := fromByteToken(token)
			return !isByte
		}
	}
	return true
}

// token returns the token of an id in the form that the decoder reads.
func (t *Tokenizer) token(id int32) (string, bool) {
	if token, ok := t.added.forDecoder(id); ok {
		return token, true
	}
	token, ok := t.model.tokens[id]
	return token, ok
}

// Size is the number of rows that an embedding needs: one more than the highest id.
func (t *Tokenizer) Size() int {
	top := t.model.top
	for id := range t.added.byID {
		top = max(top, id)
	}
	for _, id := range slices.Concat(t.post.before, t.post.after) {
		top = max(top, id)
	}
	return int(top) + 1
}

// ID returns the id of a token, spelled as in tokenizer.json.
func (t *Tokenizer) ID(token string) (int32, bool) {
	if id, ok := t.added.ids[token]; ok {
		return id, true
	}
	id, ok := t.model.vocab[token]
	return id, ok
}

// BOS is the id of the token that tokenizer_config.json names as bos_token.
func (t *Tokenizer) BOS() (int32, bool) { return t.Named("bos_token") }

// Begin is BOS, nil without one.
func (t *Tokenizer) Begin() *int32 {
	id, ok := t.BOS()
	if !ok {
		return nil
	}
	return &id
}

// EOS is the id of eos_token. A model may stop on more than this one: see its generation_config.json.
func (t *Tokenizer) EOS() (int32, bool) { return t.Named("eos_token") }

// StopAt says at which ids the model stops.
func (t *Tokenizer) StopAt(ids []int) { t.ends = ids }

// End is the id behind a text: EOS, or the first at which the model stops where the tokenizer names none.
func (t *Tokenizer) End() (int32, bool) {
	id, ok := t.EOS()
	if !ok && len(t.ends) > 0 {
		return int32(t.ends[0]), true
	}
	return id, ok
}

// Pad is the id of pad_token.
func (t *Tokenizer) Pad() (int32, bool) { return t.Named("pad_token") }

// Named is the id of a token that tokenizer_config.json names, such as unk_token.
func (t *Tokenizer) Named(key string) (int32, bool) {
	token, ok := t.named[key]
	if !ok {
		return 0, false
	}
	return t.ID(token)
}

// Warnings are settings of the folder that contradict each other, one line each.
func (t *Tokenizer) Warnings() []string { return t.warnings }

// Special reports whether the id is markup, which Decode leaves out with skipSpecial.
func (t *Tokenizer) Special(id int32) bool {
	token, ok := t.token(id)
	return ok && t.added.special[token]
}
