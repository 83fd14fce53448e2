package data

import (
	"fmt"
	"slices"
	"strings"
)

// PriorReport counts what Gaps found in the scores.
type PriorReport struct {
	Pairs, Kept      int
	Negative         int     // pairs whose labels and scores disagree
	Zero             int     // kept pairs with gap 0, after the treatment of negative gaps
	OnNegativeGap    string  // what was done with negative ones
	Transform, Words string  // see Rewards
	Mean, Median     float64 // of the gaps kept, as are Min and Max
	Min, Max         float64
	Saturated        int     // gaps above 0.99
	Beyond           int     // gaps above 1, of rewards that are not in [0, 1]
	Tenths           [10]int // gaps below 0.1, from 0.1 to 0.2, and so on
	RankMedian       float64 // the median gap with reward_transform rank
}

func (r *PriorReport) summarise(gaps []float64) {
	sorted := slices.Sorted(slices.Values(gaps))
	r.Kept, r.Median, r.Min, r.Max = len(gaps), sorted[len(gaps)/2], sorted[0], sorted[len(gaps)-1]
	for _, gap := range gaps {
		r.Mean += gap / float64(len(gaps))
		r.Tenths[min(max(int(10*gap), 0), 9)]++
		if gap == 0 {
			r.Zero++
		}
		if gap > 0.99 {
			r.Saturated++
		}
		if gap > 1+1e-9 {
			r.Beyond++
		}
	}
}

// Lines returns the report as short lines.
func (r *PriorReport) Lines() []string {
	lines := []string{
		fmt.Sprintf("prior: %d of %d pairs, gap median %.3f, mean %.3f (%.3f to %.3f)", r.Kept, r.Pairs, r.Median,
			r.Mean, r.Min, r.Max),
		fmt.Sprintf("  gaps by tenths, from 0 to 1: %s", r.histogram()),
		fmt.Sprintf("  reward_transform %s: %s", r.Transform, r.Words),
	}
	if r.Negative > 0 {
		done := map[string]string{"clamp": "gap set to 0", "drop": "dropped", "swap": "chosen and rejected swapped"}
		lines = append(lines, fmt.Sprintf("  %d pairs where rejected scores higher than chosen: %s", r.Negative,
			done[r.OnNegativeGap]))
	}
	if r.Zero > 0 {
		lines = append(lines, fmt.Sprintf("  %d pairs with gap 0: only their chosen answer is raised", r.Zero))
	}
	return lines
}

// histogram draws the tenths as bars, with their shares of the pairs in hundredths.
func (r *PriorReport) histogram() string {
	bars, most := []rune("▁▂▃▄▅▆▇█"), slices.Max(r.Tenths[:])
	var drawn, shares []string
	for _, n := range r.Tenths {
		drawn = append(drawn, string(bars[(n*(len(bars)-1)+most-1)/most]))
		shares = append(shares, fmt.Sprintf("%.0f", 100*float64(n)/float64(r.Kept)))
	}
	return fmt.Sprintf("%s  (%s %%)", strings.Join(drawn, ""), strings.Join(shares, ", "))
}

func (r *PriorReport) String() string { return strings.Join(r.Lines(), "\n") }

// Warning says that with these gaps MaPPO is no preference learning, or the plain loss, and how to mend it. It is ""
// where all is well.
func (r *PriorReport) Warning() string {
	mend := fmt.Sprintf("set data.reward_transform to rank, with which the median gap is %.2f, or to one that suits "+
		"the scores; or train without the prior (loss.prior none)", r.RankMedian)
	if r.RankMedian < smallMedian || r.Transform == TransformRank {
		mend = "scores of chosen and rejected answers hardly differ: check them, or train without the prior " +
			"(loss.prior none)"
	}
	switch {
	case r.Beyond > 0:
		return fmt.Sprintf("%d of %d of the prior's gaps are above 1, up to %.4g: rewards are to be in [0, 1], and "+
			"reward_transform %s takes the scores as they are; set data.reward_transform to auto, or to one that suits "+
			"the scores", r.Beyond, r.Kept, r.Max, r.Transform)
	case r.Median < smallMedian:
		return fmt.Sprintf("the median of the prior's gaps is %.2g: with a gap near 0 MaPPO raises the chosen answer "+
			"and leaves the rejected one alone, which is no preference learning; %s", r.Median, mend)
	case 10*r.Saturated > 9*r.Kept:
		return fmt.Sprintf("%d of %d of the prior's gaps are 1: there MaPPO is the plain loss; %s", r.Saturated, r.Kept,
			mend)
	}
	return ""
}

// smallMedian is the median gap below which the prior leaves nothing of the preferences.
const smallMedian = 0.05
