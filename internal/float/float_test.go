package float

import (
	"math"
	"testing"
)

func TestExp(t *testing.T) {
	for _, x := range []float64{0, 1, -1, 0.5, -745.2, 709.8, 1e-300, math.Inf(1), math.Inf(-1)} {
		if got, want := Exp(x), math.Exp(x); got != want {
			t.Errorf("Exp(%v) is %v, want %v", x, got, want)
		}
	}
	if !math.IsNaN(Exp(math.NaN())) {
		t.Error("Exp(NaN) is a number")
	}
}

var sink float64

func BenchmarkExp(b *testing.B) {
	for _, f := range []struct {
		name string
		exp  func(float64) float64
	}{{"math", math.Exp}, {"float", Exp}} {
		b.Run(f.name, func(b *testing.B) {
			for i := range b.N {
				sink += f.exp(float64(i&1023) * -0.01)
			}
		})
	}
}

func TestIsFinite(t *testing.T) {
	for x, want := range map[float64]bool{0: true, -math.MaxFloat64: true, math.Inf(1): false, math.Inf(-1): false} {
		if IsFinite(x) != want {
			t.Errorf("IsFinite(%v) is %v", x, !want)
		}
	}
	if IsFinite(math.NaN()) {
		t.Error("NaN is finite")
	}
}
