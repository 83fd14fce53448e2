package rollout

import (
	"math"
	"strings"
	"testing"
)

// logs returns the logits of weights: probabilities are the weights' shares.
func logs(weights ...float64) []float32 {
	out := make([]float32, len(weights))
	for i, w := range weights {
		out[i] = float32(math.Log(w))
	}
	return out
}

func TestChoose(t *testing.T) {
	inf := math.Inf(-1)
	cases := []struct {
		name        string
		logits      []float32
		temperature float64
		u           float64
		token       int32
		p           float64 // probability at temperature 1
	}{
		{"greedy", logs(1, 4, 2, 3), 0, 0.99, 1, 0.4},
		{"greedy, first of equals", []float32{0, 2, 2, 0}, 0, 0.99, 1, math.E * math.E / (2 + 2*math.E*math.E)},
		{"first tenth", logs(1, 2, 3, 4), 1, 0.05, 0, 0.1},
		{"second", logs(1, 2, 3, 4), 1, 0.2, 1, 0.2},
		{"third", logs(1, 2, 3, 4), 1, 0.59, 2, 0.3},
		{"last", logs(1, 2, 3, 4), 1, 0.61, 3, 0.4},
		{"cold: weights squared, 1 4 9 16 of 30", logs(1, 2, 3, 4), 0.5, 0.45, 2, 0.3},
		{"cold, last", logs(1, 2, 3, 4), 0.5, 0.48, 3, 0.4},
		{"hot: roots, 1 1.41 1.73 2 of 6.15", logs(1, 2, 3, 4), 2, 0.3, 1, 0.2},
		{"impossible tokens are never drawn", []float32{float32(inf), 0, float32(inf)}, 1, 0, 1, 1},
		{"the end of the line", []float32{0, 0, float32(inf)}, 1, math.Nextafter(1, 0), 1, 0.5},
		{"huge logits", []float32{3e38, -3e38}, 1, 0.5, 0, 1},
	}
	for _, c := range cases {
		token, logp, err := choose(c.logits, Sampling{Temperature: c.temperature}, c.u)
		if err != nil || token != c.token || math.Abs(math.Exp(float64(logp))-c.p) > 1e-6 {
			t.Errorf("%s: token %d, p %v, %v, want %d, %v", c.name, token, math.Exp(float64(logp)), err, c.token, c.p)
		}
	}
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
		if _, _, err := choose([]float32{0, bad}, Sampling{Temperature: 1}, 0.5); err == nil {
			t.Errorf("logit %v is no error", bad)
		}
	}
}

// TestDraw: draws are uniform over tokens and over seeds, and neighbours are unrelated.
func TestDraw(t *testing.T) {
	const n = 20_000
	streams := map[string]func(i int) float64{
		"tokens of seed 0": func(i int) float64 { return draw(0, i) },
		"seeds, token 0":   func(i int) float64 { return draw(uint64(i), 0) },
		"diagonal":         func(i int) float64 { return draw(uint64(i), i) },
		"samples":          func(i int) float64 { return draw(Request{Seed: 5}.Samples(i + 1)[i].Seed, 3) },
	}
	for name, u := range streams {
		count := n
		if name == "samples" {
			count = 1000
		}
		var bins [16]float64
		var product float64
		for i := range count {
			x := u(i)
			if x < 0 || x >= 1 {
				t.Fatalf("%s: draw %v", name, x)
			}
			bins[int(x*16)]++
			if i > 0 {
				product += (x - 0.5) * (u(i-1) - 0.5)
			}
		}
		chi, mean := 0.0, float64(count)/16
		for _, b := range bins {
			chi += (b - mean) * (b - mean) / mean
		}
		if chi > 44.3 { // one in 10,000 of 15 degrees of freedom
			t.Errorf("%s: chi squared %.1f", name, chi)
		}
		if z := product * 12 / math.Sqrt(float64(count)); math.Abs(z) > 4 {
			t.Errorf("%s: neighbours correlate, %.1f standard deviations", name, z)
		}
	}
}

func TestSamples(t *testing.T) {
	r := Request{Sampling: Sampling{MaxNew: 3, Temperature: 0.7}, Prompt: []int32{1}, Seed: 9}
	seen := map[uint64]bool{}
	for i, s := range r.Samples(8) {
		if s.MaxNew != 3 || s.Temperature != 0.7 || len(s.Prompt) != 1 || seen[s.Seed] {
			t.Errorf("sample %d: %+v", i, s)
		}
		seen[s.Seed] = true
	}
	if a, b := r.Samples(2)[1].Seed, r.Samples(8)[1].Seed; a != b {
		t.Error("a sample's seed depends on how many there are")
	}
}

// TestSamplingFaults: each bad value and each useless rule has one fault, named by its YAML key.
func TestSamplingFaults(t *testing.T) {
	good := Sampling{MaxNew: 1, Temperature: 1, TopK: 3, TopP: 0.9, MinP: 0.1, Stop: []string{"\n"}}
	for want, spoil := range map[string]func(s *Sampling){
		"": func(*Sampling) {},
		"max_new_tokens 0: want a whole number, 1 ": func(s *Sampling) { s.MaxNew = 0 },
		"temperature NaN: want ":                    func(s *Sampling) { s.Temperature = math.NaN() },
		"temperature +Inf: want ":                   func(s *Sampling) { s.Temperature = math.Inf(1) },
		"top_k -1: want a whole number, 0 (off) ":   func(s *Sampling) { s.TopK = -1 },
		"top_p NaN: want a number, 0 ":              func(s *Sampling) { s.TopP = math.NaN() },
		"min_p 1.5: want a number, 0 ":              func(s *Sampling) { s.MinP = 1.5 },
		`stop "": want `:                            func(s *Sampling) { s.Stop = []string{"a", ""} },
		"top_k 3: temperature 0 ":                   func(s *Sampling) { s.Temperature, s.TopP, s.MinP = 0, 1, 0 },
		"top_p 0.9: temperature 0 ":                 func(s *Sampling) { s.Temperature, s.TopK, s.MinP = 0, 0, 0 },
		"min_p 0.1: temperature 0 ":                 func(s *Sampling) { s.Temperature, s.TopK, s.TopP = 0, 0, 0 },
	} {
		s := good
		spoil(&s)
		faults := s.Check()
		if n := min(len(want), 1); len(faults) != n || n > 0 && !strings.HasPrefix(faults[0].Error(), want) {
			t.Errorf("%+v: %v, want %q", s, faults, want)
		}
	}
}
