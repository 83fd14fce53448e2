package federated

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// Product returns H·v for v, [d]. It does not change v.
type Product func(v []float64) ([]float64, error)

// CG says how conjugate gradient runs. The papers give no numbers; these of SB3-contrib's TRPO are the usual ones:
// 15 iterations, tolerance 1e-10.
type CG struct {
	Iterations int
	Tolerance  float64 // relative: ‖r‖ ≤ Tolerance·‖b‖
}

// Why conjugate gradient ended.
const (
	Converged  = "converged"  // ‖r‖ ≤ tolerance·‖b‖
	Exhausted  = "iterations" // the iterations are used up
	Indefinite = "indefinite" // pᵀAp ≤ 0, or not finite: A is not positive definite along p
)

// Solution is how far conjugate gradient has come. Where each product is a round over the network, its owner calls
// [CG.Start] and then [CG.Step] with A·P until Why says that it has ended; [CG.Solve] does so at once.
type Solution struct {
	X          []float64 `json:"-"` // [d]
	R, P       []float64 `json:"-"` // [d] b − A·x, and the direction of the next product
	Square     float64   // ‖R‖², by recursion
	Iterations int
	Enough     float64 // ‖R‖ that ends it
	Why        string  // "": it has not ended
}

// Solve finds x with A·x = b by conjugate gradient from start. Where pᵀAp ≤ 0 it returns what it has.
func (c CG) Solve(a Product, b, start []float64) (Solution, error) {
	product, err := a(start)
	if err != nil {
		return Solution{}, err
	}
	s := c.Start(b, start, product)
	for s.Why == "" {
		if product, err = a(s.P); err != nil {
			return s, err
		}
		s = c.Step(s, product)
	}
	return s, nil
}

// Start begins at start, with product = A·start.
func (c CG) Start(b, start, product []float64) Solution {
	r := Difference(b, product)
	s := Solution{X: slices.Clone(start), R: r, P: r, Square: Dot(r, r), Enough: c.Tolerance * Norm(b)}
	return c.judge(s)
}

// Step is an iteration, with product = A·s.P. It writes to no slice of s.
func (c CG) Step(s Solution, product []float64) Solution {
	curvature := Dot(s.P, product)
	if !(curvature > 0) || math.IsInf(curvature, 0) {
		s.Why = Indefinite
		return s
	}
	s.Iterations++
	along, before := s.Square/curvature, s.Square
	s.X, s.R = Ahead(s.X, along, s.P), Ahead(s.R, -along, product)
	s.Square = Dot(s.R, s.R)
	s.P = Ahead(s.R, s.Square/before, s.P)
	return c.judge(s)
}

func (c CG) judge(s Solution) Solution {
	if math.IsNaN(s.Square) || math.IsInf(s.Square, 0) || math.IsInf(s.Enough, 0) { // nothing that a snapshot could hold
		s.Square, s.Enough, s.Why = 0, 0, Indefinite
		return s
	}
	if math.Sqrt(s.Square) <= s.Enough {
		s.Why = Converged
	} else if s.Iterations >= c.Iterations {
		s.Why = Exhausted
	}
	return s
}

// Damped returns v ↦ H·v + ρ·v.
func Damped(h Product, rho float64) Product {
	return func(v []float64) ([]float64, error) {
		product, err := h(v)
		if err != nil {
			return nil, err
		}
		return Ahead(product, rho, v), nil
	}
}

// Scores are the rows of S, [n][d], of a matrix H = SᵀS/n, with n much below d: the scores ∇Σ_t log π of n sequences.
// The rows may be float32 to halve their memory; all sums are float64.
type Scores[T float32 | float64] [][]T

// Inverse returns r ↦ (H + ρI)⁻¹r, exactly. It needs one n×n matrix (Woodbury):
//
//	(SᵀS/n + ρI)⁻¹r = (r − Sᵀ(nρI + SSᵀ)⁻¹S·r)/ρ
func (s Scores[T]) Inverse(rho float64) (Product, error) {
	if !(rho > 0) || len(s) == 0 {
		return nil, fmt.Errorf("scores: found rho %g and %d rows, want rho above 0 and a row", rho, len(s))
	}
	gram, factors := mat.NewSymDense(len(s), nil), new(mat.Cholesky)
	for i, row := range s {
		for j := range i + 1 {
			sum := 0.0
			for k, x := range row {
				sum += float64(x) * float64(s[j][k])
			}
			gram.SetSym(i, j, sum)
		}
		gram.SetSym(i, i, gram.At(i, i)+float64(len(s))*rho)
	}
	if !factors.Factorize(gram) || math.IsInf(factors.LogDet(), 0) {
		return nil, errors.New("scores: they are not finite")
	}
	return func(r []float64) ([]float64, error) {
		x := mat.NewVecDense(len(s), s.times(r))
		err := factors.SolveVecTo(x, x)
		return Scaled(1/rho, Difference(r, s.Weighted(x.RawVector().Data))), err
	}, nil
}

// times is S·v, [n].
func (s Scores[T]) times(v []float64) []float64 {
	out := make([]float64, len(s))
	for i, row := range s {
		for k, x := range row {
			out[i] += float64(x) * v[k]
		}
	}
	return out
}

// Weighted is Sᵀw, [d], w a weight of each row, [n]: with the advantages over n it is the gradient.
func (s Scores[T]) Weighted(w []float64) []float64 {
	out := make([]float64, len(s[0]))
	for i, row := range s {
		for k, x := range row {
			out[k] += w[i] * float64(x)
		}
	}
	return out
}

// Product is H·v = Sᵀ(S·v)/n.
func (s Scores[T]) Product(v []float64) ([]float64, error) {
	return Scaled(1/float64(len(s)), s.Weighted(s.times(v))), nil
}
