// Package alpaca counts judgements as AlpacaEval 2 does: a model's win rate against a baseline, and the win rate that
// it would have with outputs as long as the baseline's (arXiv:2404.04475).
package alpaca

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// Counts are the benchmark's numbers, under its names. Rates are in hundredths.
type Counts struct {
	WinRate         float64 `json:"win_rate"`       // mean probability of a win
	StandardError   float64 `json:"standard_error"` // of the win rate: √(variance/n)
	Wins            int     `json:"n_wins"`         // probability above 1/2
	WinsBase        int     `json:"n_wins_base"`
	Draws           int     `json:"n_draws"`
	Total           int     `json:"n_total"`           // with a preference
	DiscreteWinRate float64 `json:"discrete_win_rate"` // wins, and half of the draws
	AvgLength       int     `json:"avg_length"`        // of the model's outputs, in characters
}

// win is the probability that the judge prefers the model's output.
func win(j Judgement) float64 {
	if j.Preference == 0 {
		return 0.5
	}
	return j.Preference - 1
}

// Count counts judgements. Those without a preference do not count, but for the length.
func Count(all []Judgement) (Counts, error) {
	var c Counts
	sum, squares, length := 0.0, 0.0, 0
	for _, j := range all {
		length += utf8.RuneCountInString(j.Output)
		if !j.Judged {
			continue
		}
		x := win(j)
		sum += x
		c.Total++
		switch {
		case x > 0.5:
			c.Wins++
		case x < 0.5:
			c.WinsBase++
		default:
			c.Draws++
		}
	}
	if c.Total < 2 {
		return c, fmt.Errorf("%d judgements with a preference: want two or more", c.Total)
	}
	n := float64(c.Total)
	for _, j := range all {
		if d := win(j) - sum/n; j.Judged {
			squares += d * d
		}
	}
	c.WinRate, c.StandardError = 100*sum/n, 100*math.Sqrt(squares/(n-1)/n)
	c.DiscreteWinRate = 100 * (float64(c.Wins) + float64(c.Draws)/2) / n
	c.AvgLength = length / len(all)
	return c, nil
}
