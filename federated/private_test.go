package federated

import (
	"bytes"
	"crypto/ecdh"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// group makes the keys of a sum of agents with the given numbers.
func group(t *testing.T, attempt int, present ...int) (Sum, []*ecdh.PrivateKey) {
	t.Helper()
	s := Sum{Run: "r", Kind: "gradient", Round: 7, Attempt: attempt, Present: present}
	var keys []*ecdh.PrivateKey
	for _, i := range present {
		key := expect.Must(SumKey(bytes.Repeat([]byte{byte(i + 1)}, 32), s.Run, s.Round))(t)
		keys, s.Keys = append(keys, key), append(s.Keys, key.PublicKey().Bytes())
	}
	return s, keys
}

func mask(t *testing.T, s Sum, self int, key *ecdh.PrivateKey, v []float64) []uint64 {
	t.Helper()
	out, err := ToFixed(v, len(s.Present))
	if err == nil {
		err = s.Mask(self, key, out)
	}
	expect.OK(t, err)
	return out
}

func TestSumsAreExact(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, present := range [][]int{{0, 1}, {0, 3, 4}, {1, 2, 5, 6, 11}} {
		s, keys := group(t, 1, present...)
		const d = 1500
		total, plain, want := make([]uint64, d), make([]float64, d), make([]uint64, d)
		for k, i := range present {
			v := make([]float64, d)
			for j := range v {
				v[j] = r.NormFloat64() * math.Exp(2*r.NormFloat64())
			}
			AddFixed(total, mask(t, s, i, keys[k], v))
			fixed, _ := ToFixed(v, len(present))
			AddFixed(want, fixed)
			AddScaled(plain, 1, v)
		}
		if !slices.Equal(total, want) {
			t.Errorf("agents %v: the masks do not cancel", present)
		}
		half := math.Ldexp(float64(len(present)), -FractionBits-1)
		for j, x := range FromFixed(total) {
			if far := math.Abs(x - plain[j]); far > half+1e-15*math.Abs(plain[j]) {
				t.Errorf("agents %v: number %d is off by %g, want at most %g", present, j, far, half)
			}
		}
	}
}

// A masked message is its vector plus masks that do not depend on it, and the masks are uniform. So the message is
// uniform whatever the vector is.
func TestMessageShowsNothing(t *testing.T) {
	s, keys := group(t, 1, 0, 1, 2)
	const d = 40_000
	zero := mask(t, s, 1, keys[1], make([]float64, d))
	other := make([]float64, d)
	for j := range other {
		other[j] = float64(j%7) - 1000
	}
	fixed, _ := ToFixed(other, 3)
	message := mask(t, s, 1, keys[1], other)
	for j := range fixed {
		if message[j]-fixed[j] != zero[j] {
			t.Fatalf("number %d: the mask depends on the vector", j)
		}
	}
	for name, numbers := range map[string][]uint64{"zeros": zero, "others": message} {
		for shift := 0; shift < 64; shift += 8 {
			var counts [256]float64
			for _, x := range numbers {
				counts[byte(x>>shift)]++
			}
			square := 0.0
			for _, n := range counts {
				square += (n - d/256.0) * (n - d/256.0) / (d / 256.0)
			}
			if square < 155 || square > 375 { // χ² with 255 degrees: mean 255, deviation 22.6
				t.Errorf("%s, bits from %d: χ² = %.0f", name, shift, square)
			}
		}
	}
}

// Every fact of the sum changes the masks.
func TestMasksAreFresh(t *testing.T) {
	zero := make([]float64, 4)
	base, keys := group(t, 1, 0, 1, 2)
	first := mask(t, base, 0, keys[0], zero)
	changes := map[string]func(*Sum){
		"run": func(s *Sum) { s.Run = "q" }, "kind": func(s *Sum) { s.Kind = "train" },
		"round": func(s *Sum) { s.Round++ }, "step": func(s *Sum) { s.Step++ },
		"attempt": func(s *Sum) { s.Attempt++ },
		"present": func(s *Sum) { s.Present, s.Keys = s.Present[:2], s.Keys[:2] },
	}
	for name, change := range changes {
		s := base
		change(&s)
		for j, x := range mask(t, s, 0, keys[0], zero) {
			if x == first[j] {
				t.Errorf("another %s has the same mask", name)
			}
		}
	}
	if again := mask(t, base, 0, keys[0], zero); !slices.Equal(again, first) {
		t.Error("the same sum has other masks")
	}
	if key, _ := SumKey(bytes.Repeat([]byte{1}, 32), "r", 8); bytes.Equal(key.PublicKey().Bytes(), base.Keys[0]) {
		t.Error("another round has the same key")
	}
}

// A sum without one of its agents is noise.
func TestMissingMessage(t *testing.T) {
	s, keys := group(t, 1, 0, 1, 2)
	total := mask(t, s, 0, keys[0], []float64{1, 1})
	AddFixed(total, mask(t, s, 2, keys[2], []float64{1, 1}))
	for _, x := range FromFixed(total) {
		if math.Abs(x-2) < 1 {
			t.Errorf("the sum of two of three shows %g", x)
		}
	}
}

func TestFaults(t *testing.T) {
	s, keys := group(t, 1, 0, 1, 2)
	_, wide := ToFixed([]float64{0, 3e6}, 3)
	_, nan := ToFixed([]float64{math.NaN()}, 3)
	alone, twice, keyless, swapped := s, s, s, s
	alone.Present, alone.Keys = []int{0}, s.Keys[:1]
	twice.Present = []int{0, 1, 1}
	keyless.Keys = s.Keys[:2]
	swapped.Keys = [][]byte{s.Keys[1], s.Keys[0], s.Keys[2]}
	low := s
	low.Keys = [][]byte{s.Keys[0], make([]byte, 32), s.Keys[2]}
	faults := map[string]error{
		"number 1 is 3e+06: a secure sum of 3 agents needs each below 2.79": wide,
		"number 0 is NaN": nan,
		"a secure sum of 1 agents: want at least 2":    alone.Mask(0, keys[0], nil),
		"a secure sum of agents [0 1 1]":               twice.Mask(0, keys[0], nil),
		"a secure sum with 2 keys: want 3":             keyless.Mask(0, keys[0], nil),
		"a secure sum without agent 5":                 s.Mask(5, keys[0], nil),
		"a secure sum with another key for this agent": swapped.Mask(0, keys[0], nil),
		"the key of agent 1: ":                         low.Mask(0, keys[0], nil),
	}
	for want, err := range faults {
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s…", err, want)
		}
	}
	if edge, err := ToFixed([]float64{FixedLimit(3) - 1, -FixedLimit(3) + 1}, 3); err != nil || FromFixed(edge)[0] != FixedLimit(3)-1 {
		t.Error(err)
	}
}

func TestNoise(t *testing.T) {
	p := Privacy{Clip: 2, Noise: 1.5, Delta: 1e-5}
	s, _ := group(t, 1, 0, 1, 2, 3)
	const d = 50_000
	sum, v := make([]float64, d), make([]float64, d)
	v[0] = 100
	for i := range 4 {
		noise := expect.Must(NoiseSource(bytes.Repeat([]byte{byte(i + 1)}, 32), s))(t)
		AddScaled(sum, 1, p.Protect(v, 4, noise))
	}
	sum[0] -= 4 * p.Clip
	if got := Norm(sum) / math.Sqrt(d); math.Abs(got-3) > 0.05 { // deviation 3/sqrt(2d) = 0.01
		t.Errorf("the sum's noise has a deviation of %.3f, want 3", got)
	}
	short := Privacy{Clip: 2}.Protect([]float64{0.6, 0.8}, 4, rand.New(rand.NewPCG(1, 1)))
	if short[0] != 0.6 || short[1] != 0.8 {
		t.Errorf("a short vector became %v", short)
	}
	again := s
	again.Attempt++
	a, _ := NoiseSource([]byte{1}, s)
	b, _ := NoiseSource([]byte{1}, again)
	c, _ := NoiseSource([]byte{1}, s)
	if x, y, z := a.Uint64(), b.Uint64(), c.Uint64(); x == y || x != z {
		t.Error("noise of another attempt, or of the same")
	}
}

// By hand: z = 4 gives ρ = 1/32 a sum; 32 sums ρ = 1; δ = e^-9 gives ε = 1 + 2·3 = 7.
func TestAccount(t *testing.T) {
	a := Account{Sums: 32, Noise: 4, Delta: math.Exp(-9)}
	if math.Abs(a.Rho()-1) > 1e-12 || math.Abs(a.Epsilon()-7) > 1e-12 {
		t.Errorf("ρ = %g, ε = %g, want 1 and 7", a.Rho(), a.Epsilon())
	}
	// z = 1, 100 sums: ρ = 50, δ = 1e-5: ε = 50 + 2·sqrt(50·11.5129…) = 50 + 47.9856… = 97.99
	want := "privacy of an agent: ε = 97.99 at δ = 1e-05 (ρ = 50, 100 sums)"
	if got := (Account{100, 1, 1e-5}).String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
