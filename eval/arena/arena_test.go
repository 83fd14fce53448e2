package arena

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func played(first, second string) Games { return Games{first, second} }

// TestCount: numbers by hand. In first games the model is B.
func TestCount(t *testing.T) {
	s, err := Count([]Games{played("B>>A", "A>B"), played("A=B", "B>>A"), played("A>B", "")}, 200, 1)
	// wins 3 + 1 + 1/2 of weights 3 + 1 + 1 + 3 + 1
	if err != nil || math.Abs(s.Score-50) > 1e-12 || s.Games != 5 || s.Missing != 1 ||
		fmt.Sprint(s.Verdicts) != "map[A=B:1 A>>B:1 A>B:1 B>>A:1 B>A:1]" || !(s.Low < 50 && 50 < s.High) {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := Count([]Games{played("", "")}, 1, 1); err == nil || err.Error() != "no game has a verdict" {
		t.Error(err)
	}
}

// TestTheBaselineHasHalf: a judge that always prefers the answer that it sees first says nothing.
func TestTheBaselineHasHalf(t *testing.T) {
	var all []Games
	for range 50 {
		all = append(all, played("A>B", "A>B"), played("A>>B", "A>>B"), played("B>A", "B>A"))
	}
	if s, err := Count(all, 100, 1); err != nil || s.Score != 50 || s.Low != 50 || s.High != 50 {
		t.Errorf("%+v, %v", s, err)
	}
}

// drawn are judgements of n questions by a model of a known strength, and the score that it means. The two games of a
// question agree more often than chance, as a judge's do.
func drawn(n int, p float64, r *rand.Rand) (all []Games, score float64) {
	of := func() string {
		switch x, win := r.Float64(), r.Float64() < p; {
		case x < 0.2:
			return "A=B"
		case x < 0.5 && win:
			return "A>>B"
		case x < 0.5:
			return "B>>A"
		case win:
			return "A>B"
		}
		return "B>A"
	}
	for range n {
		first := of()
		second := first
		if r.Float64() < 0.5 {
			second = of()
		}
		all = append(all, played(mirror(first), second))
	}
	return all, 100 * (0.2*0.5 + (0.3*3+0.5)*p) / (0.2 + 0.3*3 + 0.5)
}

// TestKnownStrengthIsRecovered in the interval for about 95 of 100 seeds.
func TestKnownStrengthIsRecovered(t *testing.T) {
	inside := 0
	for seed := range uint64(200) {
		all, want := drawn(300, 0.1+0.4*float64(seed)/100, rand.New(rand.NewPCG(seed, 3)))
		s, err := Count(all, 300, seed)
		if err != nil {
			t.Fatal(err)
		}
		if s.Low <= want && want <= s.High {
			inside++
		}
	}
	if inside < 185 || inside > 197 {
		t.Errorf("%d of 200 intervals hold the true strength: want about 190", inside)
	}
	t.Logf("%d of 200", inside)
}
