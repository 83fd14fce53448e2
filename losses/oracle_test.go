package losses

import (
	"fmt"
	"math"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// oracleCase is a case of losses.json: float64 values, and gradients of the mean over the pairs.
type oracleCase struct {
	Loss           string    `json:"loss"`
	Prior          string    `json:"prior"`
	Beta           float64   `json:"beta"`
	Gamma          *float64  `json:"gamma"`
	Lambda         *float64  `json:"lambda"`
	LabelSmoothing float64   `json:"label_smoothing"`
	Logps          *string   `json:"logps"`
	NLL            *string   `json:"nll"`
	PolicyChosen   []float64 `json:"policy_chosen_logps"`
	PolicyRejected []float64 `json:"policy_rejected_logps"`
	RefChosen      []float64 `json:"ref_chosen_logps"`
	RefRejected    []float64 `json:"ref_rejected_logps"`
	ChosenLengths  []float64 `json:"chosen_lengths"`
	RejectLengths  []float64 `json:"rejected_lengths"`
	RewardGap      []float64 `json:"reward_gap"`
	PerPair        []float64 `json:"per_pair"`
	Mean           float64   `json:"mean"`
	GradChosen     []float64 `json:"grad_policy_chosen_logps"`
	GradRejected   []float64 `json:"grad_policy_rejected_logps"`
}

func (c oracleCase) options() Options {
	o := Options{Type: c.Loss, Prior: c.Prior, Beta: c.Beta, Gamma: c.Gamma, Lambda: c.Lambda, Logps: c.Logps,
		NLL: c.NLL}
	if c.Loss != IPO || c.LabelSmoothing != 0 {
		o.LabelSmoothing = &c.LabelSmoothing
	}
	return o
}

func (c oracleCase) batch() Batch {
	return Batch{c.PolicyChosen, c.PolicyRejected, c.RefChosen, c.RefRejected, c.ChosenLengths, c.RejectLengths,
		c.RewardGap}
}

func oracle(t *testing.T) []oracleCase {
	var cases []oracleCase
	need.Oracle(t, "losses.json", "", &cases)
	if len(cases) != 48 {
		t.Fatalf("losses.json has %d cases, want 48", len(cases))
	}
	return cases
}

func TestOracleHost(t *testing.T) {
	for k, c := range oracle(t) {
		out, err := c.options().Host(c.batch())
		if err != nil {
			t.Fatalf("case %d: %v", k, err)
		}
		name, n := fmt.Sprintf("case %d, %s", k, describe(c.options())), float64(len(c.PerPair))
		mean := 0.0
		for i, loss := range out.Loss {
			mean += loss / n
			out.GradChosen[i] /= n
			out.GradRejected[i] /= n
		}
		nearAll(t, name+" loss", out.Loss, c.PerPair, 1e-9)
		nearAll(t, name+" mean", []float64{mean}, []float64{c.Mean}, 1e-9)
		nearAll(t, name+" grad chosen", out.GradChosen, c.GradChosen, 1e-9)
		nearAll(t, name+" grad rejected", out.GradRejected, c.GradRejected, 1e-9)
	}
}

// The oracle's inputs are float64. Rounding them to float32 alone moves an argument by up to 6e-5 (β = 2,
// log-probability -312), so the graph is held to the oracle relative to the largest number of a vector, and to the host
// on the rounded inputs relative to each number.
func TestOracleGraph(t *testing.T) {
	for k, c := range oracle(t) {
		name := fmt.Sprintf("case %d, %s", k, describe(c.options()))
		out := runGraph(t, c.options(), c.batch())
		compareOracle(t, name, c, out, 2e-5)
		rounded := expect.Must(c.options().Host(c.roundBatch()))(t)
		nearAll(t, name+" loss", out.Loss, rounded.Loss, 2e-5)
		nearAll(t, name+" grad chosen", out.GradChosen, rounded.GradChosen, 2e-5)
		nearAll(t, name+" grad rejected", out.GradRejected, rounded.GradRejected, 2e-5)
	}
}

// roundBatch returns the batch with its numbers rounded to float32.
func (c oracleCase) roundBatch() Batch {
	round := func(v []float64) []float64 {
		out := make([]float64, len(v))
		for i, x := range v {
			out[i] = float64(float32(x))
		}
		return out
	}
	return Batch{round(c.PolicyChosen), round(c.PolicyRejected), round(c.RefChosen), round(c.RefRejected),
		c.ChosenLengths, c.RejectLengths, round(c.RewardGap)}
}

// compareOracle is relative to the largest number of each vector.
func compareOracle(t *testing.T, name string, c oracleCase, out Outcome, relative float64) {
	t.Helper()
	n, mean := float64(len(c.PerPair)), 0.0
	for i := range c.PerPair {
		mean += out.Loss[i] / n
		near(t, name+" loss", out.Loss[i], c.PerPair[i], relative*largest(c.PerPair))
		near(t, name+" grad chosen", out.GradChosen[i]/n, c.GradChosen[i], relative*largest(c.GradChosen))
		near(t, name+" grad rejected", out.GradRejected[i]/n, c.GradRejected[i], relative*largest(c.GradRejected))
	}
	near(t, name+" mean", mean, c.Mean, relative*math.Abs(c.Mean))
}

func largest(v []float64) float64 {
	most := 0.0
	for _, x := range v {
		most = max(most, math.Abs(x))
	}
	return most
}
