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
// taken for the error of order ε², of which the finer has a quarter. With c = Directional, Fisher's product H·v is the
// gradient of the mean of c·ℓ, c held fixed: one backward pass.
func Directional(logps LogProbs, first float64) ([]float64, error) {
	coarse, err := Slopes(logps, first)
	if err != nil {
		return nil, err
	}
	for range halvings {
		first /= 2
		fine, err := Slopes(logps, first)
		if err != nil {
			return nil, err
		}
		change := Difference(fine, coarse)
		if off := Norm(change); off <= agreement*Norm(fine) {
			return Ahead(fine, 1.0/3, change), nil
		} else if math.IsNaN(off) {
			return nil, errors.New("the derivatives along a direction are not finite")
		}
		coarse = fine
	}
	return coarse, nil
}
