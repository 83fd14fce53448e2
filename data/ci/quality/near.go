package quality

import (
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"unicode"

	"github.com/posttrain/posttrain/data/ci"
)

// Near-duplicates are found by MinHash: items agree in a whole band of their signatures with a probability that rises
// steeply with the share of triples in common, and only these are compared. With 16 bands of 4 rows a pair that has 0.7
// of its triples in common is compared with probability 0.988, one with 0.8 with 0.9998.
const (
	bands = 16
	rows  = 4
)

// Duplicates finds the items that have a share near of their triples of words in common with an earlier one.
func Duplicates(items []ci.Item, near float64) []Finding {
	if near <= 0 {
		return nil
	}
	var all []Finding
	sets := make([]map[uint64]bool, len(items))
	buckets := map[[2]uint64][]int{}
	for i := range items {
		sets[i] = triples(&items[i])
		places := bandsOf(sets[i])
		earlier, share := nearest(i, places, buckets, sets)
		if share >= near {
			all = append(all, Finding{Duplicate, i, "dataset_item", fmt.Sprintf(
				"%.0f %% of its triples of words are those of %s", 100*share, nameOf(items, earlier))})
			continue // later items are compared with those that are kept
		}
		for _, p := range places {
			buckets[p] = append(buckets[p], i)
		}
	}
	return all
}

func nameOf(items []ci.Item, i int) string {
	if items[i].Source != "" {
		return items[i].Source
	}
	return fmt.Sprintf("item %d", i+1)
}

// nearest is the earlier item with the largest share of triples in common, of those that share a band.
func nearest(i int, places [bands][2]uint64, buckets map[[2]uint64][]int, sets []map[uint64]bool) (
	at int, share float64) {
	for _, p := range places {
		for _, j := range buckets[p] {
			if s := jaccard(sets[i], sets[j]); s > share {
				at, share = j, s
			}
		}
	}
	return at, share
}

// jaccard is the number of common elements as a share of all.
func jaccard(a, b map[uint64]bool) float64 {
	common := 0
	for x := range a {
		if b[x] {
			common++
		}
	}
	return float64(common) / float64(max(len(a)+len(b)-common, 1))
}

// triples hashes each three words that follow one another in the task and in each piece of information.
func triples(item *ci.Item) map[uint64]bool {
	set := map[uint64]bool{}
	texts := []string{item.DatasetItem.UserTask}
	for _, f := range item.DatasetItem.Information {
		texts = append(texts, f.Text)
	}
	for _, text := range texts {
		words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r)
		})
		for i := range max(len(words)-2, 1) {
			h := fnv.New64a()
			h.Write([]byte(strings.Join(words[i:min(i+3, len(words))], " ")))
			set[h.Sum64()] = true
		}
	}
	return set
}

// bandsOf hashes the bands of a set's signature, each with its number.
func bandsOf(set map[uint64]bool) (places [bands][2]uint64) {
	var least [bands * rows]uint64
	for k := range least {
		least[k] = math.MaxUint64
	}
	for x := range set {
		for k := range least {
			least[k] = min(least[k], scramble(x+uint64(k)*0x9e3779b97f4a7c15))
		}
	}
	for b := range places {
		h := uint64(b)
		for _, x := range least[b*rows : (b+1)*rows] {
			h = scramble(h ^ x)
		}
		places[b] = [2]uint64{uint64(b), h}
	}
	return places
}

// scramble is the finaliser of splitmix64.
func scramble(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
