package data

import (
	"fmt"
	"math"
	"slices"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
)

// RewardOptions say how the scores of answers become rewards in [0, 1], whose differences are the prior gap of MaPPO.
type RewardOptions struct {
	Transform     string    `yaml:"reward_transform" want:"auto|none|scale|minmax|rank|logistic|logit" default:"auto" paper:"auto" help:"how scores become rewards in [0,1] (docs/data.md):"`
	Range         []float64 `yaml:"reward_range,omitempty" words:"two numbers, the lowest and the highest score" help:"scale: the lowest and the highest score, such as [1, 10]"`
	Temperature   float64   `yaml:"reward_temperature,omitempty" want:">=0" zero:"from the quartiles" help:"logistic: T of σ(score/T); 0: from the quartiles"`
	OnNegativeGap string    `yaml:"on_negative_gap" want:"clamp|drop|swap|error" default:"clamp" help:"where the rejected answer has the higher reward:"`
}

// Transforms of scores. With s a score, q its set's quantiles:
const (
	TransformAuto     = "auto"     // one of none, scale and logistic, by the quantiles
	TransformNone     = "none"     // s
	TransformScale    = "scale"    // (s − lo)/(hi − lo) of the range
	TransformMinMax   = "minmax"   // the same of q(1 %) and q(99 %); scores beyond them get 0 and 1
	TransformRank     = "rank"     // the share of scores below s, and half of those equal to it
	TransformLogistic = "logistic" // σ(s/T), or σ((s − q(50 %))/T) with quartiles at 1/4 and 3/4
	TransformLogit    = "logit"    // logistic of log(s/(1 − s)): spreads probabilities near 0 and 1
)

// DefaultRewardOptions are those of the method: auto, clamp.
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
	fitted        *quantiles
}

// Of is the reward of a score.
func (r *Rewards) Of(score float64) float64 { return r.of(score) }

// Fit settles the transform for all sets of a run together, since losses of differently scaled rewards could not be
// compared. Sets without scores do not matter. The error names a score that the transform cannot take.
func (o RewardOptions) Fit(sets ...[]Preference) (*Rewards, error) {
	if err := fault.Err("data", o.Check()); err != nil {
		return nil, err
	}
	all, margins, err := scoresOf(sets)
	if err != nil {
		return nil, err
	}
	r := &Rewards{Transform: o.Transform, onNegativeGap: o.OnNegativeGap, fitted: newQuantiles(all, margins)}
	if o.Transform == TransformAuto {
		o, r.Words = r.fitted.choose(o)
		r.Transform = o.Transform
	} else if err := o.accepts(all, r.fitted); err != nil {
		return nil, err
	}
	words := ""
	r.of, words = o.function(r.fitted)
	r.Words += words
	return r, nil
}

// score is a number with the row that it comes from.
type score struct {
	value  float64
	source string
}

// scoresOf gathers the finite scores of all pairs, or their margins.
func scoresOf(sets [][]Preference) (all []score, margins bool, err error) {
	for _, p := range slices.Concat(sets...) {
		if !p.Scored {
			continue
		}
		if len(all) > 0 && p.Margin != margins {
			return nil, false, fmt.Errorf("%s and %s: one has scores, the other a margin: want the same of all pairs",
				all[0].source, p.Source)
		}
		margins = p.Margin
		x := []float64{p.ChosenScore, p.RejectedScore}
		if margins {
			x = x[:1]
		}
		for _, x := range x {
			if !math.IsNaN(x) && !math.IsInf(x, 0) {
				all = append(all, score{x, p.Source})
			}
		}
	}
	return all, margins, nil
}

// accepts refuses scores that the transform has no reward for.
func (o RewardOptions) accepts(all []score, q *quantiles) error {
	lo, hi := math.Inf(-1), math.Inf(1)
	switch {
	case o.Transform == TransformLogit && q.margins:
		return fmt.Errorf("%s: reward_transform logit wants scores, and the pairs have margins", all[0].source)
	case o.Transform == TransformLogit:
		lo, hi = 0, 1
	case o.Transform == TransformScale:
		if lo, hi = o.Range[0], o.Range[1]; q.margins {
			lo, hi = lo-hi, hi-lo
		}
	}
	for _, s := range all {
		if s.value < lo || s.value > hi {
			return fmt.Errorf("%s: score %v: reward_transform %s wants scores from %v to %v", s.source, s.value,
				o.Transform, lo, hi)
		}
	}
	fits := o.Transform == TransformMinMax || o.Transform == TransformLogit ||
		o.Transform == TransformLogistic && o.Temperature == 0
	if fits && len(all) > 0 && q.at(0) == q.at(1) {
		return fmt.Errorf("%s: all scores are %v: reward_transform %s wants different ones", all[0].source,
			all[0].value, o.Transform)
	}
	return nil
}

// function is a transform that is not auto, and its formula in words.
func (o RewardOptions) function(q *quantiles) (of func(s float64) float64, words string) {
	switch o.Transform {
	case TransformScale:
		return q.scale(o.Range[0], o.Range[1])
	case TransformMinMax:
		return q.scale(q.inner())
	case TransformRank:
		if q.margins {
			return q.rank, "gaps are the shares of margins that are smaller"
		}
		return q.rank, "rewards are the shares of scores that are lower"
	case TransformLogistic:
		if o.Temperature > 0 {
			return q.sigmoid("score", 0, o.Temperature, "")
		}
		return q.logistic("score")
	case TransformLogit:
		logits := &quantiles{sorted: make([]float64, len(q.sorted))}
		for i, s := range q.sorted {
			logits.sorted[i] = logit(s)
		}
		of, words := logits.logistic("logit(score)")
		return func(s float64) float64 { return of(logit(s)) }, words
	}
	if q.margins {
		return func(s float64) float64 { return s }, "gaps are the margins"
	}
	return func(s float64) float64 { return s }, "rewards are the scores"
}

func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// logit is the inverse of logistic, of probabilities that are at least a millionth away from 0 and 1.
func logit(p float64) float64 {
	p = min(max(p, 1e-6), 1-1e-6)
	return math.Log(p / (1 - p))
}

// quantiles are those of a set of scores, or of the sizes of margins, whose transforms keep 0 and the sign.
type quantiles struct {
	sorted  []float64
	margins bool
}

func newQuantiles(all []score, margins bool) *quantiles {
	q := &quantiles{make([]float64, len(all)), margins}
	for i, s := range all {
		if q.sorted[i] = s.value; margins {
			q.sorted[i] = math.Abs(s.value)
		}
	}
	slices.Sort(q.sorted)
	return q
}

// at is the value below which a share of the scores lies.
func (q *quantiles) at(share float64) float64 {
	if len(q.sorted) == 0 {
		return 0
	}
	return q.sorted[int(math.Round(share*float64(len(q.sorted)-1)))]
}

// inner is the range of the scores without the outermost hundredth at each end, and without the outermost score at
// least, so that an outlier decides nothing. Of fewer than 20 scores it is the whole range.
func (q *quantiles) inner() (lo, hi float64) {
	n := len(q.sorted)
	if n < 20 {
		return q.at(0), q.at(1)
	}
	lo, hi = q.sorted[(n+99)/100], q.sorted[n-1-(n+99)/100]
	if lo == hi {
		return q.at(0), q.at(1)
	}
	return lo, hi
}

// scale maps a range to [0, 1], or a margin to its share of the range; what lies beyond gets the ends.
func (q *quantiles) scale(lo, hi float64) (of func(s float64) float64, words string) {
	if q.margins {
		of = func(s float64) float64 { return min(max(s/(hi-lo), -1), 1) }
		return of, fmt.Sprintf("gaps are margin/%.4g, at most 1", hi-lo)
	}
	of = func(s float64) float64 { return min(max((s-lo)/(hi-lo), 0), 1) }
	words = fmt.Sprintf("rewards are %s/%.4g", less("score", lo), hi-lo)
	if q.at(0) < lo || q.at(1) > hi {
		words += ", at least 0 and at most 1"
	}
	return of, words
}

// less is the difference of a variable and a number in words.
func less(name string, x float64) string {
	switch {
	case x == 0:
		return name
	case x < 0:
		return fmt.Sprintf("(%s + %.4g)", name, -x)
	}
	return fmt.Sprintf("(%s − %.4g)", name, x)
}

// rank is the share of scores below s, and half of those that equal it.
func (q *quantiles) rank(s float64) float64 {
	if q.margins && s <= 0 {
		if s == 0 {
			return 0
		}
		return -q.rank(-s)
	}
	below, _ := slices.BinarySearch(q.sorted, s)
	upTo, _ := slices.BinarySearch(q.sorted, math.Nextafter(s, math.Inf(1)))
	return float64(below+upTo) / 2 / float64(max(1, len(q.sorted)))
}

// logistic makes the median 1/2, and puts the quartiles at 1/4 and 3/4, if they are as far from it as each other. A
// margin of median size makes a gap of 1/2.
func (q *quantiles) logistic(name string) (of func(x float64) float64, words string) {
	middle, lo, hi, end := q.at(0.5), q.at(0.25), q.at(0.75), 0.75
	if q.margins {
		middle, lo, hi = 0, -middle, middle
	}
	if lo == hi {
		lo, hi = q.inner()
		end = 0.99
	}
	t := (hi - lo) / (2 * logit(end))
	if t == 0 {
		t = 1
	}
	return q.sigmoid(name, middle, t, ", by the median and the quartiles")
}

// sigmoid is σ((x − middle)/t), or 2σ(m/t) − 1 for margins.
func (q *quantiles) sigmoid(name string, middle, t float64, why string) (of func(x float64) float64, words string) {
	if q.margins {
		return func(m float64) float64 { return math.Tanh(m / t / 2) },
			fmt.Sprintf("gaps are 2σ(margin/%.4g) − 1%s", t, why)
	}
	return func(x float64) float64 { return logistic((x - middle) / t) },
		fmt.Sprintf("rewards are σ(%s/%.4g)%s", less(name, middle), t, why)
}

// choose settles auto: scores in [0, 1] are rewards; ratings, that is few different numbers up to 5, 10 or 100, are
// scaled; others have no known bounds and go through the logistic function.
func (q *quantiles) choose(o RewardOptions) (RewardOptions, string) {
	const slack = 1e-6 // of rounding
	lo, hi := q.inner()
	switch {
	case q.at(0) >= 0 && q.at(1) <= 1:
		o.Transform = TransformNone
		return o, q.name() + " are in [0, 1]: "
	case lo >= -slack && hi <= 1+slack:
		o.Transform, o.Range = TransformScale, []float64{0, 1}
		return o, q.name() + " are in [0, 1], but for a few: "
	case q.ratings() && lo >= 0 && hi <= 100:
		o.Transform, o.Range = TransformScale, q.ratingRange(lo, hi)
		return o, fmt.Sprintf("%s are of ratings from %v to %v: ", q.name(), o.Range[0], o.Range[1])
	}
	o.Transform = TransformLogistic
	return o, q.name() + " have no known bounds: "
}

func (q *quantiles) name() string {
	if q.margins {
		return "margins"
	}
	return "scores"
}

// ratings says whether nearly all scores are whole numbers, or means of up to four of them.
func (q *quantiles) ratings() bool {
	odd := 0
	for _, s := range q.sorted {
		if x := 12 * s; math.Abs(x-math.Round(x)) > 0.12 { // thirds and quarters, of which two digits are written
			odd++
		}
	}
	return 50*odd <= len(q.sorted)
}

// ratingRange guesses the range that ratings are given in.
func (q *quantiles) ratingRange(lo, hi float64) []float64 {
	r := []float64{1, 100}
	if lo < 1 && !q.margins {
		r[0] = 0
	}
	for _, top := range []float64{10, 5} {
		if hi <= top && !(q.margins && hi > top-1) {
			r[1] = top
		}
	}
	return r
}
