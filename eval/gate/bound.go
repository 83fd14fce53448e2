package gate

import (
	"encoding/json"
	"math"

	"gonum.org/v1/gonum/mathext"

	"github.com/posttrain/posttrain/eval"
)

// Count says how many answers have something; each scenario has one answer.
type Count struct{ Hits, Scenarios int }

// Share is the proportion of answers, NaN of no answer at all.
func (c Count) Share() float64 { return float64(c.Hits) / float64(c.Scenarios) }

// without counts the other answers.
func (c Count) without() Count { return Count{c.Scenarios - c.Hits, c.Scenarios} }

// MarshalJSON adds the share.
func (c Count) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Share     *float64 `json:"share"`
		Hits      int      `json:"count"`
		Scenarios int      `json:"scenarios"`
	}{eval.Finite(c.Share()), c.Hits, c.Scenarios})
}

// Tail is the chance of as many hits or more where the true share is p: the binomial tail, Pr(B ≥ k), B ~ Bin(n, p).
// Scenarios are independent; where their chances differ, the tail is lighter (Hoeffding 1956).
func (c Count) Tail(p float64) float64 {
	switch {
	case c.Hits == 0 || p >= 1:
		return 1
	case p <= 0:
		return 0
	}
	return mathext.RegIncBeta(float64(c.Hits), float64(c.Scenarios-c.Hits+1), p)
}

// Above says that the true share is above a limit beyond doubt: at the limit, a count of hits as high as this is
// rarer than the level. It is the same as Low(level) >= limit.
func (c Count) Above(limit, level float64) bool { return c.Tail(limit) <= level }

// Below is the same as High(level) <= limit.
func (c Count) Below(limit, level float64) bool { return c.without().Above(1-limit, level) }

// Low is the lower bound of the true share at a one-sided level, such as 0.05: the largest share with a Tail of no more
// than the level, the bound of Clopper and Pearson (1934).
func (c Count) Low(level float64) float64 {
	if c.Hits == 0 {
		return 0
	}
	return mathext.InvRegIncBeta(float64(c.Hits), float64(c.Scenarios-c.Hits+1), level)
}

// High is the upper bound at a one-sided level.
func (c Count) High(level float64) float64 { return 1 - c.without().Low(level) }

// Enough is the least number of scenarios at which a share of 0 has an upper bound of no more than a limit.
func Enough(limit, level float64) int { return int(math.Ceil(math.Log(level) / math.Log1p(-limit))) }
