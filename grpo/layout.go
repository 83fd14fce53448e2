package grpo

import (
	"math"
	"slices"

	"github.com/posttrain/posttrain/batch"
)

// rowLengths are those that rows of shared prompts may have. They are few, since each is compiled for, and the time per
// answer token is flat around its least.
var rowLengths = []int{64, 96, 128, 192, 256, 384, 512, 640, 768, 1024, 1280, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768}

// deviceTokens is what goes through the model at once where the engine asks for no bound.
const deviceTokens = 8192

// spreading chooses the rows for groups. It is a function of the groups alone, so that a resumed run has the shapes, and the
// rounding, of one that was never stopped; and a coarse one, so that steps of like groups have the same shapes.
func (t *Trainer) spreading(groups []batch.Group) batch.Spreading {
	s := batch.Spreading{Tokens: t.tokens(), Apart: t.Apart}
	units := alone(groups)
	if len(units) == 0 {
		s.Short = rowLengths[0]
		return s
	}
	if t.Apart {
		s.Short = (units[len(units)-1] + 31) / 32 * 32
		return s
	}
	if s.Short = t.row; t.row == 0 {
		s.Short = t.cheapest(groups, atLeast(units[9*(len(units)-1)/10]))
	}
	return s
}

func (t *Trainer) tokens() int {
	if t.Tokens > 0 {
		return t.Tokens
	}
	if n := t.Learner.Wants().Tokens; n > 0 {
		return n
	}
	return deviceTokens
}

// alone are the lengths of all answers with their prompts, in order.
func alone(groups []batch.Group) (units []int) {
	for _, g := range groups {
		for _, a := range g.Answers {
			if len(a) > 0 {
				units = append(units, len(g.Prompt)-1+len(a))
			}
		}
	}
	slices.Sort(units)
	return units
}

// best estimates the row length at which an answer token costs least. A row of L tokens costs L·(1 + L/(c·H)), the second part
// being attention, and holds L - P tokens of answers behind its prompt of P: the least per token is at P + √(P² + c·H·P). It is
// not longer than a group.
func (t *Trainer) best(groups []batch.Group) float64 {
	prompts, whole, n := 0.0, 0.0, 0.0
	for _, g := range groups {
		if g.AnswerTokens() > 0 {
			prompts, whole, n = prompts+float64(len(g.Prompt)), math.Max(whole, float64(len(g.Prompt)+g.AnswerTokens())), n+1
		}
	}
	p := prompts / n
	return math.Min(whole, p+math.Sqrt(p*p+attentionShare*float64(t.Learner.Config().HiddenSize)*p))
}

// cheapest is the row length, at least so many tokens, that is nearest to the best, or another not far from it that saves an
// eighth of the time: groups that just fit into their rows waste nothing.
func (t *Trainer) cheapest(groups []batch.Group, least int) int {
	start := max(nearest(t.best(groups)), least)
	chosen, time := start, t.cost(groups, start)
	for _, l := range rowLengths {
		if near := l >= least && 2*l > start && l < 2*start; !near {
			continue
		}
		if c := t.cost(groups, l); c < 0.875*time {
			chosen, time = l, c
		}
	}
	return chosen
}

// cost estimates the time of a pass over the groups in rows of so many tokens.
func (t *Trainer) cost(groups []batch.Group, row int) (sum float64) {
	for _, p := range batch.Spread(groups, batch.Spreading{Short: row, Tokens: t.tokens()}) {
		sum += p.Cost(t.Learner.Config().HiddenSize)
	}
	return sum
}

// attentionShare is c: a row of c·H tokens spends as much on attention as on the layers' matrices (batch.Packed.Cost).
const attentionShare = 4

// nearest is the row length of the smallest ratio to n.
func nearest(n float64) int {
	best := rowLengths[0]
	for _, l := range rowLengths {
		if math.Abs(math.Log(float64(l)/n)) < math.Abs(math.Log(float64(best)/n)) {
			best = l
		}
	}
	return best
}

// atLeast is the smallest row length that holds n, or n where there is none.
func atLeast(n int) int {
	if i, _ := slices.BinarySearch(rowLengths, n); i < len(rowLengths) {
		return rowLengths[i]
	}
	return n
}
