package records

import (
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/posttrain/posttrain/data"
)

// lengths counts how often the longer answer of a pair is the chosen one, in characters.
type lengths struct {
	longer, shorter  int
	chosen, rejected []int // of the first pairs
}

// mostLengths bounds the lengths that are kept for the medians.
const mostLengths = 1_000_000

func (l *lengths) add(p data.Preference) {
	a, b := utf8.RuneCountInString(p.Chosen.Words()), utf8.RuneCountInString(p.Rejected.Words())
	switch {
	case a > b:
		l.longer++
	case a < b:
		l.shorter++
	}
	if len(l.chosen) < mostLengths {
		l.chosen, l.rejected = append(l.chosen, a), append(l.rejected, b)
	}
}

// share is the part of the pairs of unlike lengths whose longer answer is chosen, with Wilson's 95 % interval.
func (l *lengths) share() (share, low, high float64) {
	n, z := float64(l.longer+l.shorter), 1.959964
	share = float64(l.longer) / n
	middle, wide := share+z*z/(2*n), z*math.Sqrt(share*(1-share)/n+z*z/(4*n*n))
	return share, (middle - wide) / (1 + z*z/n), (middle + wide) / (1 + z*z/n)
}

func median(all []int) int { return slices.Sorted(slices.Values(all))[len(all)/2] }

// telling is the share of labels that length must predict, beyond doubt, to be a warning.
const telling = 0.7

var byLength = Rule{Warning, "length", "length alone predicts which answer was chosen: a model may learn to write " +
	"longer or shorter, and no better"}

// finish says how well length predicts the label.
func (l *lengths) finish(r *Report) {
	if l.longer+l.shorter == 0 {
		return
	}
	share, low, high := l.share()
	r.Profile = append(r.Profile, fmt.Sprintf("length: the longer answer is the chosen one in %.1f%% of %d pairs "+
		"(95%% interval %.1f to %.1f); medians: chosen %d, rejected %d characters", 100*share, l.longer+l.shorter,
		100*low, 100*high, median(l.chosen), median(l.rejected)))
	if low > telling {
		r.add(byLength, "", "", fmt.Sprintf("the longer one in %.1f%% of the pairs", 100*share))
	}
	if high < 1-telling {
		r.add(byLength, "", "", fmt.Sprintf("the shorter one in %.1f%% of the pairs", 100-100*share))
	}
}
