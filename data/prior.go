package data

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/float"
)

// Prior makes the prior gaps Δr = r_w − r_l of MaPPO from the scores of the pairs: [RewardOptions.Fit] and
// [Rewards.Gaps] for one set.
func Prior(pairs []Preference, o RewardOptions) (kept []Preference, gaps []float64, report *PriorReport, err error) {
	r, err := o.Fit(pairs)
	if err != nil {
		return nil, nil, nil, err
	}
	return r.Gaps(pairs)
}

// Gaps makes the prior gaps Δr = r_w − r_l of the pairs. A negative gap (labels and scores disagree) is set to 0
// ("clamp"), or the pair is left out ("drop"), its answers change places ("swap"), or it is an error ("error").
//
// kept[i] has gap gaps[i]; with "clamp" and "swap" kept has all pairs in their order. Kept pairs have the scores of the
// file. pairs does not change.
func (r *Rewards) Gaps(pairs []Preference) (kept []Preference, gaps []float64, report *PriorReport, err error) {
	if err := requireScores(pairs); err != nil {
		return nil, nil, nil, err
	}
	var negative []string
	for _, p := range pairs {
		gap := r.gap(p)
		if !float.IsFinite(float64(float32(gap))) { // as a loss takes it
			return nil, nil, nil, fmt.Errorf("%s: scores %v and %v: with reward_transform %s their gap is %v: want "+
				"scores that are nearer to 0", p.Source, p.ChosenScore, p.RejectedScore, r.Transform, gap)
		}
		if gap < 0 {
			negative = append(negative, p.Source)
			if r.onNegativeGap == "drop" {
				continue
			}
			if gap = max(gap, 0); r.onNegativeGap == "swap" {
				p.Chosen, p.Rejected = p.Rejected, p.Chosen
				p.ChosenScore, p.RejectedScore = p.RejectedScore, p.ChosenScore
				gap = r.gap(p)
			}
		}
		kept, gaps = append(kept, p), append(gaps, gap)
	}
	if r.onNegativeGap == "error" && len(negative) > 0 {
		return nil, nil, nil, fmt.Errorf("%s: rejected scores higher than chosen; on_negative_gap also takes clamp, "+
			"drop or swap", firstPlaces(negative))
	}
	if len(kept) == 0 {
		return nil, nil, nil, fmt.Errorf("all %d pairs have a negative gap and were dropped: check which answer the "+
			"labels mean, or set on_negative_gap to swap", len(pairs))
	}
	report = &PriorReport{Pairs: len(pairs), Negative: len(negative), OnNegativeGap: r.onNegativeGap,
		Transform: r.Transform, Words: r.Words}
	report.summarise(gaps)
	report.RankMedian = r.rankMedian(kept)
	return kept, gaps, report, nil
}

// gap is r_w − r_l.
func (r *Rewards) gap(p Preference) float64 { return r.of(p.ChosenScore) - r.of(p.RejectedScore) }

// rankMedian is the median gap that ranks would give.
func (r *Rewards) rankMedian(kept []Preference) float64 {
	gaps := make([]float64, len(kept))
	for i, p := range kept {
		gaps[i] = max(0, r.fitted.rank(p.ChosenScore)-r.fitted.rank(p.RejectedScore))
	}
	slices.Sort(gaps)
	return gaps[len(gaps)/2]
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
		} else if !float.IsFinite(p.ChosenScore) || !float.IsFinite(p.RejectedScore) {
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
	Model   string   // that is to learn from them; "": DIR
}

func (e *MissingScoresError) Error() string {
	model, file := cmp.Or(e.Model, "DIR"), "FILE"
	if i := strings.LastIndex(e.Missing[0], ":"); i > 0 {
		file = e.Missing[0][:i]
	}
	return fmt.Sprintf("%s: no scores, which the prior needs (%d of %d pairs lack them): "+
		"`posttrain mappo --model %s --data %s --prior none` trains without it; `posttrain data score --data %s --out "+
		"scored.jsonl --reward model --reward-model DIR` writes them (--reward command: by a program); --score-columns "+
		"CHOSEN,REJECTED names columns that have them", firstPlaces(e.Missing), len(e.Missing), e.Pairs, model, file, file)
}

// firstPlaces lists the first three sources.
func firstPlaces(sources []string) string {
	shown := min(len(sources), 3)
	text := Places(sources[:shown])
	if more := len(sources) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Places lists sources of rows, the file's name only where it changes: pairs.jsonl:3, 8, 12.
func Places(sources []string) string {
	shown, last := slices.Clone(sources), ""
	for i, source := range sources {
		n := strings.LastIndex(source, ":") + 1
		if n > 0 && source[:n] == last {
			shown[i] = strings.TrimSpace(source[n:])
		}
		last = source[:n]
	}
	return strings.Join(shown, ", ")
}
