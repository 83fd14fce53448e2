package tokenizer

import (
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"unicode/utf8"
)

// bpe merges the symbols of words.
type bpe struct {
	vocab  map[string]int32
	tokens map[int32]string
	top    int32 // the highest id
	merges map[pair]merge

	unk                                 int32
	hasUnk                              bool
	fuseUnk, byteFallback, ignoreMerges bool

	// If raw is set, words are bytes, not text in GPT-2's alphabet. Then bytes has the id of each byte's character, or
	// -1, and rawWords is the vocabulary in bytes.
	raw      bool
	bytes    [256]int32
	rawWords map[string]int32
	chars    map[rune]int32 // the vocabulary's single characters

	cuts bool // no merge joins a mark to what precedes it, except to another mark

	cache wordCache
}

// A pair is two ids in 64 bits, which Go's maps look up faster than a struct.
type pair uint64

func pairOf(left, right int32) pair { return pair(uint64(uint32(left))<<32 | uint64(uint32(right))) }

type merge struct{ rank, id int32 }

// mark is the character that metaspace tokenizers write for a space.
const mark = "▁"

// encode appends the ids of one word.
func (m *bpe) encode(ids []int32, word string) []int32 {
	if m.ignoreMerges {
		if id, ok := m.whole(word); ok {
			return append(ids, id)
		}
	}
	for m.cuts && !m.raw {
		at := m.cut(word)
		if at == 0 {
			break
		}
		ids = m.encodeCached(ids, word[:at])
		word = word[at:]
	}
	return m.encodeCached(ids, word)
}

// cut finds where a metaspace tokenizer's word, which may be a whole text, can be cut without changing the ids, so that
// the cache can hold its parts. That is before the first mark that follows a known character: no merge crosses that
// place. An unknown character may fuse with the next, so there is no cut after it. It returns 0 if there is no cut.
func (m *bpe) cut(word string) int {
	for from := 0; ; {
		next := strings.Index(word[from:], mark)
		if next < 0 {
			return 0
		}
		at := from + next
		before, _ := utf8.DecodeLastRuneInString(word[:at])
		if _, known := m.chars[before]; at > 0 && known && !strings.HasSuffix(word[:at], mark) {
			return at
		}
		from = at + len(mark)
	}
}

// encodeCached appends the ids of a word, or of a part of it that cut gave.
func (m *bpe) encodeCached(ids []int32, word string) []int32 {
	cached, hit := m.cache.get(word)
	if !hit {
		cached = m.merge(m.symbols(word))
		m.cache.put(word, cached)
	}
	return append(ids, cached...)
}

func (m *bpe) whole(word string) (int32, bool) {
	words := m.vocab
	if m.raw {
		words = m.rawWords
	}
	id, ok := words[word]
	return id, ok
}

// useBytes makes the model read words as bytes, if the pre-tokenizer ends in ByteLevel. The ids are the same.
func (m *bpe) useBytes() {
	m.raw, m.rawWords = true, make(map[string]int32, len(m.vocab))
	for token, id := range m.vocab {
		if b, ok := fromAlphabet(token); ok {
			m.rawWords[string(b)] = id
		}
	}
	for b := range m.bytes {
		m.bytes[b] = -1
		if id, ok := m.vocab[string(byteChars[b])]; ok {
			m.bytes[b] = id
		}
	}
}

// symbols returns the ids that merging begins with: one for each character, or for each of its bytes, or unknown.
func (m *bpe) symbols(word string) []int32 {
	s := symbolizer{m: m, out: make([]int32, 0, len(word))}
	if m.raw {
		for i := range len(word) {
			s.add(m.bytes[word[i]], "") // a model with raw set has no byte fallback: see readPipeline
		}
	} else {
		for _, r := range word {
			id, char := int32(-1), ""
			if known, ok := m.chars[r]; ok {
				id = known
			} else {
				char = string(r)
			}
			s.add(id, char)
		}
	}
	s.flush()
	return s.out
}

type symbolizer struct {
	m       *bpe
	out     []int32
	unknown bool // an unknown character is not yet in out, as the next one may fuse with it
}

// add appends a character. A negative id means that the vocabulary does not have it.
func (s *symbolizer) add(id int32, char string) {
	switch {
	case id >= 0:
		s.flush()
		s.out = append(s.out, id)
	case s.m.byteFallback && s.fallBack(char):
	case s.m.hasUnk:
		if !s.m.fuseUnk {
			s.flush()
		}
		s.unknown = true
	}
}

func (s *symbolizer) flush() {
	if s.unknown {
		s.out = append(s.out, s.m.unk)
		s.unknown = false
	}
}

// fallBack writes a character as byte tokens <0xNN>, if the vocabulary has all of them. As in Hugging Face's library, a
// pending unknown character remains pending.
func (s *symbolizer) fallBack(char string) bool {
	var ids [utf8.UTFMax]int32
	for i := range len(char) {
		id, ok := s.m.vocab[byteToken(char[i])]
		if !ok {
			return false
		}
		ids[i] = id
	}
	s.out = append(s.out, ids[:len(char)]...)
	return true
}

func byteToken(b byte) string { return fmt.Sprintf("<0x%02X>", b) }

// A link is one symbol of a word that is being merged. Links form a list inside a slice, so that a merge moves nothing.
type link struct {
	id         int32
	prev, next int32 // -1 at the ends
	gone       bool
}

// A candidate is a pair of neighbours that can be merged.
type candidate struct {
	merge
	at int32 // index of the left one
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

// A merger merges one word. Its heap orders candidates by rank, then place, so that n symbols take n log n steps.
type merger struct {
	links []link
	heap  []candidate
}

var mergers = sync.Pool{New: func() any { return &merger{} }}

// merge merges neighbours until no merge fits: the lowest rank first, and among equals the leftmost.
func (m *bpe) merge(ids []int32) []int32 {
	if len(ids) < 2 {
		return ids
	}
	w := mergers.Get().(*merger)
	defer mergers.Put(w)
	w.begin(ids)
	for at := range int32(len(ids) - 1) {
		w.offer(m, at)
	}
	for len(w.heap) > 0 {
		w.apply(m, w.pop())
	}
	out := ids[:0]
	for _, l := range w.links {
		if !l.gone {
			out = append(out, l.id)
		}
	}
	return out
}

func (w *merger) begin(ids []int32) {
	w.links, w.heap = w.links[:0], w.heap[:0]
	for i, id := range ids {
		w.links = append(w.links, link{id: id, prev: int32(i) - 1, next: int32(i) + 1})
	}
	w.links[len(ids)-1].next = -1
}

// offer adds a symbol and its right neighbour to the heap, if they can be merged.
func (w *merger) offer(m *bpe, at int32) {
	if at < 0 || w.links[at].next < 0 {
		return
	}
	if c, ok := m.merges[pairOf(w.links[at].id, w.links[w.links[at].next].id)]; ok {
		w.push(candidate{c, at})
	}
}

// apply merges a candidate, unless one of its two symbols has changed since it was offered.
func (w *merger) apply(m *bpe, c candidate) {
	left := &w.links[c.at]
	if left.gone || left.next < 0 {
		return
	}
	right := &w.links[left.next]
	if now, ok := m.merges[pairOf(left.id, right.id)]; !ok || now.id != c.id {
		return
	}
	left.id, left.next, right.gone = c.id, right.next, true
	if right.next >= 0 {
		w.links[right.next].prev = c.at
	}
	w.offer(m, left.prev)
	w.offer(m, c.at)
}

func (w *merger) push(c candidate) {
	w.heap = append(w.heap, c)
	for i := len(w.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !w.heap[i].before(w.heap[up]) {
			break
		}
		w.heap[i], w.heap[up] = w.heap[up], w.heap[i]
		i = up
	}
}

func (w *merger) pop() candidate {
	top, last := w.heap[0], len(w.heap)-1
	w.heap[0] = w.heap[last]
	w.heap = w.heap[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if w.heap[child].before(w.heap[least]) {
				least = child
			}
		}
		if least == i {
			return top
		}
		w.heap[i], w.heap[least] = w.heap[least], w.heap[i]
		i = least
	}
}

// Bounds of the cache. A full shard is emptied, so that it holds the words of recent text.
const (
	cacheShards = 16
	shardWords  = 8192
	cachedBytes = 64 // length of the longest word that is kept
)

// A wordCache remembers the ids of words.
type wordCache struct {
	seed   maphash.Seed
	shards [cacheShards]struct {
		sync.RWMutex
		words map[string][]int32
	}
}

func (c *wordCache) get(word string) ([]int32, bool) {
	if len(word) > cachedBytes {
		return nil, false
	}
	s := &c.shards[maphash.String(c.seed, word)%cacheShards]
	s.RLock()
	ids, ok := s.words[word]
	s.RUnlock()
	return ids, ok
}

func (c *wordCache) put(word string, ids []int32) {
	if len(word) > cachedBytes {
		return
	}
	s := &c.shards[maphash.String(c.seed, word)%cacheShards]
	s.Lock()
	defer s.Unlock()
	if s.words == nil || len(s.words) >= shardWords {
		s.words = map[string][]int32{}
	}
	s.words[string([]byte(word))] = ids // a copy, so that the cache does not hold the whole text
}
