package data

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// RewardOptions say how scores become the prior gap of MaPPO.
type RewardOptions struct {
	Transform     string `yaml:"reward_transform" want:"auto|none|logistic"`
	OnNegativeGap string `yaml:"on_negative_gap" want:"clamp|drop|swap|error"`
}

// DefaultRewardOptions are those of the method: auto, clamp.
func DefaultRewardOptions() RewardOptions {
	return RewardOptions{Transform: "auto", OnNegativeGap: "clamp"}
}

// Check names every fault of the options.
func (o RewardOptions) Check() []fault.Fault { return fault.Check(o) }

// Over decides the transform auto for several sets at once, so that all get the same one.
func (o RewardOptions) Over(sets ...[]Preference) RewardOptions {
	if o.Transform != "auto" {
		return o
	}
	o.Transform = "none"
	for _, pairs := range sets {
		for _, p := range pairs {
			if p.Scored && outside(p) {
				o.Transform = "logistic"
			}
		}
	}
	return o
}

// PriorReport counts what Prior found in the scores.
type PriorReport struct {
	Pairs, Kept   int
	Outside       int    // pairs with a score outside [0, 1]
	Logistic      bool   // whether scores passed through the logistic function
	Negative      int    // pairs whose labels and scores disagree
	Zero          int    // kept pairs with gap 0, after the treatment of negative gaps
	OnNegativeGap string // what was done with negative ones
	Mean          float64
	Min, Max      float64 // of the gaps kept
}

// Prior makes the prior gaps Δr = r_w − r_l of MaPPO from the scores of the pairs. Scores are rewards in [0, 1];
// Transform "logistic" sends every score through σ first, "auto" does so for the whole set as soon as one score is
// outside [0, 1], "none" takes them as they are. A negative gap (labels and scores disagree) is set to 0 ("clamp"), or
// the pair is left out ("drop"), its answers change places ("swap"), or it is an error ("error").
//
// kept[i] has gap gaps[i]; with "clamp" and "swap" kept has all pairs in their order. Kept pairs have the scores of the
// file. pairs does not change.
func Prior(pairs []Preference, o RewardOptions) (kept []Preference, gaps []float64, report *PriorReport, err error) {
	if err := fault.Err("data", o.Check()); err != nil {
		return nil, nil, nil, err
	}
	if err := requireScores(pairs); err != nil {
		return nil, nil, nil, err
	}
	report = &PriorReport{Pairs: len(pairs), OnNegativeGap: o.OnNegativeGap}
	for _, p := range pairs {
		if outside(p) {
			report.Outside++
		}
	}
	report.Logistic = o.Transform == "logistic" || o.Transform == "auto" && report.Outside > 0
	var negative []string
	for _, p := range pairs {
		gap := report.gap(p)
		if gap < 0 {
			negative = append(negative, p.Source)
			if o.OnNegativeGap == "drop" {
				continue
			}
			if gap = max(gap, 0); o.OnNegativeGap == "swap" {
				p.Chosen, p.Rejected = p.Rejected, p.Chosen
				p.ChosenScore, p.RejectedScore = p.RejectedScore, p.ChosenScore
				gap = report.gap(p)
			}
		}
		kept, gaps = append(kept, p), append(gaps, gap)
	}
	report.Negative = len(negative)
	if o.OnNegativeGap == "error" && len(negative) > 0 {
		return nil, nil, nil, fmt.Errorf("%s: rejected scores higher than chosen; on_negative_gap also takes clamp, "+
			"drop or swap", places(negative))
	}
	if len(kept) == 0 {
		return nil, nil, nil, fmt.Errorf("all %d pairs have a negative gap and were dropped: check which answer the "+
			"labels mean, or set on_negative_gap to swap", len(pairs))
	}
	report.summarise(gaps)
	return kept, gaps, report, nil
}

func outside(p Preference) bool {
	return min(p.ChosenScore, p.RejectedScore) < 0 || max(p.ChosenScore, p.RejectedScore) > 1
}

// gap is r_w − r_l after the transform.
func (r *PriorReport) gap(p Preference) float64 {
	if r.Logistic {
		return logistic(p.ChosenScore) - logistic(p.RejectedScore)
	}
	return p.ChosenScore - p.RejectedScore
}

func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func (r *PriorReport) summarise(gaps []float64) {
	r.Kept = len(gaps)
	r.Min, r.Max = math.Inf(1), math.Inf(-1)
	for _, gap := range gaps {
		r.Mean += gap / float64(len(gaps))
		r.Min, r.Max = min(r.Min, gap), max(r.Max, gap)
		if gap == 0 {
			r.Zero++
		}
	}
}

// requireScores refuses pairs without finite scores.
func requireScores(pairs []Preference) error {
	if len(pairs) == 0 {
		return errors.New("no pairs to make a prior for")
	}
	var missing []string
	for _, p := range pairs {
		if !p.Scored {
			missing = append(missing, p.Source)
		} else if sum := p.ChosenScore + p.RejectedScore; math.IsNaN(sum) || math.IsInf(sum, 0) {
			return fmt.Errorf("%s: scores %v and %v: want finite numbers", p.Source, p.ChosenScore, p.RejectedScore)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &MissingScoresError{Missing: missing, Pairs: len(pairs)}
}

// MissingScoresError lists the pairs without scores, which the prior cannot use, and says what to do.
type MissingScoresError struct {
	Missing []string // sources of the pairs without scores
	Pairs   int      // all pairs
}

func (e *MissingScoresError) Error() string {
	return fmt.Sprintf("%s: no scores, which the prior needs (%d of %d pairs lack them): write a reward model's into "+
		"columns chosen_score and "+
		"rejected_score (`posttrain data pairs` samples pairs that have the contextual-integrity reward's), name the "+
		"two columns with "+
		"--score-columns CHOSEN,REJECTED, or train without the prior with --prior none",
		places(e.Missing), len(e.Missing), e.Pairs)
}

// places lists the first three sources, the file's name only where it changes.
func places(sources []string) string {
	var shown []string
	last := ""
	for _, source := range sources[:min(len(sources), 3)] {
		i := strings.LastIndex(source, ":") + 1
		file, place := source[:i], source[i:]
		if file == last && file != "" {
			source = strings.TrimSpace(place)
		}
		shown, last = append(shown, source), file
	}
	text := strings.Join(shown, ", ")
	if more := len(sources) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Lines returns the report as short lines.
func (r *PriorReport) Lines() []string {
	lines := []string{fmt.Sprintf("prior: %d of %d pairs, gap mean %.3f (%.3f to %.3f)", r.Kept, r.Pairs, r.Mean, r.Min,
		r.Max)}
	switch {
	case r.Logistic && r.Outside > 0:
		lines = append(lines, fmt.Sprintf("  scores passed through the logistic function: %d pairs have one outside "+
			"[0, 1]", r.Outside))
	case r.Logistic:
		lines = append(lines, "  scores passed through the logistic function, as asked")
	case r.Outside > 0:
		lines = append(lines, fmt.Sprintf("  note: %d pairs have a score outside [0, 1], taken as it is "+
			"(reward_transform none)", r.Outside))
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

func (r *PriorReport) String() string { return strings.Join(r.Lines(), "\n") }
