package records

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// texts are n random texts of 20 to 40 words; every tenth repeats an earlier one with some words changed.
func texts(n int) (all []string) {
	rng := rand.New(rand.NewPCG(1, 2))
	word := func() string { return fmt.Sprint("w", rng.IntN(500)) }
	for i := range n {
		var words []string
		for range 20 + rng.IntN(21) {
			words = append(words, word())
		}
		if i%10 == 9 {
			words = strings.Fields(all[rng.IntN(i)])
			for range rng.IntN(4) {
				words[rng.IntN(len(words))] = word()
			}
		}
		all = append(all, strings.Join(words, " "))
	}
	return all
}

// slowly compares sets of triples of words, written out, with each other.
func slowly(text string) map[string]bool {
	words, set := strings.Fields(text), map[string]bool{}
	for i := range len(words) - 2 {
		set[strings.Join(words[i:i+3], " ")] = true
	}
	return set
}

func share(a, b map[string]bool) float64 {
	common := 0
	for x := range a {
		if b[x] {
			common++
		}
	}
	return float64(common) / float64(len(a)+len(b)-common)
}

// TestIndex: the records found are those that comparing each with each finds, and the shares are the same.
func TestIndex(t *testing.T) {
	const near = 0.7
	index, kept, found := newIndex(near), map[uint32]map[string]bool{}, 0
	for i, text := range texts(300) {
		set, best := slowly(text), 0.0
		for _, k := range kept {
			best = max(best, share(set, k))
		}
		earlier, got, ok := index.add(uint32(i), text)
		if ok != (best >= near) || ok && (got != best || got != share(set, kept[earlier])) {
			t.Errorf("record %d: %v at %d: %v, want %v", i, got, earlier, ok, best)
		}
		if ok {
			found++
		} else {
			kept[uint32(i)] = set
		}
	}
	if found < 15 || found == 30 {
		t.Errorf("%d of 30 are found: the test wants some and not all", found)
	}
}

// TestBounds: an index holds two generations, and finds what is in them.
func TestBounds(t *testing.T) {
	index := newIndex(1)
	index.most = 10
	for i := range 95 {
		index.add(uint32(i), fmt.Sprint("one two three ", i))
	}
	if len(index.now.sets) != 5 || len(index.before.sets) != 10 {
		t.Errorf("%d and %d records", len(index.now.sets), len(index.before.sets))
	}
	for number, want := range map[uint32]bool{79: false, 80: true, 89: true, 90: true, 94: true} {
		at, _, found := index.add(1000, fmt.Sprint("ONE, two; three ", number))
		if found != want || found && at != number {
			t.Errorf("record %d: found %v at %d", number, found, at)
		}
	}
	long := newIndex(1)
	long.add(1, strings.Join(texts(1), "")+"x")
	long.now.triples = mostTriples
	long.add(2, "a b c d")
	if len(long.now.sets) != 1 || len(long.before.sets) != 1 {
		t.Error("long texts do not end a generation")
	}
	if _, _, found := newIndex(0).add(1, ""); found {
		t.Error("the share 0 finds something")
	}
}
