package data

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func nan() float64 { return math.NaN() }

// scoredPairs makes pairs from scores of chosen and rejected.
func scoredPairs(scores ...[2]float64) []Preference {
	pairs := make([]Preference, len(scores))
	for i, s := range scores {
		pairs[i] = Preference{Prompt: plainText("Q"), Chosen: plainText("w"), Rejected: plainText("l"), ChosenScore: s[0],
			RejectedScore: s[1], Scored: true, Source: fmt.Sprintf("p.jsonl:%d", i+1)}
	}
	return pairs
}

func TestPriorGaps(t *testing.T) {
	inside := [][2]float64{{1, 0}, {0.75, 0.5}, {0.25, 0.75}, {0.5, 0.5}}
	for _, c := range []struct {
		negative string
		want     []float64
		zero     int
	}{
		{"clamp", []float64{1, 0.25, 0, 0}, 2},
		{"drop", []float64{1, 0.25, 0}, 1},
		{"swap", []float64{1, 0.25, 0.5, 0}, 1},
	} {
		pairs := scoredPairs(inside...)
		kept, gaps, report, err := Prior(pairs, RewardOptions{Transform: "auto", OnNegativeGap: c.negative})
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if !slices.Equal(gaps, c.want) || len(kept) != len(gaps) {
			t.Errorf("%s: gaps %v, want %v", c.negative, gaps, c.want)
		}
		if report.Transform != "none" || report.Negative != 1 || report.Zero != c.zero || report.Pairs != len(pairs) {
			t.Errorf("%s: %+v", c.negative, report)
		}
		if pairs[2].Chosen.Plain != "w" {
			t.Error("the caller's pairs were changed")
		}
	}
}

func TestPriorSwapTurnsThePairRound(t *testing.T) {
	swap := RewardOptions{Transform: "auto", OnNegativeGap: "swap"}
	kept, _, _, err := Prior(scoredPairs([2]float64{0.25, 0.75}), swap)
	expect.OK(t, err)
	if p := kept[0]; p.Chosen.Plain != "l" || p.Rejected.Plain != "w" || p.ChosenScore != 0.75 ||
		p.RejectedScore != 0.25 {
		t.Errorf("%+v", p)
	}
}

func TestPriorReportInWords(t *testing.T) {
	_, _, report, err := Prior(scoredPairs([2]float64{2, -1}, [2]float64{0, 1}), DefaultRewardOptions())
	expect.OK(t, err)
	want := `prior: 2 of 2 pairs, gap median 0.888, mean 0.444 (0.000 to 0.888)
  gaps by tenths, from 0 to 1: █▁▁▁▁▁▁▁█▁  (50, 0, 0, 0, 0, 0, 0, 0, 50, 0 %)
  reward_transform quartiles: scores have no known bounds: rewards are σ((score − 1)/0.4551), by the median and the ` +
		`quartiles
  1 pairs where rejected scores higher than chosen: gap set to 0
  1 pairs with gap 0: only their chosen answer is raised`
	if report.String() != want {
		t.Errorf("report\n%s\nwant\n%s", report, want)
	}
}

func TestPriorErrors(t *testing.T) {
	unscored := scoredPairs(make([][2]float64, 6)...)
	for i := range 5 {
		unscored[i].Scored = false
	}
	swapped := scoredPairs([2]float64{0, 1}, [2]float64{0, 0.5})
	for _, c := range []struct {
		pairs []Preference
		o     RewardOptions
		want  string
	}{
		{unscored, DefaultRewardOptions(), "p.jsonl:1, 2, 3 and 2 more: no scores, which the prior needs (5 of 6 " +
			"pairs lack them): `posttrain mappo --model DIR --data p.jsonl --prior none` trains without it; `posttrain data " +
			"score --data p.jsonl --out scored.jsonl --reward model --reward-model DIR` writes them (--reward command: by a " +
			"program); --score-columns CHOSEN,REJECTED names columns that have them"},
		{scoredPairs([2]float64{1, nan()}), DefaultRewardOptions(), "p.jsonl:1: scores 1 and NaN: want finite numbers"},
		{scoredPairs([2]float64{1e308, -1e308}), DefaultRewardOptions(), "p.jsonl:1: scores 1e+308 and -1e+308: with " +
			"reward_transform quartiles their gap is NaN: want scores that are nearer to 0"},
		{scoredPairs([2]float64{1e39, 1}), RewardOptions{Transform: "none", OnNegativeGap: "clamp"},
			"p.jsonl:1: scores 1e+39 and 1: with reward_transform none their gap is 1e+39: want"},
		{swapped, RewardOptions{Transform: "auto", OnNegativeGap: "error"},
			"p.jsonl:1, 2: rejected scores higher than chosen; on_negative_gap " +
				"also takes clamp, drop or swap"},
		{swapped, RewardOptions{Transform: "auto", OnNegativeGap: "drop"}, "all 2 pairs have a negative gap"},
		{nil, DefaultRewardOptions(), "no pairs"},
		{swapped, RewardOptions{Transform: "sigmoid", OnNegativeGap: "clamp"},
			`reward_transform "sigmoid": want auto, none, scale, rank, logistic or quartiles`},
		{swapped, RewardOptions{Transform: "auto", OnNegativeGap: "keep"},
			`on_negative_gap "keep": want clamp, drop, swap or error`},
	} {
		_, _, _, err := Prior(c.pairs, c.o)
		wantError(t, err, c.want)
	}
}

func TestPlacesOfOtherSources(t *testing.T) {
	if got := firstPlaces([]string{"a.parquet: row 3", "a.parquet: row 7",
		"b.jsonl:1"}); got != "a.parquet: row 3, row 7, b.jsonl:1" {
		t.Error(got)
	}
	if got := firstPlaces([]string{"synthetic 3", "synthetic 4"}); !strings.HasPrefix(got, "synthetic 3") {
		t.Error(got)
	}
}
