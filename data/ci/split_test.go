package ci

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSplitCIOfTheRelease(t *testing.T) {
	for seed := range uint64(20) {
		if train, validation, test := Split(729, 0.09, 0.10, seed); len(train) != 590 || len(validation) != 66 ||
			len(test) != 73 {
			t.Errorf("seed %d: %d/%d/%d, want 590/66/73", seed, len(train), len(validation), len(test))
		}
	}
}

// Whatever the sizes: every index once, ascending, the same again, no wanted part empty where there are items enough.
func TestSplitCIProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		n, validation, test, seed := rng.IntN(60), rng.Float64()*0.5, rng.Float64()*0.5, rng.Uint64()
		train, v, te := Split(n, validation, test, seed)
		all := slices.Sorted(slices.Values(slices.Concat(train, v, te)))
		for i := range all {
			if all[i] != i {
				t.Fatalf("n %d, %v, %v: %v", n, validation, test, all)
			}
		}
		if len(all) != n || !slices.IsSorted(train) || !slices.IsSorted(v) || !slices.IsSorted(te) {
			t.Fatalf("n %d, %v, %v: %v | %v | %v", n, validation, test, train, v, te)
		}
		if n >= 3 && (len(train) == 0 || len(v) == 0 || len(te) == 0) {
			t.Fatalf("n %d, %v, %v: %v | %v | %v", n, validation, test, train, v, te)
		}
		again, _, _ := Split(n, validation, test, seed)
		if !slices.Equal(train, again) {
			t.Fatal("not the same again")
		}
	}
}

func TestSplitCICorners(t *testing.T) {
	for _, c := range []struct {
		n                int
		validation, test float64
		want             [3]int
	}{
		{0, 0.1, 0.1, [3]int{}}, {-3, 0.1, 0.1, [3]int{}}, {1, 0.1, 0.1, [3]int{1, 0, 0}},
		{2, 0.1, 0.1, [3]int{1, 1, 0}},
		{10, 0, 0, [3]int{10, 0, 0}}, {10, 0, 1, [3]int{0, 0, 10}}, {10, 0.5, 0.5, [3]int{0, 5, 5}},
		{10, 1, 1, [3]int{0, 5, 5}},
		{10, 0, 0.25, [3]int{7, 0, 3}}, {4, 0.49, 0.5, [3]int{1, 2, 1}},
	} {
		train, v, te := Split(c.n, c.validation, c.test, 3)
		if got := [3]int{len(train), len(v), len(te)}; got != c.want {
			t.Errorf("SplitCI(%d, %v, %v): %v, want %v", c.n, c.validation, c.test, got, c.want)
		}
	}
	// Fixed for good: a run that is resumed elsewhere must test on the same items.
	_, v, te := Split(20, 0.1, 0.15, 1)
	if !slices.Equal(v, splitOf20[0]) || !slices.Equal(te, splitOf20[1]) {
		t.Errorf("SplitCI(20, 0.1, 0.15, 1): %v, %v", v, te)
	}
	if _, other, _ := Split(20, 0.1, 0.15, 2); slices.Equal(v, other) {
		t.Error("the seed does not matter")
	}
}

var splitOf20 = [2][]int{{6, 10}, {5, 8, 16}}

// Fixed for good: a run that is resumed elsewhere, or measured later, must see the same prompts.
func TestOrder(t *testing.T) {
	want := map[Part]uint64{Train: 0xfca7bac57f93ee6c, Validation: 0x69d0ec9a0a919f28, Test: 0x7a563902b05b92b0}
	for part, order := range want {
		if got := Order(7, part, 5); got != order {
			t.Errorf("Order(7, %d, 5) is %#x, want %#x", part, got, order)
		}
	}
}
