package federated

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Privacy is client-level differential privacy: what is published hardly depends on whether one agent takes part. Each
// agent shortens its vector to a norm and adds its share of Gaussian noise, so that the sum has the wanted noise and no
// single party knows it.
type Privacy struct {
	Clip  float64 `yaml:"clip" want:">=0" zero:"off" help:"each agent shortens its vectors to this norm; 0: off"`
	Noise float64 `yaml:"noise" want:">=0" zero:"off" help:"deviation of the sum's Gaussian noise, in units of privacy.clip; 0: none"`
	Delta float64 `yaml:"delta" want:">0 <1" default:"1e-5" help:"δ of (ε, δ), for which ε is computed"`
}

// Protect shortens v to the norm Clip and adds this agent's share of the noise, a standard deviation of
// Noise·Clip/sqrt(agents) in each number, so that the sum of all agents has Noise·Clip. It returns a new vector.
func (p Privacy) Protect(v []float64, agents int, noise *rand.Rand) []float64 {
	scale := 1.0
	if norm := Norm(v); norm > p.Clip {
		scale = p.Clip / norm
	}
	out, share := Scaled(scale, v), p.Noise*p.Clip/math.Sqrt(float64(agents))
	for j := range out {
		out[j] += share * noise.NormFloat64()
	}
	return out
}

// NoiseSource is an agent's generator of noise for one sum: ChaCha8, which nobody predicts without the agent's secret. Its
// seed has the facts of the sum, so an agent that was killed draws the same noise again, and another attempt other
// noise.
func NoiseSource(secret []byte, s Sum) (*rand.Rand, error) {
	seed, err := derive(secret, "noise", s.Run, s.Kind, s.Round, s.Step, s.Attempt, s.Present, s.Keys)
	if err != nil {
		return nil, err
	}
	return rand.New(rand.NewChaCha8([32]byte(seed))), nil
}

// Account adds up what the sums of a run reveal. A sum of vectors of norm C with Gaussian noise of deviation zC is
// ρ-zCDP for one agent with ρ = 1/(2z²) (Bun and Steinke, arXiv 1605.02065, proposition 1.6), and the ρ of several sums
// add up (lemma 1.7). No gain is claimed for rounds that an agent is not selected for.
type Account struct {
	Sums         int // vectors summed and shown to the server
	Noise, Delta float64
}

// Rho is the zCDP of all sums.
func (a Account) Rho() float64 { return float64(a.Sums) / (2 * a.Noise * a.Noise) }

// Epsilon is ε of (ε, δ): ρ + 2·sqrt(ρ·ln(1/δ)) (proposition 1.3).
func (a Account) Epsilon() float64 {
	rho := a.Rho()
	return rho + 2*math.Sqrt(rho*math.Log(1/a.Delta))
}

// String is the account in a line.
func (a Account) String() string {
	return fmt.Sprintf("privacy of an agent: ε = %.4g at δ = %g (ρ = %.4g, %d sums)", a.Epsilon(), a.Delta, a.Rho(),
		a.Sums)
}
