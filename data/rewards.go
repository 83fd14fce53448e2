package data

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/float"
)

// RewardOptions say how the scores of answers become rewards in [0, 1], whose differences are the prior gap of MaPPO.
type RewardOptions struct {
	Transform     string    `yaml:"reward_transform" want:"auto|none|scale|rank|logistic|quartiles" default:"auto" help:"how scores become rewards in [0,1] (docs/data.md):"`
	Range         []float64 `yaml:"reward_range,omitempty" words:"two numbers, the lowest and the highest score" help:"scale: the lowest and the highest score, such as [1, 10]"`
	Temperature   float64   `yaml:"reward_temperature,omitempty" want:">=0" zero:"1" help:"logistic: T of σ(score/T); 0: 1, the paper's"`
	OnNegativeGap string    `yaml:"on_negative_gap" want:"clamp|drop|swap|error" default:"clamp" help:"where the rejected answer has the higher reward:"`
}

// Transforms of scores. With s a score, q its set's quantiles:
const (
	TransformAuto      = "auto"      // one of none, scale and quartiles, by the quantiles
	TransformNone      = "none"      // s
	TransformScale     = "scale"     // (s − lo)/(hi − lo) of the range
	TransformRank      = "rank"      // the share of scores below s, and half of those equal to it
	TransformLogistic  = "logistic"  // σ(s/T), with T 1 the paper's
	TransformQuartiles = "quartiles" // σ((s − q(50 %))/T) with quartiles at 1/4 and 3/4
)

// DefaultRewardOptions are the method's: auto, clamp.
func DefaultRewardOptions() RewardOptions { return config.Default[RewardOptions]() }

// Check names every fault of the options.
func (o RewardOptions) Check() []fault.Fault {
	faults := fault.Faults(fault.Check(o))
	ofScale, r := o.Transform == TransformScale, o.Range
	switch {
	case len(r) > 0 && !ofScale:
		faults.Add("reward_range", r, "only reward_transform scale has a range: remove it")
	case ofScale && (len(r) != 2 || !(r[0] < r[1])):
		faults.Add("reward_range", r, "reward_transform scale wants the lowest and the highest score, such as [1, 10]")
	}
	if o.Temperature > 0 && o.Transform != TransformLogistic {
		faults.Add("reward_temperature", o.Temperature, "only reward_transform logistic has a temperature: remove it")
	}
	return faults
}

// Rewards turns scores into rewards.
type Rewards struct {
	Transform string // the one in force: never auto
	Words     string // what it does, and why if auto took it

	of            func(score float64) float64
	onNegativeGap string
	fitted        quantiles
}

// Of is the reward of a score.
func (r *Rewards) Of(score float64) float64 { return r.of(score) }

// Fit settles the transform for all sets of a run together, since losses of differently scaled rewards could not be
// compared. Sets without scores do not matter. The error names a score that the transform cannot take.
func (o RewardOptions) Fit(sets ...[]Preference) (*Rewards, error) {
	if err := fault.Err("data", o.Check()); err != nil {
		return nil, err
	}
	r, all := &Rewards{onNegativeGap: o.OnNegativeGap}, slices.Concat(sets...)
	for _, p := range all {
		for _, x := range []float64{p.ChosenScore, p.RejectedScore} {
			if p.Scored && float.IsFinite(x) {
				r.fitted = append(r.fitted, x)
			}
		}
	}
	slices.Sort(r.fitted)
	if o.Transform == TransformAuto {
		o, r.Words = r.fitted.choose(o)
	} else if err := o.accepts(all, r.fitted); err != nil {
		return nil, err
	}
	words := ""
	r.of, words = o.function(r.fitted)
	r.Transform, r.Words = o.Transform, r.Words+words
	return r, nil
}

// accepts refuses scores that the transform has no reward for.
func (o RewardOptions) accepts(all []Preference, q quantiles) error {
	for _, p := range all {
		for _, s := range []float64{p.ChosenScore, p.RejectedScore} {
			switch {
			case !p.Scored:
			case o.Transform == TransformScale && (s < o.Range[0] || s > o.Range[1]):
				return fmt.Errorf("%s: score %v: reward_transform scale wants scores from %v to %v", p.Source, s,
					o.Range[0], o.Range[1])
			case o.Transform == TransformQuartiles && q.at(0) == q.at(1):
				return fmt.Errorf("%s: all scores are %v: reward_transform quartiles wants different ones", p.Source, s)
			}
		}
	}
	return nil
}

// function is a transform that is not auto, and its formula in words.
func (o RewardOptions) function(q quantiles) (of func(s float64) float64, words string) {
	switch o.Transform {
	case TransformScale:
		return q.scale(o.Range[0], o.Range[1])
	case TransformRank:
		return q.rank, "rewards are the shares of scores that are lower"
	case TransformLogistic:
		return sigmoid(0, cmp.Or(o.Temperature, 1), "")
	case TransformQuartiles:
		return q.quartiles()
	}
	return func(s float64) float64 { return s }, "rewards are the scores"
}

// quantiles are scores in ascending order.
type quantiles []float64

// at is the value below which a share of the scores lies.
func (q quantiles) at(share float64) float64 {
	if len(q) == 0 {
		return 0
	}
	return q[int(math.Round(share*float64(len(q)-1)))]
}

// inner is the range of the scores without the outermost hundredth at each end, and without the outermost score at
// least, so that an outlier decides nothing. Of fewer than 20 scores it is the whole range.
func (q quantiles) inner() (lo, hi float64) {
	n := len(q)
	if n < 20 {
		return q.at(0), q.at(1)
	}
	lo, hi = q[(n+99)/100], q[n-1-(n+99)/100]
	if lo == hi {
		return q.at(0), q.at(1)
	}
	return lo, hi
}

// scale maps a range to [0, 1]; what lies beyond gets the ends.
func (q quantiles) scale(lo, hi float64) (of func(s float64) float64, words string) {
	of = func(s float64) float64 { return min(max((s-lo)/(hi-lo), 0), 1) }
	words = fmt.Sprintf("rewards are %s/%.4g", less(lo), hi-lo)
	if q.at(0) < lo || q.at(1) > hi {
		words += ", at least 0 and at most 1"
	}
	return of, words
}

// less is the difference of a score and a number in words.
func less(x float64) string {
	switch {
	case x == 0:
		return "score"
	case x < 0:
		return fmt.Sprintf("(score + %.4g)", -x)
	}
	return fmt.Sprintf("(score − %.4g)", x)
}

// rank is the share of scores below s, and half of those that equal it.
func (q quantiles) rank(s float64) float64 {
	below, _ := slices.BinarySearch(q, s)
	upTo, _ := slices.BinarySearch(q, math.Nextafter(s, math.Inf(1)))
	return float64(below+upTo) / 2 / float64(max(1, len(q)))
}

// quartiles makes the median 1/2, and puts the quartiles at 1/4 and 3/4, if they are as far from it as each other.
func (q quantiles) quartiles() (of func(x float64) float64, words string) {
	middle, lo, hi, end := q.at(0.5), q.at(0.25), q.at(0.75), 0.75
	if lo == hi {
		lo, hi = q.inner()
		end = 0.99
	}
	t := (hi - lo) / (2 * math.Log(end/(1-end)))
	if t == 0 {
		t = 1
	}
	return sigmoid(middle, t, ", by the median and the quartiles")
}

// sigmoid is σ((score − middle)/t).
func sigmoid(middle, t float64, why string) (of func(x float64) float64, words string) {
	words = less(middle)
	if t != 1 {
		words += fmt.Sprintf("/%.4g", t)
	}
	return func(x float64) float64 { return 1 / (1 + math.Exp(-(x-middle)/t)) }, "rewards are σ(" + words + ")" + why
}

// choose settles auto: scores in [0, 1] are rewards; ratings, that is few different numbers up to 5, 10 or 100, are
// scaled; others have no known bounds and go through the logistic function, by their quartiles.
func (q quantiles) choose(o RewardOptions) (RewardOptions, string) {
	const slack = 1e-6 // of rounding
	lo, hi := q.inner()
	switch {
	case q.at(0) >= 0 && q.at(1) <= 1:
		o.Transform = TransformNone
		return o, "scores are in [0, 1]: "
	case lo >= -slack && hi <= 1+slack:
		o.Transform, o.Range = TransformScale, []float64{0, 1}
		return o, "scores are in [0, 1], but for a few: "
	case q.ratings() && lo >= 0 && hi <= 100:
		o.Transform, o.Range = TransformScale, ratingRange(lo, hi)
		return o, fmt.Sprintf("scores are of ratings from %v to %v: ", o.Range[0], o.Range[1])
	}
	o.Transform = TransformQuartiles
	return o, "scores have no known bounds: "
}

// ratings says whether nearly all scores are whole numbers, or means of up to four of them.
func (q quantiles) ratings() bool {
	odd := 0
	for _, s := range q {
		if x := 12 * s; math.Abs(x-math.Round(x)) > 0.12 { // thirds and quarters, of which two digits are written
			odd++
		}
	}
	return 50*odd <= len(q)
}

// ratingRange guesses the range that ratings are given in.
func ratingRange(lo, hi float64) []float64 {
	r := []float64{1, 100}
	if lo < 1 {
		r[0] = 0
	}
	for _, top := range []float64{10, 5} {
		if hi <= top {
			r[1] = top
		}
	}
	return r
}
