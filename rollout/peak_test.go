package rollout

import (
	"cmp"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/model"
)

// peakOf has the n likeliest blocks of a row, as a program gives them.
func peakOf(x row, n int) peak {
	all := make([]int32, len(x.maxima))
	for i := range all {
		all[i] = int32(i)
	}
	slices.SortStableFunc(all, func(a, b int32) int { return cmp.Compare(x.maxima[b], x.maxima[a]) })
	p := &peaks{numbers: all[:n], head: head{sums: x.sums, logSumExp: []float32{x.logSumExp}, vocabulary: len(x.logits),
		temperatures: []float64{x.temperature}}}
	for _, i := range all[:n] {
		p.blocks = append(p.blocks, x.block(int(i))...)
		for len(p.blocks)%block > 0 {
			p.blocks = append(p.blocks, -1e30)
		}
	}
	for _, i := range all[:n+1] {
		p.greatest = append(p.greatest, x.maxima[i])
	}
	return p.peak(0)
}

// TestPeaksChooseAsRows: a peak that decides a draw has the bits of its whole row.
func TestPeaksChooseAsRows(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 1))
	decided, all := 0, 0
	for all < 4_000 {
		rule, u := randomRule(r), r.Float64()
		x := rowOf(randomLogits(r, 1000+r.IntN(1000)), rule.Temperature)
		if rule.Temperature == 0 || !rule.truncates(x.vocabulary) {
			continue
		}
		if all++; all%10 == 0 {
			rule.Temperature *= 1.1 // the sums have another one
		}
		got := peakOf(x, 10).choose(rule, u)
		if got == nil {
			continue
		}
		decided++
		if token, logp, err := x.choose(rule, u); *got != (drawnToken{token, logp}) || err != nil {
			t.Fatalf("%+v, draw %v: %v, want %d, %v, %v", rule, u, *got, token, logp, err)
		}
	}
	if decided < all/6 || decided > all*3/4 {
		t.Errorf("%d of %d draws decided by peaks", decided, all)
	}
}

// TestPeaksDecide: by hand, the weights are 1 2 3 4 4 of 14, each in a block of its own, and the peak has the blocks of
// the last three: the limit is 2.
func TestPeaksDecide(t *testing.T) {
	z := slices.Repeat([]float32{-1e30}, 5*block)
	for i, logit := range logs(1, 2, 3, 4, 4) {
		z[i*block] = logit
	}
	x := rowOf(z, 1)
	least := math.Exp(float64(z[block])-float64(z[3*block])) * (1 - 1e-8) // keeps the limit's token, which is left out
	for _, c := range []struct {
		rule Sampling
		want bool
	}{
		{Sampling{TopK: 3}, true}, {Sampling{TopK: 4}, false}, {Sampling{TopP: 0.78}, true}, // 11 of 14 is 0.786
		{Sampling{TopP: 0.79}, false}, {Sampling{MinP: 0.51}, true}, {Sampling{MinP: least}, false},
		{Sampling{TopK: 4, TopP: 0.1}, false}, {Sampling{TopK: 2, TopP: 0.1}, true},
		{Sampling{TopP: 0.79, MinP: 0.9}, false}, {Sampling{Temperature: 2, TopP: 0.1}, false},
	} {
		if c.rule.Temperature == 0 {
			c.rule.Temperature = 1
		}
		if got := peakOf(x, 3).choose(c.rule, 0.9); (got != nil) != c.want || got != nil && got.token < 3*block {
			t.Errorf("%+v: %v, want a draw: %v", c.rule, got, c.want)
		}
	}
	if x.logSumExp = float32(math.NaN()); peakOf(x, 3).choose(Sampling{Temperature: 1, TopK: 2}, 0.5) != nil {
		t.Error("a broken row was drawn from")
	}
}

// TestDrawsFromPeaks: a sampler that reads peaks, and single rows where they do not suffice, draws the tokens of one
// that reads all logits, in batches of rows with different rules; and it reads less.
func TestDrawsFromPeaks(t *testing.T) {
	rules := []Sampling{{Temperature: 1}, {Temperature: 1, TopP: 0.9}, {Temperature: 0.6, TopP: 0.5}, {},
		{Temperature: 1, TopK: 3}, {Temperature: 2, TopK: 8, TopP: 0.8}, {Temperature: 0.8, MinP: 0.2},
		{Temperature: 1, TopK: 900, TopP: 0.99}, {Temperature: 1e-7, TopP: 0.9},
		{Temperature: 1.3, TopP: 0.7, MinP: 0.05}}
	c := testkit.Config(t, "llama")
	c.VocabSize = 10_000 // 157 blocks, the last one short
	m := model.Init(c, 3)
	for i := range m.Params[c.HeadTable()].Data {
		m.Params[c.HeadTable()].Data[i] *= 8 // few tokens are likely
	}
	var rs []Request
	for i, r := range sampleGroups(3, 2*len(rules), 40, func(i, k int) int { return 20 }) {
		rules[i%len(rules)].MaxNew = r.MaxNew
		r.Sampling = rules[i%len(rules)]
		rs = append(rs, r)
	}
	s, programs := newCached(t, backendtest.XLA(t), m, Options{})
	s.peak = 40
	got, fetched := sample(t, s, rs...), s.fetched
	if ran := strings.Join(*programs, " "); !strings.Contains(ran, "peaks/64") || !strings.Contains(ran, "row/64") {
		t.Errorf("programs %v, want peaks and rows", ran)
	}
	s.peak, s.fetched = math.MaxInt/2, 0
	if want := sample(t, s, rs...); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if fetched > s.fetched/2 {
		t.Errorf("%d numbers read, want at most half of %d", fetched, s.fetched)
	}
}

// TestPeaksOnAMesh: the draws are those from all logits where weights and cache are cut over devices, and where not.
func TestPeaksOnAMesh(t *testing.T) {
	c := testkit.Config(t, "qwen3")
	c.VocabSize = 1000
	rs := sampleGroups(4, 2, 12, func(i, k int) int { return 6 })
	for i := range rs {
		rs[i].TopK = 1 + 3*i
	}
	for _, together := range []bool{false, true} {
		r := newReplicas(t, backendtest.Mesh(t, backend.Mesh{Data: 2, Tensor: 2}), model.Init(c, 3))
		if together {
			r.join()
		}
		var drawn [2][]Completion
		for i, peak := range []int{5, math.MaxInt / 2} {
			for _, s := range r.samplers {
				s.peak, s.fetched = peak, 0
			}
			drawn[i] = sample(t, r, rs...)
		}
		if !reflect.DeepEqual(drawn[0], drawn[1]) {
			t.Errorf("%v, want %v", drawn[0], drawn[1])
		}
	}
}
