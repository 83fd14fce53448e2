package rollout

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// rowOf computes what the graph returns for logits, with sums in float32.
func rowOf(logits []float32, temperature float64) row {
	x := row{logits: logits, temperature: temperature, vocabulary: len(logits)}
	if temperature == 0 {
		x.temperature = 1
	}
	top := slices.Max(logits)
	lse := 0.0
	for chunk := range slices.Chunk(logits, block) {
		sum := float32(0)
		for _, z := range chunk {
			sum += float32(float.Exp(float64((z - top) * float32(1/x.temperature))))
			lse += float.Exp(float64(z - top))
		}
		x.sums, x.maxima = append(x.sums, sum), append(x.maxima, slices.Max(chunk))
	}
	x.logSumExp = float32(math.Log(lse) + float64(top))
	return x
}

// somewhere is the distance from a boundary within which the two implementations may differ.
const somewhere = 1e-5

// sameChoice checks that both implementations pick the same token, unless the draw or a share is on a boundary.
func sameChoice(logits []float32, s Sampling, u float64) error {
	slow, slowLogp, err := choose(logits, s, u)
	if err != nil {
		return err
	}
	x := rowOf(logits, s.Temperature)
	fast, fastLogp, err := x.choose(s, u)
	if err != nil {
		return err
	}
	if fast == slow {
		if d := math.Abs(float64(fastLogp - slowLogp)); d > 1e-5*(1+math.Abs(float64(slowLogp))) {
			return fmt.Errorf("token %d: log-prob %v, want %v", slow, fastLogp, slowLogp)
		}
		return nil
	}
	for _, du := range []float64{-somewhere, 0, somewhere} {
		for _, dp := range []float64{-somewhere, 0, somewhere} {
			near := s
			if s.usesTopP() {
				near.TopP = min(max(s.TopP+dp, 1e-12), 1-1e-12)
			}
			if token, _, _ := choose(logits, near, min(max(u+du, 0), math.Nextafter(1, 0))); token == fast {
				return nil
			}
		}
	}
	return fmt.Errorf("token %d, want %d", fast, slow)
}

// randomLogits returns logits of several kinds: flat, peaked, with ties, with impossible tokens.
func randomLogits(r *rand.Rand, v int) []float32 {
	scale := float.Exp(r.Float64()*5 - 2.5)
	kind := r.IntN(4)
	logits := make([]float32, v)
	for i := range logits {
		z := r.NormFloat64() * scale
		switch {
		case kind == 1:
			z = math.Round(z)
		case kind == 2 && r.IntN(3) == 0:
			z = math.Inf(-1)
		case kind == 3 && r.IntN(100) == 0:
			z += 10
		}
		logits[i] = float32(z)
	}
	logits[r.IntN(v)] = float32(scale)
	return logits
}

func randomRule(r *rand.Rand) Sampling {
	some := func(p float64) bool { return r.Float64() < p }
	x := Sampling{Temperature: float.Exp(r.Float64()*3 - 1.5)}
	if some(0.1) {
		x.Temperature = 0
	}
	if some(0.4) {
		x.TopK = 1 + r.IntN(200)
	}
	if some(0.4) {
		x.TopP = r.Float64()
	}
	if some(0.3) {
		x.MinP = r.Float64() * r.Float64()
	}
	return x
}

// TestRowsChooseAsThePlainWay: rows pick the plain implementation's tokens for all kinds of logits, rules and draws.
func TestRowsChooseAsThePlainWay(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	for i := range 20_000 {
		v := []int{1, 3, 64, 65, 300, 1000}[r.IntN(6)]
		logits, rule, u := randomLogits(r, v), randomRule(r), r.Float64()
		if i%50 == 0 {
			u = math.Nextafter(1, 0)
		}
		if err := sameChoice(logits, rule, u); err != nil {
			t.Fatalf("case %d, %d logits, %+v, draw %v: %v", i, v, rule, u, err)
		}
	}
	for range 20 {
		logits, rule, u := randomLogits(r, 20_000), randomRule(r), r.Float64()
		if err := sameChoice(logits, rule, u); err != nil {
			t.Fatalf("20,000 logits, %+v, draw %v: %v", rule, u, err)
		}
	}
}

func FuzzRowsChooseAsThePlainWay(f *testing.F) {
	f.Add(uint64(1), 100, 0.5, 10, 0.9, 0.1, 0.3)
	f.Fuzz(func(t *testing.T, seed uint64, v int, temperature float64, topK int, topP, minP, u float64) {
		request := Sampling{MaxNew: 1, Temperature: temperature, TopK: topK, TopP: topP, MinP: minP}
		if v < 1 || v > 5000 || request.outOfRange() != nil ||
			temperature != 0 && (temperature < 1e-2 || temperature > 1e3) || !(u >= 0 && u < 1) {
			return
		}
		logits := randomLogits(rand.New(rand.NewPCG(seed, 5)), v)
		if err := sameChoice(logits, request, u); err != nil {
			t.Errorf("%+v: %v", request, err)
		}
	})
}

// TestCutOff: these numbers can be checked by hand: the weights are 1 2 3 4 of 10; token 4 ties with token 3.
func TestCutOff(t *testing.T) {
	plain := logs(1, 2, 3, 4)
	ties := logs(1, 2, 3, 4, 4)
	cases := []struct {
		name   string
		logits []float32
		rule   Sampling
		kept   []int32
	}{
		{"nothing", plain, Sampling{Temperature: 1}, []int32{0, 1, 2, 3}},
		{"two likeliest", plain, Sampling{Temperature: 1, TopK: 2}, []int32{2, 3}},
		{"more than there are", plain, Sampling{Temperature: 1, TopK: 9}, []int32{0, 1, 2, 3}},
		{"ties with the last are kept", ties, Sampling{Temperature: 1, TopK: 1}, []int32{3, 4}},
		{"0.39 of 0.4", plain, Sampling{Temperature: 1, TopP: 0.39}, []int32{3}},
		{"0.41 needs 0.7", plain, Sampling{Temperature: 1, TopP: 0.41}, []int32{2, 3}},
		{"0.71 needs 0.9", plain, Sampling{Temperature: 1, TopP: 0.71}, []int32{1, 2, 3}},
		{"cold: 16 and 9 of 30", plain, Sampling{Temperature: 0.5, TopP: 0.83}, []int32{2, 3}},
		{"cold: 16 and 9 and 4 of 30", plain, Sampling{Temperature: 0.5, TopP: 0.84}, []int32{1, 2, 3}},
		{"a share of what top-k left: 4 of 7", plain, Sampling{Temperature: 1, TopK: 2, TopP: 0.57}, []int32{3}},
		{"a share of what top-k left: 7 of 7", plain, Sampling{Temperature: 1, TopK: 2, TopP: 0.58}, []int32{2, 3}},
		{"half as likely as 4", plain, Sampling{Temperature: 1, MinP: 0.49}, []int32{1, 2, 3}},
		{"more than half as likely as 4", plain, Sampling{Temperature: 1, MinP: 0.51}, []int32{2, 3}},
		{"cold: 4 of 16", plain, Sampling{Temperature: 0.5, MinP: 0.26}, []int32{2, 3}},
		{"only the likeliest", plain, Sampling{Temperature: 1, MinP: 1}, []int32{3}},
		{"the strictest wins", plain, Sampling{Temperature: 1, TopK: 3, TopP: 0.99, MinP: 0.6}, []int32{2, 3}},
	}
	for _, c := range cases {
		for name, choose := range map[string]func(u float64) (int32, float32, error){
			"plain": func(u float64) (int32, float32, error) { return choose(c.logits, c.rule, u) },
			"row": func(u float64) (int32, float32, error) {
				return rowOf(c.logits, c.rule.Temperature).choose(c.rule,
					u)
			},
		} {
			seen := map[int32]bool{}
			for u := range 1000 {
				token, _, err := choose(float64(u) / 1000)
				expect.OK(t, err)
				seen[token] = true
			}
			for id := range int32(len(c.logits)) {
				if want := slices.Contains(c.kept, id); seen[id] != want {
					t.Errorf("%s, %s: token %d drawn: %v, want %v", c.name, name, id, seen[id], want)
				}
			}
		}
	}
}

// TestDistribution: tokens are as frequent as their probabilities say.
func TestDistribution(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	logits := make([]float32, 200)
	for i := range logits {
		logits[i] = float32(r.NormFloat64())
	}
	const n = 200_000
	for _, rule := range []Sampling{{Temperature: 1}, {Temperature: 0.6}, {Temperature: 1, TopK: 20},
		{Temperature: 1.5, TopP: 0.8}, {Temperature: 1, MinP: 0.2}} {
		x, top := rowOf(logits, rule.Temperature), float64(slices.Max(logits))
		least := rule.threshold(logits, top)
		count := make([]float64, len(logits))
		for i := range n {
			token, _, err := x.choose(rule, draw(3, i))
			expect.OK(t, err)
			count[token]++
		}
		kept := slices.DeleteFunc(slices.Clone(logits), func(z float32) bool { return z < least })
		total, chi := rule.sum(kept, top), 0.0
		for i, z := range logits {
			switch want := n * rule.weight(z, top) / total; {
			case z >= least:
				chi += (count[i] - want) * (count[i] - want) / want
			case count[i] > 0:
				t.Errorf("%+v: token %d is cut off and was drawn", rule, i)
			}
		}
		freedom := float64(len(kept) - 1)
		if z := (chi - freedom) / math.Sqrt(2*freedom); z > 4 {
			t.Errorf("%+v: chi squared %.1f with %v degrees of freedom", rule, chi, freedom)
		}
	}
}

func TestBrokenRows(t *testing.T) {
	logits := logs(1, 2, 3)
	nan := float32(math.NaN())
	for _, spoil := range []func(x *row){
		func(x *row) { x.logits[1], x.logSumExp = nan, nan },
		func(x *row) { x.logits[1], x.maxima[0], x.logSumExp = nan, nan, nan },
		func(x *row) { x.logits[1] = nan; x.logSumExp = float32(math.Inf(1)) },
	} {
		x := rowOf(slices.Clone(logits), 1)
		spoil(&x)
		if _, _, err := x.choose(Sampling{Temperature: 1}, 0.5); err == nil ||
			!strings.Contains(err.Error(), "token 1 is NaN") {
			t.Errorf("%v, want token 1 named", err)
		}
	}
}

// BenchmarkChoose measures one row's choice, flat (fresh weights) and peaked (trained weights).
func BenchmarkChoose(b *testing.B) {
	for _, v := range []int{4096, 151936} {
		for _, scale := range []float64{1, 4} {
			r := rand.New(rand.NewPCG(1, 1))
			logits := make([]float32, v)
			for i := range logits {
				logits[i] = float32(r.NormFloat64() * scale)
			}
			x := rowOf(logits, 1)
			for name, rule := range map[string]Sampling{"plain": {Temperature: 1},
				"top-k 50": {Temperature: 1, TopK: 50}, "top-p 0.9": {Temperature: 1, TopP: 0.9},
				"min-p 0.1": {Temperature: 1, MinP: 0.1}} {
				b.Run(fmt.Sprintf("%d/%v/%s", v, scale, name), func(b *testing.B) {
					for i := range b.N {
						if _, _, err := x.choose(rule, draw(1, i)); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
