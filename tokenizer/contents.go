package tokenizer

import (
	"cmp"
	"maps"
	"slices"
)

// A Token is an entry of a tokenizer's vocabulary.
type Token struct {
	Text    string // spelled as in tokenizer.json; "": no token has the id
	Added   bool   // cut out of a text before anything else
	Special bool   // markup, which Decode can leave out
}

// Tokens lists the vocabulary by id.
func (t *Tokenizer) Tokens() []Token {
	out := make([]Token, t.Size())
	for id, text := range t.model.tokens {
		out[id] = Token{Text: text}
	}
	for id, a := range t.added.byID {
		out[id] = Token{a.Content, true, t.added.special[a.Content]}
	}
	return out
}

// Merges lists the merges of BPE, the first to go first.
func (t *Tokenizer) Merges() [][2]string {
	pairs := slices.SortedFunc(maps.Keys(t.model.merges), func(a, b pair) int {
		return cmp.Compare(t.model.merges[a].rank, t.model.merges[b].rank)
	})
	out := make([][2]string, len(pairs))
	for i, p := range pairs {
		out[i] = [2]string{t.model.tokens[int32(p>>32)], t.model.tokens[int32(uint32(p))]}
	}
	return out
}

// ByteFallback says that characters without a token become tokens of bytes, as SentencePiece does it.
func (t *Tokenizer) ByteFallback() bool { return t.model.byteFallback }

// Templates are the chat templates by name; a single one is called default.
func (t *Tokenizer) Templates() map[string]string { return maps.Clone(t.chat.templates) }

// File is one of the tokenizer's files as it was read, such as tokenizer.json; nil: there was none.
func (t *Tokenizer) File(name string) []byte {
	i := slices.IndexFunc(t.files, func(f file) bool { return f.name == name })
	if i < 0 {
		return nil
	}
	return t.files[i].data
}
