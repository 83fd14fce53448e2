package federated

import (
	"errors"
	"math"
)

// LogProbs are the log-probs of some samples under θ + scale·v, for a direction v that it knows.
type LogProbs func(scale float64) ([]float64, error)

// Slopes are the derivatives of log-probs along v by central differences, (ℓ(θ+εv) − ℓ(θ−εv))/(2ε): two forward passes.
func Slopes(logps LogProbs, eps float64) ([]float64, error) {
	up, err := logps(eps)
	if err != nil {
		return nil, err
	}
	down, err := logps(-eps)
	if err != nil {
		return nil, err
	}
	return Scaled(1/(2*eps), Difference(up, down)), nil
}

// agreement is how far two results may differ, relative to their length; halvings bounds the tries.
const (
	agreement = 0.01
	halvings  = 12
)

// Directional is [Slopes] without a given ε: first is halved until two results agree to 1 %, and what they differ by is
// taken for the error of order ε², of which the finer has a quarter. Where rounding lets no two agree, the pair that
// comes closest counts. With c = Directional, Fisher's product H·v is the gradient of the mean of c·ℓ, c held fixed: one
// backward pass.
func Directional(logps LogProbs, first float64) ([]float64, error) {
	coarse, err := Slopes(logps, first)
	if err != nil {
		return nil, err
	}
	best, least := coarse, math.Inf(1)
	for range halvings {
		first /= 2
		fine, err := Slopes(logps, first)
		if err != nil {
			return nil, err
		}
		change, length := Difference(fine, coarse), Norm(fine)
		if off := Norm(change); math.IsNaN(off) || math.IsInf(off, 0) {
			return nil, errors.New("the derivatives along a direction are not finite")
		} else if length == 0 { // nothing moves, or so little that rounding hides it
			return best, nil
		} else if off/length < least {
			best, least = Ahead(fine, 1.0/3, change), off/length
		}
		if least <= agreement {
			return best, nil
		}
		coarse = fine
	}
	return best, nil
}
