package federated

import (
	"fmt"
	"math"
	"slices"
)

// Why the server refuses an update.
const (
	ReasonLength    = "length"    // not [d]
	ReasonFinite    = "finite"    // NaN or infinite
	ReasonNorm      = "norm"      // zero
	ReasonVersion   = "version"   // of the future, or too old
	ReasonDuplicate = "duplicate" // this agent's update of this version counts already
)

// Guard decides which updates a server refuses or shortens. Normalised steps bound the length of a step and not its
// direction: one agent of eight that sends −1000·g ruins a run without it. Departure: the papers trust every agent.
type Guard struct {
	Length   int     // d
	Clip     float64 // a vector longer than Clip × the median of Norms is shortened to that; 0: none is
	MaxDelay int     // the largest delay k+1−k′ that counts; 0: any

	Norms []float64 // of the last 20 accepted vectors, as they came
	Seen  []Mark    // accepted updates that are not too old yet, in the order they came
}

// Mark names an accepted update.
type Mark struct{ Agent, Version int }

const (
	guardWindow = 20 // norms that the bound is made of
	guardStart  = 5  // norms that must be known before anything is shortened
)

// Verdict is what a guard says of a vector.
type Verdict struct {
	Reason string    // of the refusal; "": the update counts
	Detail string    // the refusal in words: what was found, what is accepted
	Norm   float64   // as it came
	Bound  float64   // of the norm; 0: too few norms are known for one
	Used   []float64 // [d] the vector, shortened where Norm > Bound; nil after a refusal
}

// Shortened is the bound if the vector was longer, else 0.
func (v Verdict) Shortened() float64 {
	if v.Bound > 0 && v.Norm > v.Bound {
		return v.Bound
	}
	return 0
}

// Check judges the vector v, which agent made at version while the server is at version now. The order is length,
// finite, norm, version, duplicate: the first that fails is the reason. With zero, a vector of zeros is a right one.
// Check changes nothing; see [Guard.Record].
func (g *Guard) Check(agent, version, now int, v []float64, zero bool) Verdict {
	verdict := Verdict{}
	verdict.Reason, verdict.Detail = g.refuse(agent, version, now, v, zero)
	if verdict.Reason != "" {
		return verdict
	}
	verdict.Norm, verdict.Used = Norm(v), v
	if verdict.Bound = g.bound(); verdict.Shortened() > 0 {
		verdict.Used = Scaled(verdict.Bound/verdict.Norm, v)
	}
	return verdict
}

// Record remembers an accepted update of the server at version now, before its step. A norm of 0 says nothing about the
// length of others.
func (g *Guard) Record(agent, version, now int, norm float64) {
	if norm > 0 {
		g.Norms = append(g.Norms, norm)
	}
	g.Norms = g.Norms[max(0, len(g.Norms)-guardWindow):]
	g.Seen = slices.DeleteFunc(g.Seen, func(m Mark) bool { return g.late(m.Version, now) })
	g.Seen = append(g.Seen, Mark{agent, version})
}

func (g *Guard) refuse(agent, version, now int, v []float64, zero bool) (reason, detail string) {
	if len(v) != g.Length {
		return ReasonLength, fmt.Sprintf("%d numbers, want %d", len(v), g.Length)
	}
	if j := slices.IndexFunc(v, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }); j >= 0 {
		return ReasonFinite, fmt.Sprintf("number %d is %g, want a finite one", j, v[j])
	}
	switch norm := Norm(v); {
	case math.IsInf(norm, 0):
		return ReasonFinite, "its norm overflows, want a finite one"
	case norm == 0 && !zero:
		return ReasonNorm, "every number is 0, want a direction"
	}
	if version < 0 || version > now || g.late(version, now) {
		return ReasonVersion, fmt.Sprintf("version %d, want %d to %d", version, g.oldest(now), now)
	}
	if slices.Contains(g.Seen, Mark{agent, version}) {
		return ReasonDuplicate, fmt.Sprintf("agent %d has sent its update of version %d before", agent, version)
	}
	return "", ""
}

func (g *Guard) late(version, now int) bool { return version < g.oldest(now) }

func (g *Guard) oldest(now int) int {
	if g.MaxDelay == 0 {
		return 0
	}
	return max(0, now+1-g.MaxDelay)
}

func (g *Guard) bound() float64 {
	if g.Clip == 0 || len(g.Norms) < guardStart {
		return 0
	}
	return g.Clip * median(slices.Sorted(slices.Values(g.Norms)))
}
