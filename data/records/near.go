package records

import (
	"math"
	"slices"
	"unicode"
)

// The measure of near-duplicates is the share of the triples of words, upper or lower case, that two records have in
// common, of all that they have (Jaccard). Candidates are found by MinHash: records agree in a whole band of their
// signatures with a probability that rises steeply with that share, and only these are compared, exactly. With 16 bands
// of 4 rows two records that have 0.7 of their triples in common are compared with probability 0.988, with 0.8 0.9998.
const (
	bands    = 16
	bandRows = 4
)

// Bounds of a generation, and so of the memory: an index takes about 100 MB at most.
const (
	mostRecords = 1 << 14
	mostTriples = 1 << 22
)

// index remembers the records of the last generation and of the one before: 16,384 to 32,768 records, or fewer that are
// long.
type index struct {
	share       float64
	now, before *generation
	most        int // records of a generation
}

// generation is a part of the records, with their places in the bands.
type generation struct {
	numbers []uint32
	sets    [][]uint64 // the triples of each, ascending
	triples int
	heads   map[uint64]int32 // band of a signature → the last record there, from 1
	links   [][bands]int32   // the record before it in each of its bands
}

// newIndex makes an index that finds records with a share of their triples in common; 0 finds nothing.
func newIndex(share float64) *index {
	return &index{share: share, now: newGeneration(), before: newGeneration(), most: mostRecords}
}

func newGeneration() *generation { return &generation{heads: map[uint64]int32{}} }

// add looks for the texts of a record among the earlier ones. It returns the number and the share in common of the most
// similar record, if that has at least the share of the index; then it forgets the new one. Otherwise found is false.
func (x *index) add(number uint32, texts ...string) (earlier uint32, share float64, found bool) {
	if x.share <= 0 || len(texts) == 0 {
		return 0, 0, false
	}
	set := triples(texts)
	places := bandsOf(set)
	for _, g := range []*generation{x.now, x.before} {
		if number, s := g.nearest(set, places); s > share {
			earlier, share = number, s
		}
	}
	if share >= x.share {
		return earlier, share, true
	}
	if len(x.now.sets) >= x.most || x.now.triples+len(set) > mostTriples {
		x.now, x.before = newGeneration(), x.now
	}
	x.now.add(number, set, places)
	return 0, 0, false
}

// mostCompared bounds the time that a record takes where all are written by one template.
const mostCompared = 256

// nearest is the record with the largest share in common, of the latest that share a band.
func (g *generation) nearest(set []uint64, places [bands]uint64) (number uint32, share float64) {
	compared := 0
	for b, p := range places {
		for i := g.heads[p]; i > 0 && compared < mostCompared; i = g.links[i-1][b] {
			compared++
			if s := jaccard(set, g.sets[i-1]); s > share {
				number, share = g.numbers[i-1], s
			}
		}
	}
	return number, share
}

func (g *generation) add(number uint32, set []uint64, places [bands]uint64) {
	var links [bands]int32
	for b, p := range places {
		links[b] = g.heads[p]
		g.heads[p] = int32(len(g.sets) + 1)
	}
	g.numbers, g.sets, g.links = append(g.numbers, number), append(g.sets, set), append(g.links, links)
	g.triples += len(set)
}

// jaccard is the number of common elements of two ascending sets as a share of all.
func jaccard(a, b []uint64) float64 {
	common := 0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] < b[j]:
			i++
		case a[i] > b[j]:
			j++
		default:
			i, j, common = i+1, j+1, common+1
		}
	}
	return float64(common) / float64(max(len(a)+len(b)-common, 1))
}

// triples hashes each three words that follow one another in a text, ascending.
func triples(texts []string) (set []uint64) {
	var words []uint64
	for _, text := range texts {
		words = hashWords(words[:0], text)
		for i := range max(len(words)-2, 1) {
			var h uint64
			for _, w := range words[i:min(i+3, len(words))] {
				h = scramble(h + w)
			}
			set = append(set, h)
		}
	}
	slices.Sort(set)
	return slices.Clip(slices.Compact(set))
}

// hashWords appends the hashes (FNV-1a) of the words of a text: runs of letters and digits, in small letters.
func hashWords(words []uint64, text string) []uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h, inside := uint64(offset), false
	for _, r := range text {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			h, inside = (h^uint64(unicode.ToLower(r)))*prime, true
		} else if inside {
			words, h, inside = append(words, h), offset, false
		}
	}
	if inside {
		words = append(words, h)
	}
	return words
}

// bandsOf hashes the bands of a set's signature, each with its number.
func bandsOf(set []uint64) (places [bands]uint64) {
	var least [bands * bandRows]uint64
	for k := range least {
		least[k] = math.MaxUint64
	}
	for _, x := range set {
		for k := range least {
			least[k] = min(least[k], scramble(x+uint64(k)*0x9e3779b97f4a7c15))
		}
	}
	for b := range places {
		h := uint64(b)
		for _, x := range least[b*bandRows : (b+1)*bandRows] {
			h = scramble(h ^ x)
		}
		places[b] = h
	}
	return places
}

// scramble is the finaliser of splitmix64.
func scramble(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
