package federated

import (
	"errors"
	"fmt"
	"math"
	"slices"
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
	X          []float64 // [d]
	R, P       []float64 // [d] b − A·x, and the direction of the next product
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

// Scores solves with H + ρI exactly, where H = SᵀS/n is the mean of n outer products, S [n][d] with n much below d, as
// the scores ∇Σ_t log π of n sequences are. It needs one n×n matrix (Woodbury):
//
//	(SᵀS/n + ρI)⁻¹r = (r − Sᵀ(nρI + SSᵀ)⁻¹S·r)/ρ
//
// The rows may be float32 to halve their memory; all sums are float64.
type Scores[T float32 | float64] struct {
	rows  [][]T
	rho   float64
	lower [][]float64 // Cholesky factor of nρI + SSᵀ
}

// NewScores factors the matrix. It keeps the rows, each [d].
func NewScores[T float32 | float64](rows [][]T, rho float64) (*Scores[T], error) {
	if !(rho > 0) || len(rows) == 0 {
		return nil, fmt.Errorf("scores: found rho %g and %d rows, want rho above 0 and a row", rho, len(rows))
	}
	gram := make([][]float64, len(rows))
	for i := range rows {
		gram[i] = make([]float64, i+1)
		for j := range gram[i] {
			for k, x := range rows[i] {
				gram[i][j] += float64(x) * float64(rows[j][k])
			}
		}
		gram[i][i] += float64(len(rows)) * rho
	}
	if !factor(gram) {
		return nil, errors.New("scores: they are not finite")
	}
	return &Scores[T]{rows, rho, gram}, nil
}

// factor turns a lower triangle into its Cholesky factor, in place. It reports whether the matrix is positive definite.
func factor(a [][]float64) bool {
	for i := range a {
		for j := range i + 1 {
			sum := a[i][j] - Dot(a[i][:j], a[j][:j])
			if i > j {
				a[i][j] = sum / a[j][j]
			} else if !(sum > 0) || math.IsInf(sum, 0) {
				return false
			} else {
				a[i][i] = math.Sqrt(sum)
			}
		}
	}
	return true
}

// small solves (nρI + SSᵀ)·x = b, [n].
func (s *Scores[T]) small(b []float64) []float64 {
	x := slices.Clone(b)
	for i, row := range s.lower {
		x[i] = (x[i] - Dot(row[:i], x[:i])) / row[i]
	}
	for i := len(x) - 1; i >= 0; i-- {
		for k := i + 1; k < len(x); k++ {
			x[i] -= s.lower[k][i] * x[k]
		}
		x[i] /= s.lower[i][i]
	}
	return x
}

// times is S·v, [n].
func (s *Scores[T]) times(v []float64) []float64 {
	out := make([]float64, len(s.rows))
	for i, row := range s.rows {
		for k, x := range row {
			out[i] += float64(x) * v[k]
		}
	}
	return out
}

// transposed is Sᵀw, [d].
func (s *Scores[T]) transposed(w []float64) []float64 {
	out := make([]float64, len(s.rows[0]))
	for i, row := range s.rows {
		for k, x := range row {
			out[k] += w[i] * float64(x)
		}
	}
	return out
}

// Product is H·v = Sᵀ(S·v)/n.
func (s *Scores[T]) Product(v []float64) ([]float64, error) {
	return Scaled(1/float64(len(s.rows)), s.transposed(s.times(v))), nil
}

// Solve is (H + ρI)⁻¹r.
func (s *Scores[T]) Solve(r []float64) []float64 {
	return Scaled(1/s.rho, Difference(r, s.transposed(s.small(s.times(r)))))
}

// Natural is the natural gradient Sᵀ(nρI + SSᵀ)⁻¹A for the advantages A, [n]: (H + ρI)⁻¹g with g = SᵀA/n.
func (s *Scores[T]) Natural(advantages []float64) []float64 {
	return s.transposed(s.small(advantages))
}
