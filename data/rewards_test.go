package data

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// rewardsOf fits a transform to scores, two a pair.
func rewardsOf(t *testing.T, o RewardOptions, scores ...[2]float64) *Rewards {
	t.Helper()
	o.OnNegativeGap = "clamp"
	return expect.Must(o.Fit(scoredPairs(scores...)))(t)
}

// TestTransforms compares rewards with numbers by hand.
func TestTransforms(t *testing.T) {
	sigma := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	five := [][2]float64{{1, 2}, {3, 4}, {5, 5}} // sorted 1 2 3 4 5 5: median 4, quartiles 2 and 5
	for _, c := range []struct {
		o      RewardOptions
		scores [][2]float64
		want   map[float64]float64
	}{
		{RewardOptions{Transform: "none"}, five, map[float64]float64{3: 3}},
		{RewardOptions{Transform: "scale", Range: []float64{1, 5}}, five, map[float64]float64{1: 0, 2: 0.25, 5: 1}},
		{RewardOptions{Transform: "rank"}, five, map[float64]float64{1: 0.5 / 6, 5: 5. / 6, 2.5: 2. / 6, 0: 0, 6: 1}},
		{RewardOptions{Transform: "logistic", Temperature: 2}, five, map[float64]float64{0: 0.5, 3: sigma(1.5)}},
		{RewardOptions{Transform: "logistic"}, five, map[float64]float64{0: 0.5, 3: sigma(3), -2: sigma(-2)}},
		{RewardOptions{Transform: "quartiles"}, five, map[float64]float64{4: 0.5, 5: sigma(2 * math.Log(3) / 3)}},
	} {
		r := rewardsOf(t, c.o, c.scores...)
		for score, want := range c.want {
			if got := r.Of(score); math.Abs(got-want) > 1e-12 {
				t.Errorf("%s of %v is %v: want %v", c.o.Transform, score, got, want)
			}
		}
	}
}

// drawn are n pairs of scores that draw gives.
func drawn(n int, draw func(r *rand.Rand) float64) [][2]float64 {
	r := rand.New(rand.NewPCG(1, 2))
	all := make([][2]float64, n)
	for i := range all {
		a, b := draw(r), draw(r)
		all[i] = [2]float64{max(a, b), min(a, b)}
	}
	return all
}

// TestAutoRecognisesScores: the sort of scores decides, and one odd score among many changes no other reward.
func TestAutoRecognisesScores(t *testing.T) {
	for _, c := range []struct {
		name string
		draw func(r *rand.Rand) float64
		want string
	}{
		{"probabilities", func(r *rand.Rand) float64 { return r.Float64() },
			"scores are in [0, 1]: rewards are the scores"},
		{"ratings to 5", func(r *rand.Rand) float64 { return 1 + float64(r.IntN(5)) },
			"scores are of ratings from 1 to 5: rewards are (score − 1)/4"},
		{"means of ratings to 5", func(r *rand.Rand) float64 { return 1 + float64(r.IntN(17))/4 },
			"scores are of ratings from 1 to 5: rewards are (score − 1)/4"},
		{"thirds to 10", func(r *rand.Rand) float64 { return math.Round(100+100*float64(r.IntN(28))/3) / 100 },
			"scores are of ratings from 1 to 10: rewards are (score − 1)/9"},
		{"ratings from 0", func(r *rand.Rand) float64 { return float64(r.IntN(11)) },
			"scores are of ratings from 0 to 10: rewards are score/10"},
		{"points to 100", func(r *rand.Rand) float64 { return float64(1 + r.IntN(100)) },
			"scores are of ratings from 1 to 100: rewards are (score − 1)/99"},
		{"a reward model", func(r *rand.Rand) float64 { return 4 + 6*r.NormFloat64() },
			"scores have no known bounds: rewards are σ((score − "},
		{"a reward model between 0 and 10", func(r *rand.Rand) float64 { return 10 * r.Float64() },
			"scores have no known bounds: rewards are σ((score − "},
	} {
		scores := drawn(500, c.draw)
		clean := rewardsOf(t, DefaultRewardOptions(), scores...)
		if !strings.HasPrefix(clean.Words, c.want) {
			t.Errorf("%s: %s: want %s", c.name, clean.Words, c.want)
		}
		for _, outlier := range []float64{-1e6, -0.5, 1.0000001, 7.123, 1e6} {
			with := append(slices.Clone(scores), [2]float64{outlier, scores[0][1]})
			odd := rewardsOf(t, DefaultRewardOptions(), with...)
			for _, pair := range scores {
				if d := math.Abs(clean.Of(pair[0]) - odd.Of(pair[0])); d > 0.01 {
					t.Fatalf("%s: the score %v changes the reward of %v by %v: %s", c.name, outlier, pair[0], d,
						odd.Words)
				}
			}
			if x := odd.Of(outlier); x < 0 || x > 1 {
				t.Errorf("%s: the score %v has the reward %v", c.name, outlier, x)
			}
		}
	}
}

// TestFitIsForAllSetsTogether: held-out pairs have a say in the transform of the others.
func TestFitIsForAllSetsTogether(t *testing.T) {
	inside, beyond := scoredPairs([2]float64{1, 0}), scoredPairs([2]float64{7, 0})
	for _, sets := range [][][]Preference{{inside, beyond}, {beyond, inside}, {inside, make([]Preference, 3), beyond}} {
		if r, err := DefaultRewardOptions().Fit(sets...); err != nil || r.Of(7) != 0.7 {
			t.Errorf("%v: %+v", err, r)
		}
	}
	if r, err := DefaultRewardOptions().Fit(inside, inside); err != nil || r.Transform != "none" {
		t.Errorf("%v: %+v", err, r)
	}
}

// TestTransformsThatDoNotFit gives each a line.
func TestTransformsThatDoNotFit(t *testing.T) {
	same := [][2]float64{{3, 3}, {3, 3}}
	for _, c := range []struct {
		o      RewardOptions
		scores [][2]float64
		want   string
	}{
		{RewardOptions{Transform: "scale", Range: []float64{1, 5}}, [][2]float64{{3, 2}, {8, 2}},
			"p.jsonl:2: score 8: reward_transform scale wants scores from 1 to 5"},
		{RewardOptions{Transform: "quartiles"}, same, "p.jsonl:1: all scores are 3: reward_transform quartiles wants"},
		{RewardOptions{Transform: "scale"}, same, "data.reward_range []: reward_transform scale wants the lowest and " +
			"the highest score, such as [1, 10]"},
		{RewardOptions{Transform: "scale", Range: []float64{5, 5}}, same,
			"data.reward_range [5 5]: reward_transform scale"},
		{RewardOptions{Transform: "rank", Range: []float64{1, 5}}, same,
			"data.reward_range [1 5]: only reward_transform scale has a range: remove it"},
		{RewardOptions{Transform: "auto", Temperature: 2}, same,
			"data.reward_temperature 2: only reward_transform logistic has a temperature: remove it"},
		{RewardOptions{Transform: "logistic", Temperature: -1}, same,
			"data.reward_temperature -1: want a number, 0 (1) or more"},
	} {
		c.o.OnNegativeGap = "clamp"
		_, err := c.o.Fit(scoredPairs(c.scores...))
		wantError(t, err, c.want)
	}
}

// TestUselessGapsAreNoticed: the warning names what is wrong and the mend.
func TestUselessGapsAreNoticed(t *testing.T) {
	saturated := drawn(200, func(r *rand.Rand) float64 { return 1e-5 * r.Float64() })
	plain := make([][2]float64, 20)
	for i := range plain {
		plain[i] = [2]float64{1, 0}
	}
	equal := [][2]float64{{3, 3}, {3, 3}}
	for _, c := range []struct {
		transform string
		scores    [][2]float64
		want      string
	}{
		{"auto", saturated, "the median of the prior's gaps is 2.9e-06: with a gap near 0 MaPPO raises the chosen " +
			"answer and leaves the rejected one alone, which is no preference learning; set data.reward_transform to " +
			"rank, with which the median gap is 0.3"},
		{"auto", plain, "20 of 20 of the prior's gaps are 1: there MaPPO is the plain loss; set " +
			"data.reward_transform to rank, with which the median gap is 0.50"},
		{"auto", equal, "the median of the prior's gaps is 0: with a gap near 0 MaPPO raises the chosen answer and " +
			"leaves the rejected one alone, which is no preference learning; scores of chosen and rejected answers " +
			"hardly differ"},
		{"none", [][2]float64{{-3, -5}, {1, 0.5}}, "1 of 2 of the prior's gaps are above 1, up to 2: rewards are to " +
			"be in [0, 1], and reward_transform none takes the scores as they are; set data.reward_transform to auto"},
		{"rank", saturated, ""},
		{"auto", [][2]float64{{1, 0.5}, {0.75, 0.25}}, ""},
	} {
		o := RewardOptions{Transform: c.transform, OnNegativeGap: "clamp"}
		_, _, report, err := Prior(scoredPairs(c.scores...), o)
		expect.OK(t, err)
		if got := report.Warning(); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("warning %q: want %q", got, c.want)
		}
	}
}
