package model

import "math"

// Rotary holds the rotations of positions on the host, as the graphs compute them, for inputs of [Config.Step]. It is for
// one goroutine at a time.
type Rotary struct {
	frequencies []float32
	cos, sin    []float32 // [positions seen so far, D]
}

// Rotary makes the rotations of a configuration's positions.
func (c *Config) Rotary() *Rotary { return &Rotary{frequencies: c.inverseFrequencies()} }

// Rows writes the rotations of positions into cos and sin [len(positions), D].
func (r *Rotary) Rows(positions []int32, cos, sin []float32) {
	d := 2 * len(r.frequencies)
	for i, p := range positions {
		r.reach(int(p))
		copy(cos[i*d:(i+1)*d], r.cos[int(p)*d:])
		copy(sin[i*d:(i+1)*d], r.sin[int(p)*d:])
	}
}

// reach extends the tables to a position.
func (r *Rotary) reach(position int) {
	half := len(r.frequencies)
	for p := len(r.cos) / (2 * half); p <= position; p++ {
		for range 2 { // both halves of D turn alike
			for _, f := range r.frequencies {
				sin, cos := math.Sincos(float64(float32(p) * f))
				r.cos, r.sin = append(r.cos, float32(cos)), append(r.sin, float32(sin))
			}
		}
	}
}

// Mask writes the additive mask [Seen] of one row of a step, for one sliding window (0: none): prompt slots of the prefix
// and suffix slots of the suffix are filled, and the new token stands at position prompt+suffix. With InGraph the new
// token's slot is the suffix slot number suffix.
func (s StepShape) Mask(mask []float32, prompt, suffix, window int) {
	first := 0 // the first position that the new token sees
	if window > 0 {
		first = max(0, prompt+suffix+1-window)
	}
	see(mask[:s.Prefix], first, prompt)
	if s.InGraph {
		see(mask[s.Prefix:], first-prompt, suffix+1)
		return
	}
	see(mask[s.Prefix:s.Prefix+s.Suffix], first-prompt, suffix)
	mask[s.Prefix+s.Suffix] = 0
}

// see shows the slots from..to-1 of mask and hides the others.
func see(mask []float32, from, to int) {
	for i := range mask {
		mask[i] = hidden
		if i >= from && i < to {
			mask[i] = 0
		}
	}
}
