package model

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// oracle holds transformers' results for a folder of testdata (scripts/oracle/models.py).
type oracle struct {
	Rows []struct {
		IDs    []int32     `json:"ids"`
		Logits [][]float32 `json:"logits"`
		Logps  []float32   `json:"logps"`
	} `json:"rows"`
	Padded map[string]struct {
		IDs       [][]int32 `json:"ids"`
		Mask      [][]int   `json:"mask"`
		Positions [][]int32 `json:"positions"`
	} `json:"padded"`
	Pairs []struct {
		Prompt         []int32   `json:"prompt_ids"`
		Chosen         []int32   `json:"chosen_ids"`
		Rejected       []int32   `json:"rejected_ids"`
		ChosenTokens   []float32 `json:"chosen_token_logps"`
		RejectedTokens []float32 `json:"rejected_token_logps"`
		ChosenSum      float64   `json:"chosen_logps"`
		RejectedSum    float64   `json:"rejected_logps"`
	} `json:"pairs"`
	Gradients map[string][2]float64 `json:"gradients"` // L2 norm, and product with sin(1), sin(2), ...
}

// fixtures lists the folders of testdata: nine model types, each as transformers 4 and 5 write it, and scalings of
// rotations.
func fixtures(t testing.TB) []string {
	t.Helper()
	dirs, err := filepath.Glob("testdata/*-*")
	if err != nil || len(dirs) != 23 {
		t.Fatalf("want 23 folders under testdata, found %v (%v)", dirs, err)
	}
	return dirs
}

func load(t testing.TB, dir string) *Model {
	t.Helper()
	return expect.Must(Load(dir))(t)
}

func readOracle(t testing.TB, dir string) (o oracle) {
	t.Helper()
	expect.Decode(t, filepath.Join(dir, "oracle.json"), &o)
	return o
}

// pairs are the oracle's preference pairs as groups of two answers.
func (o oracle) pairs() (gs []group) {
	for _, p := range o.Pairs {
		gs = append(gs, group{p.Prompt, [][]int32{p.Chosen, p.Rejected}})
	}
	return gs
}

// worst is the largest absolute difference.
func worst(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	d := 0.0
	for i := range a {
		d = math.Max(d, math.Abs(float64(a[i])-float64(b[i])))
		if a[i] != a[i] || b[i] != b[i] {
			return math.NaN()
		}
	}
	return d
}

// near fails unless d <= limit; NaN fails.
func near(t testing.TB, what string, d, limit float64) {
	t.Helper()
	if !(d <= limit) {
		t.Errorf("%s: largest difference %.2g, want at most %.2g", what, d, limit)
	}
}

func onEngines(t *testing.T, f func(t *testing.T, e *backend.Engine)) {
	for _, e := range backendtest.Engines(t) {
		t.Run(e.Name, func(t *testing.T) { f(t, e) })
	}
}

// Logits and log-probs equal transformers', for single rows and for batches padded left and right. All rows are longer
// than the sliding window of 8.
func TestParityWithTransformers(t *testing.T) {
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		for _, dir := range fixtures(t) {
			t.Run(filepath.Base(dir), func(t *testing.T) {
				m, o := load(t, dir), readOracle(t, dir)
				if w := m.Config.SlidingWindow; w > 0 && len(o.Rows[0].IDs) <= w {
					t.Errorf("row of %d tokens, window %d", len(o.Rows[0].IDs), w)
				}
				for side := range o.Padded {
					paddedParity(t, e, m, o, side)
				}
				rowParity(t, e, m, o)
			})
		}
	})
}

// paddedParity runs all rows as one batch with the oracle's own padding and positions.
func paddedParity(t *testing.T, e *backend.Engine, m *Model, o oracle, side string) {
	t.Helper()
	b := o.Padded[side]
	p := packed{rows: len(b.IDs), tokens: len(b.IDs[0])}
	p.clear()
	for r := range b.IDs {
		for j := range b.IDs[r] {
			at := r*p.tokens + j
			p.ids[at], p.positions[at], p.groups[at] = b.IDs[r][j], b.Positions[r][j], int32(b.Mask[r][j]-1)
			p.source, p.target, p.inverse[at] = append(p.source, int32(at)), append(p.target, 0), int32(at)
		}
	}
	got := logitsOf(t, e, m, p)
	for r, row := range o.Rows {
		i := 0
		for j := range p.tokens {
			if b.Mask[r][j] == 1 {
				near(t, side+" padding: logits", worst(got[r*p.tokens+j], row.Logits[i]), 1e-4)
				i++
			}
		}
	}
}

// rowParity compares the log-probs of each row's tokens after the first, with a padding slot and position.
func rowParity(t *testing.T, e *backend.Engine, m *Model, o oracle) {
	t.Helper()
	for _, row := range o.Rows {
		p := pack([]group{{row.IDs[:1], [][]int32{row.IDs[1:]}}}, false, 1)
		got := logProbsOf(t, e, m, p, GraphOptions{})
		near(t, "log-probs", worst(got[:len(row.Logps)], row.Logps), 1e-4)
	}
}

// Log-probs of the completions of real chats, and their sums, with chosen and rejected as two rows and in one.
func TestPairsParity(t *testing.T) {
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		for i, dir := range fixtures(t) {
			t.Run(filepath.Base(dir), func(t *testing.T) {
				m, o := load(t, dir), readOracle(t, dir)
				for _, share := range backendtest.Some(t, e, i, false, true) {
					p := pack(o.pairs(), share, 3)
					checkPairs(t, o, p, logProbsOf(t, e, m, p, GraphOptions{}))
				}
			})
		}
	})
}

// Gradients of the pairs' log-probs equal transformers'.
func TestGradientsAreTransformers(t *testing.T) {
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		for _, dir := range fixtures(t) {
			m, o := load(t, dir), readOracle(t, dir)
			if o.Gradients == nil {
				continue
			}
			t.Run(filepath.Base(dir), func(t *testing.T) {
				got := gradientsOf(t, e, m, pack(o.pairs(), false, 1), GraphOptions{}, 1)[0]
				for i, p := range m.Params {
					want := o.Gradients[p.Name]
					norm, batch := summarize(got.grads[i])
					near(t, p.Name+": norm", math.Abs(norm-want[0]), 1e-4*want[0])
					near(t, p.Name+": product", math.Abs(batch-want[1]), 2e-4*want[0])
				}
			})
		}
	})
}

// summarize gives the L2 norm, and the product with sin(1), sin(2), ...
func summarize(xs []float32) (norm, batch float64) {
	for i, x := range xs {
		norm += float64(x) * float64(x)
		batch += float64(x) * math.Sin(float64(i+1))
	}
	return math.Sqrt(norm), batch
}

func checkPairs(t *testing.T, o oracle, p packed, got []float32) {
	t.Helper()
	var want []float32
	sums, wantSums := make([]float64, 2*len(o.Pairs)), []float64{}
	for _, pair := range o.Pairs {
		want = append(append(want, pair.ChosenTokens...), pair.RejectedTokens...)
		wantSums = append(wantSums, pair.ChosenSum, pair.RejectedSum)
	}
	near(t, "log-probs", worst(got[:len(want)], want), 1e-4)
	for i, a := range p.answer {
		if a >= 0 {
			sums[a] += float64(got[i])
		}
	}
	for i := range sums {
		near(t, "sum of log-probs", math.Abs(sums[i]-wantSums[i]), 1e-3)
	}
}
