package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// An addedToken is an entry of tokenizer.json's added_tokens.
type addedToken struct {
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // found only where no word character touches it
	LStrip     bool   `json:"lstrip"`      // includes the whitespace before it
	RStrip     bool   `json:"rstrip"`      // includes the whitespace after it
	Normalized bool   `json:"normalized"`  // its normalized form is searched for in the normalized text
	Special    bool   `json:"special"`
}

// addedTokens finds added tokens in a text.
type addedTokens struct {
	byID       map[int32]addedToken
	ids        map[string]int32
	special    map[string]bool
	normalized map[int32]string // normalized contents that differ from the content

	raw, late     trie // the tokens to search for before and after normalization
	ignoreSpecial bool // special tokens in a text count as text
}

// Bounds on added tokens; models have thousands of a few characters. MaxAdded is their number.
const (
	maxAllText   = 1 << 20 // bytes of all
	maxAddedText = 256     // bytes of one
	MaxAdded     = 1 << 17 // added tokens
)

// An addedList is counted before it is read: an entry of two bytes takes twelve times that.
type addedList []addedToken

func (l *addedList) UnmarshalJSON(data []byte) error {
	if n := bytes.Count(data, []byte("{")); n > MaxAdded {
		return fmt.Errorf("added_tokens: found %d, want at most %d", n, MaxAdded)
	}
	if err := checkCommas("added_tokens", data, 8*MaxAdded); err != nil { // a token has seven fields
		return err
	}
	return json.Unmarshal(data, (*[]addedToken)(l))
}

// checkCommas refuses a list or an object of far too many values before it is read.
func checkCommas(what string, data []byte, most int) error {
	if n := bytes.Count(data, []byte(",")); n > most {
		return fmt.Errorf("%s: found %d commas, want at most %d", what, n, most)
	}
	return nil
}

// check refuses added tokens that would make the search slow or large; list names them.
func (a *addedTokens) check(tokens []addedToken, list string) error {
	all := 0
	if len(tokens) > MaxAdded {
		return fmt.Errorf("%s: found %d, want at most %d", list, len(tokens), MaxAdded)
	}
	for i, t := range tokens {
		if len(t.Content) > maxAddedText {
			return fmt.Errorf("%s[%d].content: found %d bytes, want at most %d", list, i, len(t.Content), maxAddedText)
		}
		all += len(t.Content)
	}
	if all > maxAllText {
		return fmt.Errorf("%s: found %d bytes of text in %d tokens, want at most %d", list, all, len(tokens), maxAllText)
	}
	return nil
}

// add gives tokens the ids that Hugging Face gives them: that in the vocabulary, or the next free one.
func (a *addedTokens) add(tokens []addedToken, model *bpe, normalize normalizer) {
	if a.byID == nil {
		a.byID, a.ids = map[int32]addedToken{}, map[string]int32{}
		a.special, a.normalized = map[string]bool{}, map[int32]string{}
	}
	next := int32(len(model.vocab))
	for id := range a.byID {
		next = max(next, id+1)
	}
	for _, t := range tokens {
		id, known := a.ids[t.Content]
		if t.Content == "" || known && a.byID[id] == t {
			continue
		}
		if !known {
			if id, known = model.vocab[t.Content]; !known {
				id = next
				next++
			}
		}
		if n := normalize(t.Content, deadlineOf(t.Content)); t.Normalized && n != t.Content {
			a.normalized[id] = n
		}
		a.ids[t.Content], a.byID[id] = id, t
		if t.Special {
			a.special[t.Content] = true
		}
	}
	a.index()
}

func (a *addedTokens) index() {
	a.raw, a.late = trie{}, trie{}
	for id, t := range a.byID {
		if t.Normalized {
			content, _ := a.forDecoder(id)
			a.late.put(content, id)
		} else {
			a.raw.put(t.Content, id)
		}
	}
}

// forDecoder returns an added token in the form that the decoder reads: normalized.
func (a *addedTokens) forDecoder(id int32) (string, bool) {
	if n, ok := a.normalized[id]; ok {
		return n, true
	}
	t, ok := a.byID[id]
	return t.Content, ok
}

// A piece is a stretch of text, or an added token.
type piece struct {
	text  string
	first bool // at the start of the whole text
	added bool
	id    int32
	until deadline // of the whole text
}

// cut emits the pieces of text: added tokens, and the normalized text between them. No piece is empty.
func (a *addedTokens) cut(text string, normalize normalizer, emit func(piece)) {
	a.find(piece{text: text, first: true, until: deadlineOf(text)}, a.raw, func(p piece) {
		if p.added {
			emit(p)
			return
		}
		p.text = normalize(p.text, p.until)
		a.find(p, a.late, emit)
	})
}

// find cuts the trie's tokens out of one piece, from left to right, the longest first.
func (a *addedTokens) find(p piece, tokens trie, emit func(piece)) {
	text, done := p.text, 0
	white := 0 // the end of the white space that RStrip took last
	plain := func(end int) {
		if done < end {
			emit(piece{text: text[done:end], first: p.first && done == 0, until: p.until})
		}
	}
	for at := 0; len(tokens.next) > 0 && at < len(text); {
		id, size := tokens.longest(text[at:])
		if size == 0 {
			at++
			continue
		}
		start, end := at, at+size
		at = end
		t := a.byID[id]
		if a.ignoreSpecial && a.special[t.Content] || t.SingleWord && !wordAlone(text[:start], text[end:]) {
			continue
		}
		if t.LStrip {
			start = max(done, done+len(strings.TrimRightFunc(text[min(done, start):start], unicode.IsSpace)))
		}
		if t.RStrip {
			end = max(end, white)
			end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
			white = end
		}
		plain(start)
		emit(piece{added: true, id: id})
		done = end // the search resumes at the match's end: a token may begin with the whitespace that RStrip took
	}
	plain(len(text))
}

// wordAlone reports whether no word character touches the token between before and after.
func wordAlone(before, after string) bool {
	last, _ := utf8.DecodeLastRuneInString(before)
	first, _ := utf8.DecodeRuneInString(after)
	return (before == "" || !isWord(last)) && (after == "" || !isWord(first))
}

// isWord is Unicode's \w: letters, marks, decimal digits, connectors and joiners.
func isWord(r rune) bool {
	joiner := r == 0x200c || r == 0x200d
	return joiner || unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic)
}

// A trie finds the longest of many strings at the start of a text. Its nodes have only the bytes that follow: one with
// all 256 would take two thousand times the size of a long token.
type trie struct {
	bytes []byte // sorted
	next  []*trie
	id    int32
	end   bool
}

func (t *trie) put(s string, id int32) {
	for i := range len(s) {
		at, known := slices.BinarySearch(t.bytes, s[i])
		if !known {
			t.bytes, t.next = slices.Insert(t.bytes, at, s[i]), slices.Insert(t.next, at, &trie{})
		}
		t = t.next[at]
	}
	t.id, t.end = id, true
}

// longest returns the longest string that s begins with, or size 0.
func (t *trie) longest(s string) (id int32, size int) {
	for i := range len(s) {
		at := bytes.IndexByte(t.bytes, s[i])
		if at < 0 {
			break
		}
		if t = t.next[at]; t.end {
			id, size = t.id, i+1
		}
	}
	return id, size
}
