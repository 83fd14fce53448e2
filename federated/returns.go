package federated

import "math"

// A trajectory has the rewards r_0 … r_{T−1}. Each function returns one number for each time step, [T], that weights
// ∇log π(a_t|s_t) in the policy gradient.

// Letter is Σ_{h≥t} γ^h·r_h, discounted from the trajectory's start, as in AFedPG's definition of g.
func Letter(rewards []float64, gamma float64) []float64 {
	out := Causal(rewards, gamma)
	for t := range out {
		out[t] *= math.Pow(gamma, float64(t))
	}
	return out
}

// Causal is Σ_{h≥t} γ^(h−t)·r_h, discounted from the time step.
func Causal(rewards []float64, gamma float64) []float64 {
	out, sum := make([]float64, len(rewards)), 0.0
	for t := len(rewards) - 1; t >= 0; t-- {
		sum = rewards[t] + gamma*sum
		out[t] = sum
	}
	return out
}

// GAE is generalised advantage estimation (arXiv 1506.02438): A_t = Σ_{h≥t} (γλ)^(h−t)·(r_h + γV_{h+1} − V_h). Both
// papers' experiments use it with λ = 0.95. values has V_0 … V_{T−1}, and last is V_T: the value of the state after the
// last step where the trajectory was cut there, 0 where it ended.
func GAE(rewards, values []float64, last, gamma, lambda float64) []float64 {
	out, sum := make([]float64, len(rewards)), 0.0
	for t := len(rewards) - 1; t >= 0; t-- {
		sum = rewards[t] + gamma*last - values[t] + gamma*lambda*sum
		out[t], last = sum, values[t]
	}
	return out
}
