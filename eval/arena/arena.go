// Package arena asks a judge to compare answers as Arena-Hard v0.1 does, and counts its judgements: a model's strength
// against the baseline in the Bradley–Terry model, as the probability that it wins, with a bootstrap interval. The
// baseline has 50 %.
package arena

import (
	"errors"
	"math/rand/v2"
	"slices"
)

// strong is how many wins a verdict with >> counts as, as in the benchmark.
const strong = 3

// Score is a model's result. Rates are in hundredths.
type Score struct {
	Score    float64        `json:"score"`       // probability of a win against the baseline
	Low      float64        `json:"rating_q025"` // of the bootstrap interval of 95 %
	High     float64        `json:"rating_q975"`
	Games    int            `json:"games"` // with a verdict
	Missing  int            `json:"missing"`
	Verdicts map[string]int `json:"verdicts"` // by what they say of the model, as A
}

// battle is a game's weight and the share of it that the model won.
type battle struct{ weight, won float64 }

// battleOf turns a verdict into a battle; the model is A. A tie is half a win.
func battleOf(verdict string) battle {
	switch verdict {
	case "A>>B":
		return battle{strong, strong}
	case "A>B":
		return battle{1, 1}
	case "A=B":
		return battle{1, 0.5}
	case "B>A":
		return battle{1, 0}
	}
	return battle{strong, 0}
}

// mirror gives a verdict on the same answers in the other order.
func mirror(verdict string) string {
	return Verdicts[len(Verdicts)-1-slices.Index(Verdicts, verdict)]
}

// Count counts judgements; rounds are the bootstrap's. Where all battles are against one opponent, the maximum of the
// Bradley–Terry likelihood is the weighted share of wins. Rounds draw questions, whose two games depend on each other;
// the benchmark's draw single games, whose intervals are narrower.
func Count(all []Games, rounds int, seed uint64) (Score, error) {
	s := Score{Verdicts: map[string]int{}}
	var questions [][]battle
	for _, games := range all {
		battles := battlesOf(games, func(verdict string) { s.Verdicts[verdict]++ })
		s.Games += len(battles)
		s.Missing += len(games) - len(battles)
		if battles != nil {
			questions = append(questions, battles)
		}
	}
	if s.Games == 0 {
		return s, errors.New("no game has a verdict")
	}
	s.Score = rateOf(questions)
	s.Low, s.High = bootstrap(questions, rounds, seed)
	return s, nil
}

// battlesOf are the battles of the games that have a verdict; each visits the verdicts, the model being A.
func battlesOf(games Games, each func(verdict string)) (battles []battle) {
	for i, verdict := range games {
		if verdict == "" {
			continue
		}
		if i == 0 {
			verdict = mirror(verdict)
		}
		each(verdict)
		battles = append(battles, battleOf(verdict))
	}
	return battles
}

// won is the weighted share of a question's games that the model won, in hundredths; nil without a verdict.
func won(games Games) *float64 {
	battles := battlesOf(games, func(string) {})
	if battles == nil {
		return nil
	}
	rate := rateOf([][]battle{battles})
	return &rate
}

// rateOf is the weighted share of wins, in hundredths.
func rateOf(questions [][]battle) float64 {
	won, weight := 0.0, 0.0
	for _, q := range questions {
		for _, b := range q {
			won, weight = won+b.won, weight+b.weight
		}
	}
	return 100 * won / weight
}

// bootstrap gives the quantiles of 2.5 % and 97.5 % of the rate over questions drawn again.
func bootstrap(questions [][]battle, rounds int, seed uint64) (low, high float64) {
	r := rand.New(rand.NewPCG(seed, 0x61726e61)) // a stream of its own
	rates := make([]float64, max(1, rounds))
	drawn := make([][]battle, len(questions))
	for k := range rates {
		for i := range drawn {
			drawn[i] = questions[r.IntN(len(questions))]
		}
		rates[k] = rateOf(drawn)
	}
	slices.Sort(rates)
	last := float64(len(rates) - 1)
	return rates[int(0.025*last+0.5)], rates[int(0.975*last+0.5)]
}
