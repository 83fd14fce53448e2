package eval

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Difference is to − from with its 95 % paired bootstrap interval; null where one of the two is not available.
type Difference struct {
	From  *float64 `json:"from"`
	To    *float64 `json:"to"`
	Value *float64 `json:"value"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
}

// Points prints the difference of two rates, in points of percent.
func (d Difference) Points() string {
	return d.print(100, "%+.1f points (95%% interval %+.1f to %+.1f)")
}

// Scores prints the difference of two means.
func (d Difference) Scores() string { return d.print(1, "%+.2f (95%% interval %+.2f to %+.2f)") }

func (d Difference) print(scale float64, form string) string {
	if d.Value == nil || d.Low == nil {
		return "not available"
	}
	return fmt.Sprintf(form, scale**d.Value, scale**d.Low, scale**d.High)
}

// Resamples and seed of the paired bootstrap: the same runs give the same interval.
const (
	pairedResamples = 2000
	pairedSeed      = 0x70616972
)

// Paired compares the means that two runs, from and to, have over the same n cases. value is a case's sum in a run, of
// count samples; 0 where it does not count. The bootstrap draws cases, each with both of its runs; draws in which one
// of the runs has no case that counts are left out, and if they are many there is no interval.
func Paired(n int, value func(to bool, i int) (sum, count float64)) (d Difference) {
	rows := make([][4]float64, n) // by case: sum and count in from, sum and count in to
	for i := range rows {
		for side, to := range []bool{false, true} {
			rows[i][2*side], rows[i][2*side+1] = value(to, i)
		}
	}
	means := func(draw func(i int) int) (a, b float64) { // NaN of no case
		var sums [4]float64
		for i := range n {
			for k, x := range rows[draw(i)] {
				sums[k] += x
			}
		}
		return sums[0] / sums[1], sums[2] / sums[3]
	}
	a, b := means(func(i int) int { return i })
	d.From, d.To, d.Value = Finite(a), Finite(b), Finite(b-a)
	if d.Value == nil || n < 2 {
		return d
	}
	rng := rand.New(rand.NewPCG(pairedSeed, uint64(n)))
	var draws []float64
	for range pairedResamples {
		if a, b := means(func(int) int { return rng.IntN(n) }); !math.IsNaN(b - a) {
			draws = append(draws, b-a)
		}
	}
	if len(draws) > pairedResamples*9/10 {
		slices.Sort(draws)
		d.Low, d.High = Finite(draws[len(draws)/40]), Finite(draws[len(draws)-1-len(draws)/40])
	}
	return d
}
