package gate

import (
	"encoding/json"
	"math"

	"gonum.org/v1/gonum/mathext"
	"gonum.org/v1/gonum/stat/combin"

	"github.com/posttrain/posttrain/eval"
)

// Count says how many answers have something, in scenarios that are all answered equally often.
type Count struct {
	Hits      int // answers that have it
	Scenarios int
	Samples   int // answers to each scenario
}

// Share is the proportion of answers, NaN of no answer at all.
func (c Count) Share() float64 { return float64(c.Hits) / float64(c.Scenarios*c.Samples) }

// without counts the other answers.
func (c Count) without() Count { return Count{c.Scenarios*c.Samples - c.Hits, c.Scenarios, c.Samples} }

// MarshalJSON adds the share.
func (c Count) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Share     *float64 `json:"share"`
		Hits      int      `json:"count"`
		Answers   int      `json:"answers"`
		Scenarios int      `json:"scenarios"`
	}{eval.Finite(c.Share()), c.Hits, c.Scenarios * c.Samples, c.Scenarios})
}

// Tail bounds the chance of as many hits or more where the true share is p, whichever way the share differs between
// scenarios and however much the answers to one scenario resemble each other; scenarios are independent.
//
// With one answer to a scenario it is the binomial tail, Pr(B ≥ k), B ~ Bin(n, p): scenarios whose chances differ have
// a lighter one (Hoeffding 1956). With m answers it is min over h of E(B-h)₊/(k/m-h): the shares of the scenarios lie
// in [0, 1], so that their sum is below B in the convex order (Hoeffding 1963; the bound of Bentkus 2004, at most e
// times the binomial tail).
func (c Count) Tail(p float64) float64 {
	switch {
	case c.Hits == 0 || p >= 1:
		return 1
	case p <= 0:
		return 0
	case c.Samples == 1:
		return mathext.RegIncBeta(float64(c.Hits), float64(c.Scenarios-c.Hits+1), p)
	}
	tails := binomialTails(c.Scenarios, p)
	x, least, excess := float64(c.Hits)/float64(c.Samples), 1.0, 0.0
	for h := c.Scenarios - 1; h >= 0; h-- {
		if excess += tails[h+1]; float64(h) < x { // excess is E(B-h)₊, the sum of Pr(B ≥ j) over j > h
			least = min(least, excess/(x-float64(h)))
		}
	}
	return least
}

// binomialTails are Pr(B ≥ j) by j from 0 to n+1. The chances of the counts follow from that of the likeliest one,
// each from its neighbour.
func binomialTails(n int, p float64) []float64 {
	tails, odds := make([]float64, n+2), p/(1-p)
	mode := min(int(float64(n+1)*p), n)
	tails[mode] = math.Exp(combin.LogGeneralizedBinomial(float64(n), float64(mode)) + float64(mode)*math.Log(p) +
		float64(n-mode)*math.Log1p(-p))
	for j := mode; j < n; j++ {
		tails[j+1] = tails[j] * odds * float64(n-j) / float64(j+1)
	}
	for j := mode; j > 0; j-- {
		tails[j-1] = tails[j] / odds * float64(j) / float64(n-j+1)
	}
	for j := n; j >= 0; j-- {
		tails[j] += tails[j+1]
	}
	return tails
}

// Above says that the true share is above a limit beyond doubt: at the limit, a count of hits as high as this is
// rarer than the level. It is the same as Low(level) >= limit.
func (c Count) Above(limit, level float64) bool { return c.Tail(limit) <= level }

// Below is the same as High(level) <= limit.
func (c Count) Below(limit, level float64) bool { return c.without().Above(1-limit, level) }

// Low is the lower bound of the true share at a one-sided level, such as 0.05: the largest share with a Tail of no more
// than the level. With one answer to a scenario it is that of Clopper and Pearson (1934).
func (c Count) Low(level float64) float64 {
	if c.Hits == 0 {
		return 0
	}
	if c.Samples == 1 {
		return mathext.InvRegIncBeta(float64(c.Hits), float64(c.Scenarios-c.Hits+1), level)
	}
	low, high := 0.0, c.Share()
	for range 50 {
		if middle := (low + high) / 2; c.Tail(middle) <= level {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// High is the upper bound at a one-sided level.
func (c Count) High(level float64) float64 { return 1 - c.without().Low(level) }

// Enough is the least number of scenarios at which a share of 0 has an upper bound of no more than a limit.
func Enough(limit, level float64) int { return int(math.Ceil(math.Log(level) / math.Log1p(-limit))) }
