package model

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// RopeScaling stretches the rotary frequencies over longer texts.
type RopeScaling struct {
	Type   string  // one of scalings
	Factor float64 // how much longer texts become

	LowFreqFactor, HighFreqFactor float64 // llama3: between them scaling is partial (original context/wavelength)
	OriginalMaxPositions          int     // llama3, yarn and longrope: the context of the model's first training

	// yarn and longrope: the factor of the rotated queries and keys; 0: by their papers' formulas.
	Attention float64
	// yarn: rotations within the original context above which a frequency stays as it is, and below which it is
	// divided; between them both are mixed. Those bounds are whole numbers of frequencies unless Exact.
	BetaFast, BetaSlow float64
	Exact              bool
	Scale, ScaleAll    float64 // yarn: mscale and mscale_all_dim, which are in the formula of Attention; 0: not given

	// longrope: what the frequencies are divided by, [R/2], in texts up to OriginalMaxPositions and in longer ones. The
	// decoder takes the former only, so that MaxPositions is OriginalMaxPositions; LongPositions is the config's.
	Short, Long   []float64
	LongPositions int
}

// scalings are the values of rope_type. dynamic changes frequencies in texts beyond max_position_embeddings, which the
// decoder does not take, and nothing in others.
var scalings = []string{"linear", "llama3", "dynamic", "yarn", "longrope"}

// AttentionFactor is the factor of the rotated queries and keys.
func (r *RopeScaling) AttentionFactor() float64 {
	switch {
	case r == nil:
		return 1
	case r.Attention > 0:
		return r.Attention
	case r.Type == "longrope" && r.Factor > 1:
		return math.Sqrt(1 + math.Log(r.Factor)/math.Log(float64(r.OriginalMaxPositions)))
	case r.Type != "yarn" || r.Factor <= 1:
		return 1
	}
	scale := func(by float64) float64 { return 0.1*by*math.Log(r.Factor) + 1 }
	if r.Scale > 0 && r.ScaleAll > 0 {
		return scale(r.Scale) / scale(r.ScaleAll)
	}
	return scale(1)
}

// apply gives frequency i of a base, for half of a rotation's width.
func (r *RopeScaling) apply(f float32, i, half int, base float64) float32 {
	switch {
	case r == nil || r.Type == "dynamic":
		return f
	case r.Type == "linear":
		return f / float32(r.Factor)
	case r.Type == "longrope":
		return 1 / (float32(r.Short[i]) * (1 / f))
	case r.Type == "yarn":
		return r.yarn(f, i, half, base)
	}
	return r.llama3(f)
}

// llama3 (Llama 3.1) divides frequencies whose wavelength is longer than the original context, keeps those much
// shorter, and interpolates between.
func (r *RopeScaling) llama3(f float32) float32 {
	wavelength := float32(2*math.Pi) / f
	context := float32(r.OriginalMaxPositions)
	low, high := float32(r.LowFreqFactor), float32(r.HighFreqFactor)
	switch {
	case wavelength > context/low:
		return f / float32(r.Factor)
	case wavelength < context/high:
		return f
	}
	smooth := (context/wavelength - low) / (high - low)
	return (1-smooth)*f/float32(r.Factor) + smooth*f
}

// yarn keeps the first frequencies, divides the last, and mixes both between (Peng et al. 2023, section 3.2).
func (r *RopeScaling) yarn(f float32, i, half int, base float64) float32 {
	bound := func(rotations float64) float64 {
		return float64(half) * math.Log(float64(r.OriginalMaxPositions)/(rotations*2*math.Pi)) / math.Log(base)
	}
	low, high := bound(r.BetaFast), bound(r.BetaSlow)
	if !r.Exact {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(2*half-1))
	if low == high {
		high += 0.001
	}
	kept := 1 - min(max((float32(i)-float32(low))/float32(high-low), 0), 1)
	return f/float32(r.Factor)*(1-kept) + f*kept
}

func (r *RopeScaling) validate() error {
	if r == nil {
		return nil
	}
	low, high := r.LowFreqFactor, r.HighFreqFactor
	last := len(scalings) - 1
	is := func(kinds ...string) bool { return slices.Contains(kinds, r.Type) }
	return cmp.Or(
		want(is(scalings...), "rope_scaling.rope_type: found %q, supported are default, %s and %s", r.Type,
			strings.Join(scalings[:last], ", "), scalings[last]),
		want(r.Factor >= 1 && r.Factor < 1e9 || is("longrope") && r.Factor > 0,
			"rope_scaling.factor: found %g, want 1 or more", r.Factor),
		want(!is("llama3") || low > 0 && low < high && high < 1e9,
			"rope_scaling: found low_freq_factor %g and high_freq_factor %g, want 0 < low < high", low, high),
		want(!is("llama3") || r.OriginalMaxPositions >= 1,
			"rope_scaling.original_max_position_embeddings: found %d, want 1 or more", r.OriginalMaxPositions),
		want(!is("yarn", "longrope") || r.OriginalMaxPositions >= 2,
			"rope_scaling.original_max_position_embeddings: found %d, want 2 or more", r.OriginalMaxPositions),
		want(r.Attention >= 0 && r.Attention < 1e9, "rope_scaling.attention_factor: found %g, want more than 0",
			r.Attention),
		want(!is("yarn") || r.BetaSlow > 0 && r.BetaSlow < r.BetaFast && r.BetaFast < 1e9,
			"rope_scaling: found beta_slow %g and beta_fast %g, want 0 < slow < fast", r.BetaSlow, r.BetaFast),
		want(r.Scale >= 0 && r.Scale < 1e9 && r.ScaleAll >= 0 && r.ScaleAll < 1e9,
			"rope_scaling: found mscale %g and mscale_all_dim %g, want more than 0", r.Scale, r.ScaleAll))
}

// validateFactors checks longrope's factors, of which every frequency has one.
func (c *Config) validateFactors() error {
	r := c.RopeScaling
	if r == nil || r.Type != "longrope" {
		return nil
	}
	for key, factors := range map[string][]float64{"short_factor": r.Short, "long_factor": r.Long} {
		if len(factors) != c.rotatedDim()/2 {
			return fmt.Errorf("rope_scaling.%s: found %d numbers, want %d, half of a head's rotated part", key,
				len(factors), c.rotatedDim()/2)
		}
		for _, x := range factors {
			if !(x > 1e-9 && x < 1e9) {
				return fmt.Errorf("rope_scaling.%s: found %g, want more than 0", key, x)
			}
		}
	}
	return nil
}

// readScaling reads rope_scaling, or what is like it in rope_parameters, of the config f.
func (c *Config) readScaling(f, r *fields) *RopeScaling {
	kind := r.text("rope_type", r.text("type", "default"))
	if kind == "su" || kind == "yarn" && c.phi() {
		kind = "longrope" // its older names
	}
	if kind == "default" {
		return nil
	}
	s := &RopeScaling{Type: kind}
	switch kind {
	case "llama3":
		s.LowFreqFactor, s.HighFreqFactor = r.float("low_freq_factor", 0), r.float("high_freq_factor", 0)
	case "yarn":
		s.BetaFast, s.BetaSlow = cmp.Or(r.float("beta_fast", 32), 32), cmp.Or(r.float("beta_slow", 1), 1)
		s.Exact = !r.boolean("truncate", true)
		s.Scale, s.ScaleAll = r.float("mscale", 0), r.float("mscale_all_dim", 0)
	case "longrope":
		s.Short, s.Long = r.floats("short_factor"), r.floats("long_factor")
	}
	if kind == "yarn" || kind == "longrope" {
		s.Attention = r.float("attention_factor", 0)
	}
	c.readContext(s, f, r)
	if r.err == nil {
		if err := s.validate(); err != nil { // use the name that the key has in this file
			r.err = errors.New(strings.Replace(err.Error(), "rope_scaling.", r.prefix, 1))
		}
	}
	return s
}

// readContext reads the original context and how much longer texts become.
func (c *Config) readContext(s *RopeScaling, f, r *fields) {
	if s.Type == "llama3" || s.Type == "yarn" || s.Type == "longrope" {
		const key = "original_max_position_embeddings"
		s.OriginalMaxPositions = f.whole(key, r.whole(key, c.MaxPositions))
	}
	s.Factor = r.float("factor", 0)
	if s.Type != "longrope" {
		return
	}
	if s.Factor == 0 {
		s.Factor = float64(c.MaxPositions) / float64(max(1, s.OriginalMaxPositions))
	}
	s.LongPositions, c.MaxPositions = c.MaxPositions, min(c.MaxPositions, s.OriginalMaxPositions)
}

// write gives rope_scaling. transformers 4 wants three keys of phi exactly, and the original context outside.
func (r *RopeScaling) write(phi bool) map[string]any {
	s := map[string]any{"rope_type": r.Type, "factor": r.Factor}
	set := func(key string, x float64) {
		if x != 0 {
			s[key] = x
		}
	}
	if r.Type != "llama3" {
		s["type"] = r.Type // older readers do not know rope_type
	}
	if r.OriginalMaxPositions > 0 && !phi {
		s["original_max_position_embeddings"] = r.OriginalMaxPositions
	}
	for key, x := range map[string]float64{"low_freq_factor": r.LowFreqFactor, "high_freq_factor": r.HighFreqFactor,
		"attention_factor": r.Attention, "beta_fast": r.BetaFast, "beta_slow": r.BetaSlow, "mscale": r.Scale,
		"mscale_all_dim": r.ScaleAll} {
		set(key, x)
	}
	if r.Exact {
		s["truncate"] = false
	}
	if r.Type == "longrope" {
		s["short_factor"], s["long_factor"] = r.Short, r.Long
		if phi {
			delete(s, "rope_type")
		}
		if r.Factor == float64(r.LongPositions)/float64(r.OriginalMaxPositions) {
			delete(s, "factor")
		}
	}
	return s
}
