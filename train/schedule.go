package train

import "math"

// Schedule is the course of the learning rate over a run, as transformers' get_scheduler has it: update k, counted
// from 0, uses the rate of k/warm-up on the way up, so the first update of a warm-up uses 0.
type Schedule struct {
	// of the course after the warm-up: constant, linear or cosine; the last two fall to 0 at update Total
	Kind   string
	Peak   float64 // rate at the end of the warm-up
	Warmup int     // updates
	Total  int     // updates of the whole run
}

// At is the rate of update k, counted from 0.
func (s Schedule) At(k int) float64 {
	if k < s.Warmup {
		return s.Peak * float64(k) / float64(s.Warmup)
	}
	rest := float64(max(1, s.Total-s.Warmup)) // updates after the warm-up
	switch s.Kind {
	case "linear":
		return s.Peak * max(0, float64(s.Total-k)/rest)
	case "cosine":
		return s.Peak * max(0, 0.5*(1+math.Cos(math.Pi*min(1, float64(k-s.Warmup)/rest))))
	}
	return s.Peak
}

// RateAt is the learning rate of update step, counted from 0, in a run of total updates.
func (o Options) RateAt(step, total int) float64 {
	return Schedule{Kind: o.Schedule, Peak: o.LearningRate, Warmup: o.WarmupSteps, Total: total}.At(step)
}
