package train

import (
	"math"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

// tokenForms are the engines, and the go engine with look-ups in the graph, as xla has them.
func tokenForms(t *testing.T, test func(t *testing.T, e *backend.Engine)) {
	t.Helper()
	backendtest.Each(t, test)
	t.Run("go with look-ups in the graph", func(t *testing.T) {
		e := backendtest.Go(t)
		e.Wants.HostRows, e.Wants.SharedMemory = false, false
		test(t, e)
	})
}

// TestTokenLogpsAddUpToSums: for the model's own weights, and for lent ones.
func TestTokenLogpsAddUpToSums(t *testing.T) {
	groups := testkit.Groups(4, 5, 3)
	tokenForms(t, func(t *testing.T, e *backend.Engine) {
		own := learner(t, e, testkit.Model(t, "qwen3"))
		other := learner(t, e, model.Init(testkit.Config(t, "qwen3"), 8))
		for _, share := range []bool{true, false} {
			p := batch.Pack(groups, batch.Layout{Share: share, Pad: 6})
			for _, l := range []*Learner{own, other} {
				want := expect.Must(l.Sums(p))(t)
				compareTokens(t, own, l, p, want)
			}
		}
	})
}

// compareTokens holds the log-probs under lender's weights, measured by l, against the answers' sums.
func compareTokens(t *testing.T, l, lender *Learner, p *batch.Packed, want []float32) {
	t.Helper()
	weights := lender.Weights()
	if l == lender {
		weights = nil
	}
	tokens := expect.Must(l.TokenLogps(p, weights))(t)
	if len(tokens) != p.Slots {
		t.Fatalf("%d log-probs: want one for each of %d slots", len(tokens), p.Slots)
	}
	got := make([]float64, p.Answers)
	for slot, a := range p.Answer {
		if a >= 0 {
			got[a] += float64(tokens[slot])
		}
	}
	for a := range got {
		if math.Abs(got[a]-float64(want[a])) > 1e-5*(1+math.Abs(got[a])) {
			t.Errorf("answer %d: the tokens' log-probs add up to %v: want %v", a, got[a], want[a])
		}
	}
}

// TestLentWeightsStayTheLenders: a learner that is closed, or has measured, leaves them as they were.
func TestLentWeightsStayTheLenders(t *testing.T) {
	e := backendtest.Go(t)
	lender := learner(t, e, testkit.Model(t, "llama"))
	p := batch.Pack(testkit.Groups(4, 2, 2), batch.Layout{Share: true})
	before := expect.Must(lender.TokenLogps(p, nil))(t)
	borrower := expect.Must(NewLearner(e, model.Init(testkit.Config(t, "llama"), 9), model.GraphOptions{}))(t)
	expect.Must(borrower.TokenLogps(p, lender.Weights()))(t)
	borrower.Close()
	after := expect.Must(lender.TokenLogps(p, nil))(t)
	for i := range before {
		if before[i] != after[i] {
			t.Fatal("the lender's log-probs changed")
		}
	}
}

// TestReferenceInTheComputeType: where products are in bfloat16, a reference kept in bfloat16 gives the same bits as one
// in float32, since its matrices are rounded either way.
func TestReferenceInTheComputeType(t *testing.T) {
	p := batch.Pack(testkit.Groups(4, 5, 2), batch.Layout{Share: true, Pad: 5})
	m := testkit.Model(t, "qwen2")
	tokenForms(t, func(t *testing.T, e *backend.Engine) {
		for _, dtype := range []dtypes.DType{dtypes.Float32, dtypes.BFloat16} {
			if !e.Wants.BFloat16 && dtype == dtypes.BFloat16 { // has none
				continue
			}
			l := expect.Must(NewLearner(e, m, model.GraphOptions{DType: dtype}))(t)
			defer l.Close()
			reference := expect.Must(l.Upload(m))(t)
			defer backend.FinalizeAll(reference...)
			if kept, err := dtypeOf(reference[m.EmbedTable()]); err != nil || kept != dtype {
				t.Fatalf("the table is kept in %v, error %v: want %v", kept, err, dtype)
			}
			want := expect.Must(l.TokenLogps(p, nil))(t)
			got := expect.Must(l.TokenLogps(p, reference))(t)
			if !slices.Equal(got, want) {
				t.Errorf("%v: log-probs under the reference differ from those under the same weights", dtype)
			}
		}
	})
}
