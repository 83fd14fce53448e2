package train

import (
	"math"
	"testing"

	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestPackedDemonstrations: in shared rows a demonstration has the sum of its trained tokens alone in a row, where all
// tokens have log-probs: nothing leaks between demonstrations, and untrained tokens are read, but do not count.
func TestPackedDemonstrations(t *testing.T) {
	groups := single(testkit.Groups(6, 7, 1))
	for i, g := range groups {
		trained := make([]bool, len(g.Answers[0]))
		for k := range trained {
			trained[k] = k%3 == 0
		}
		groups[i].Trained = [][]bool{trained}
	}
	l := learner(t, backendtest.Go(t), testkit.Model(t, "llama"))
	packed := batch.Pack(groups, batch.Layout{})
	if packed.Rows >= len(groups) {
		t.Fatalf("%d rows of %d demonstrations: nothing is packed", packed.Rows, len(groups))
	}
	got := expect.Must(l.Sums(packed))(t)
	tokens := 0
	for i, g := range groups {
		alone := batch.Pack([]batch.Group{{Prompt: g.Prompt, Answers: g.Answers}}, batch.Layout{})
		logps := expect.Must(l.TokenLogps(alone, nil))(t)
		want, n := 0.0, 0
		for k, trained := range g.Trained[0] {
			if trained {
				want, n = want+float64(logps[k]), n+1
			}
		}
		if math.Abs(float64(got[i])-want) > 1e-5*(1+math.Abs(want)) || int(packed.Lengths[i]) != n {
			t.Errorf("demonstration %d: sum %v of %d tokens, alone %v of %d", i, got[i], packed.Lengths[i], want, n)
		}
		tokens += n
	}
	if w := (SFT{}).Weight(examplesOf(groups)); w != float64(tokens) {
		t.Errorf("weight %v, want %d", w, tokens)
	}
}
