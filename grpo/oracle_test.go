package grpo

import (
	"fmt"
	"math"
	"testing"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// oracleAdvantages is a case of grpo.json: one group.
type oracleAdvantages struct {
	Rewards    []float64 `json:"rewards"`
	Std        string    `json:"std"`
	Advantages []float64 `json:"advantages"`
}

// oracleObjective is a case of grpo.json: float64 values and gradients; what the mask leaves out is padding.
type oracleObjective struct {
	Aggregation string      `json:"aggregation"`
	RatioLevel  string      `json:"ratio_level"`
	KL          string      `json:"kl"`
	KLCoef      float64     `json:"kl_coef"`
	ClipLow     float64     `json:"clip_low"`
	ClipHigh    float64     `json:"clip_high"`
	NormLength  int         `json:"norm_length"`
	Mask        [][]float64 `json:"mask"`
	Logps       [][]float64 `json:"logps"`
	Old         [][]float64 `json:"old_logps"`
	Reference   [][]float64 `json:"ref_logps"`
	Advantages  []float64   `json:"advantages"`
	Loss        float64     `json:"loss"`
	Grad        [][]float64 `json:"grad_logps"`
}

func (c oracleObjective) options() Options {
	o := DefaultOptions()
	o.Aggregation, o.RatioLevel, o.KL, o.KLCoef = c.Aggregation, c.RatioLevel, c.KL, c.KLCoef
	o.ClipLow, o.ClipHigh = c.ClipLow, c.ClipHigh
	if c.Aggregation == SeqMeanConstant {
		o.NormLength = c.NormLength
	}
	return o
}

// cut leaves the tokens that the mask has.
func (c oracleObjective) cut(rows [][]float64) [][]float64 {
	out := make([][]float64, len(rows))
	for i, row := range rows {
		for t, x := range row {
			if c.Mask[i][t] != 0 {
				out[i] = append(out[i], x)
			}
		}
	}
	return out
}

func (c oracleObjective) batch() Batch {
	return Batch{Logps: c.cut(c.Logps), Old: c.cut(c.Old), Reference: c.cut(c.Reference), Advantages: c.Advantages}
}

// lessK1 is the case without β·k1, which the oracle has in the loss, and we in the reward: its gradient there is β
// whatever the reference is.
func (c oracleObjective) lessK1() oracleObjective {
	if c.KL != K1 {
		return c
	}
	b, grad := c.batch(), make([][]float64, len(c.Grad))
	weights := c.options().weights(lengths(b.Logps), nil)
	for i, row := range c.Grad {
		grad[i] = make([]float64, len(row))
		token := 0
		for t, g := range row {
			if c.Mask[i][t] != 0 {
				grad[i][t] = g - weights[i]*c.KLCoef
				c.Loss -= weights[i] * c.KLCoef * (b.Logps[i][token] - b.Reference[i][token])
				token++
			}
		}
	}
	c.Grad = grad
	return c
}

func (c oracleObjective) String() string {
	return fmt.Sprintf("%s, ratio of a %s, kl %s", c.Aggregation, c.RatioLevel, c.KL)
}

type oracleFile struct {
	Advantages []oracleAdvantages `json:"advantages"`
	Objectives []oracleObjective  `json:"objectives"`
}

func oracle(t *testing.T) (f oracleFile) {
	need.Oracle(t, "grpo.json", "", &f)
	if len(f.Advantages) != 36 || len(f.Objectives) != 32 {
		t.Fatalf("grpo.json has %d advantages and %d objectives, want 36 and 32", len(f.Advantages), len(f.Objectives))
	}
	for k, c := range f.Objectives {
		f.Objectives[k] = c.lessK1()
	}
	return f
}

func TestOracleAdvantages(t *testing.T) {
	for k, c := range oracle(t).Advantages {
		got, _ := Advantages(c.Rewards, c.Std)
		nearAll(t, fmt.Sprintf("case %d, %s of %v", k, c.Std, c.Rewards), got, c.Advantages, 1e-9)
	}
}

func TestOracleHost(t *testing.T) {
	for k, c := range oracle(t).Objectives {
		expect.OK(t, fault.Err("grpo", c.options().Check()))
		name, out := fmt.Sprintf("case %d, %s", k, c), c.options().Host(c.batch())
		near(t, name+" loss", out.Loss, c.Loss, 1e-9)
		want := c.cut(c.Grad)
		for i := range want {
			nearAll(t, fmt.Sprintf("%s, gradient of answer %d", name, i), out.Grad[i], want[i], 1e-9)
		}
	}
}

// The oracle's inputs are float64; the graph sees them rounded to float32. It is held to the oracle relative to the
// largest number of a vector, and to the host on the rounded inputs relative to each number.
func TestOracleGraph(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		for k, c := range oracle(t).Objectives {
			name := fmt.Sprintf("case %d, %s", k, c)
			loss, grad := inGraph(t, e, c.options(), c.batch())
			near(t, name+" loss", loss, c.Loss, 2e-5)
			want, top := c.cut(c.Grad), 0.0
			for i := range want {
				for _, g := range want[i] {
					top = max(top, math.Abs(g))
				}
			}
			same := c.options().Host(roundBatch(c.batch()))
			for i := range want {
				for s := range want[i] {
					if d := math.Abs(grad[i][s] - want[i][s]); d > 2e-5*top {
						t.Errorf("%s: gradient of answer %d, token %d is %v: want %v", name, i, s, grad[i][s],
							want[i][s])
					}
				}
				nearAll(t, fmt.Sprintf("%s, gradient of answer %d", name, i), grad[i], same.Grad[i], 2e-5)
			}
			near(t, name+" loss", loss, same.Loss, 2e-5)
		}
	})
}
