package train

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// mixOf has sources of these sizes.
func mixOf(weights []float64, sizes ...int) (m Mix) {
	m.Weights = weights
	for k, n := range sizes {
		m.Part = append(m.Part, slices.Repeat([]int{k}, n)...)
	}
	return m
}

// TestShares: n·w/Σw draws, whole numbers by the largest remainders.
func TestShares(t *testing.T) {
	for _, c := range []struct {
		weights     []float64
		sizes, want []int
	}{
		{[]float64{3, 1}, []int{200, 200}, []int{300, 100}},
		{[]float64{0.75, 0.25}, []int{200, 200}, []int{300, 100}},
		{[]float64{1, 1, 1}, []int{5, 1, 1}, []int{3, 2, 2}}, // 2⅓ each: the first gets what is left
		{[]float64{1, 2, 4}, []int{4, 4, 2}, []int{1, 3, 6}}, // 1.43, 2.86 and 5.71
		{[]float64{1e-9, 1}, []int{5, 5}, []int{0, 10}},
		{[]float64{1e308, 1e308}, []int{3, 3}, []int{3, 3}},
	} {
		m := mixOf(c.weights, c.sizes...)
		if got := m.Shares(); !slices.Equal(got, c.want) {
			t.Errorf("%v of %v: %v, want %v", c.weights, c.sizes, got, c.want)
		}
	}
}

// TestMixInTurn has an order to check by hand: examples 0 and 1 have four draws of six, at 1/8, 3/8, 5/8 and 7/8 of the
// epoch; 2 to 5 have two, at 1/4 and 3/4, and continue in the next epoch.
func TestMixInTurn(t *testing.T) {
	m := mixOf([]float64{2, 1}, 2, 4)
	for epoch, want := range [][]int{{0, 2, 1, 0, 3, 1}, {0, 4, 1, 0, 5, 1}, {0, 2, 1, 0, 3, 1}} {
		if got := m.Order(6, 7, epoch, false); !slices.Equal(got, want) {
			t.Errorf("epoch %d: %v, want %v", epoch, got, want)
		}
	}
}

// TestMixInChance: shuffled epochs have the shares, differ, and no example of a source is drawn again before all others
// of it were drawn as often.
func TestMixInChance(t *testing.T) {
	m, counts := mixOf([]float64{1, 3}, 12, 4), make([]int, 16)
	var before []int
	for epoch := range 9 {
		order := m.Order(16, 5, epoch, true)
		first := 0
		for _, i := range order {
			counts[i]++
			if i < 12 {
				first++
			}
		}
		if first != 4 || len(order) != 16 || slices.Equal(order, before) {
			t.Errorf("epoch %d has %d of the first source: %v", epoch, first, order)
		}
		before = order
		for _, part := range [][]int{counts[:12], counts[12:]} {
			if slices.Max(part)-slices.Min(part) > 1 {
				t.Errorf("after epoch %d: %v", epoch, part)
			}
		}
	}
	if again := m.Order(16, 5, 8, true); !slices.Equal(again, before) {
		t.Error("the same seed and epoch gave another order")
	}
	if other := m.Order(16, 6, 8, true); slices.Equal(other, before) {
		t.Error("another seed gave the same order")
	}
}

// TestNoMix: without weights the order is that of one source, bit for bit.
func TestNoMix(t *testing.T) {
	for _, shuffle := range []bool{false, true} {
		if got := mixOf(nil, 3, 4).Order(7, 9, 2, shuffle); !slices.Equal(got, Order(7, 9, 2, shuffle)) {
			t.Error(shuffle, got)
		}
	}
}

func TestMixErr(t *testing.T) {
	for _, c := range []struct {
		mix  Mix
		want string
	}{
		{mixOf([]float64{1, 2}, 3, 1), ""},
		{Mix{}, ""},
		{mixOf([]float64{1, 2}, 4), "source 2 of a mix has 0 examples"},
		{mixOf([]float64{1, math.NaN()}, 3, 1), "weight NaN"},
		{mixOf([]float64{0, 1}, 3, 1), "weight 0"},
		{mixOf([]float64{1, 2}, 3, 2), "a mix of 5 examples: want 4"},
	} {
		if err := c.mix.Err(4); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.mix, err, c.want)
		}
	}
}
