package federated

import "math"

// The line search over all agents. The server sends y and s; each agent evaluates θ + s·0.8^j·y for j = 0 … 9 on the
// samples that it has; the server takes the first j that keeps the trust region and gains. Departure: the paper names
// "TRPO with line search" and no form. Numbers from SB3-contrib's TRPO.
const (
	Tries  = 10
	Shrink = 0.8
)

// SearchScales are s·0.8^j for j = 0 … 9.
func SearchScales(s float64) []float64 {
	out := make([]float64, Tries)
	for j := range out {
		out[j], s = s, s*Shrink
	}
	return out
}

// worst replaces a KL or a gain that is no finite number, which a message cannot hold.
const worst = 1e300

// Search is an agent's answer for θ + scale·direction, with the KL and the gain that at gives for parameters.
func Search(theta, direction, scales []float64, at func(params []float64) (kl, gain float64, err error)) (
	kls, gains []float64, err error) {
	for _, s := range scales {
		kl, gain, err := at(Ahead(theta, s, direction))
		if err != nil {
			return nil, nil, err
		}
		if !(kl <= worst && math.Abs(gain) <= worst) {
			kl, gain = worst, -worst
		}
		kls, gains = append(kls, kl), append(gains, gain)
	}
	return kls, gains, nil
}

// SearchTable has one agent's answers to a line search, each [Tries].
type SearchTable struct {
	KL   []float64 // mean KL(π_θ‖π)
	Gain []float64 // mean of ratio·A, less that at θ
}

// ChooseScale returns the first j with Σp_iKL ≤ δ and Σp_i·gain > 0, and these two means; -1: none, and the step is
// refused. weights has a number for each agent that answered; their sum need not be 1. NaN meets no condition.
func ChooseScale(weights []float64, tables []SearchTable, delta float64) (j int, kl, gain float64) {
	shares := Shares(weights)
	for j = range Tries {
		kl, gain = 0, 0
		for i, table := range tables {
			kl += shares[i] * table.KL[j]
			gain += shares[i] * table.Gain[j]
		}
		if kl <= delta && gain > 0 {
			return j, kl, gain
		}
	}
	return -1, 0, 0
}
