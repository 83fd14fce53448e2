package batch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSplitHoldsEveryGroupOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for trial := range 40 {
		answers := 1 + trial%4
		groups := randomGroups(r, 1+r.IntN(30), answers)
		for _, share := range []bool{false, true} {
			l := Layout{Share: share, Pad: 1 + trial%9, Tokens: 128}.Fit(groups)
			var seen []int
			for _, p := range Split(groups, l) {
				seen = append(seen, p.Members...)
				members := make([]Group, len(p.Members))
				for k, i := range p.Members {
					members[k] = groups[i]
				}
				checkSlots(t, p.Packed, members)
				checkShape(t, p.Packed, l.Pad*answers)
				if len(p.Members) > l.Pad {
					t.Fatalf("a part holds %d groups: want %d at most", len(p.Members), l.Pad)
				}
				if p.Rows > max(answers, l.Tokens/p.Len) {
					t.Fatalf("a part has %d rows of %d tokens: want %d tokens at most, or one group", p.Rows, p.Len,
						l.Tokens)
				}
			}
			slices.Sort(seen)
			if !slices.Equal(seen, upTo(len(groups))) {
				t.Fatalf("the parts hold groups %v: want each of %d once", seen, len(groups))
			}
		}
	}
}

func TestSplitWithoutABudgetIsPack(t *testing.T) {
	groups := randomGroups(rand.New(rand.NewPCG(5, 6)), 9, 2)
	l := Layout{Share: true, Pad: 4}.Fit(groups)
	parts := Split(groups, l)
	if len(parts) != 3 {
		t.Fatalf("%d parts of 9 groups, 4 at once: want 3", len(parts))
	}
	for k, p := range parts {
		from, to := 4*k, min(4*k+4, 9)
		if fmt.Sprint(*p.Packed) != fmt.Sprint(*Pack(groups[from:to], l)) || !slices.Equal(p.Members,
			upTo(9)[from:to]) {
			t.Errorf("part %d is not groups %d to %d as Pack lays them out", k, from, to)
		}
	}
}

// skewedGroups makes pairs of the lengths of real preference data: many short ones, some ten times as long.
func skewedGroups(r *rand.Rand, n int) []Group {
	ids := func(mean float64) []int32 { return make([]int32, 1+int(min(8*mean, r.ExpFloat64()*mean))) }
	groups := make([]Group, n)
	for i := range groups {
		groups[i] = Group{Prompt: ids(130), Answers: [][]int32{ids(50), ids(50)}}
	}
	return groups
}

func TestSplitNeedsFewShapesAndLittlePadding(t *testing.T) {
	groups := skewedGroups(rand.New(rand.NewPCG(3, 4)), 2400)
	for _, share := range []bool{false, true} {
		l := Layout{Share: share, Pad: 8, Tokens: 1024}.Fit(groups)
		shapes, fed, real := map[string]bool{}, 0, 0
		for at := 0; at < len(groups); at += 8 {
			for _, p := range Split(groups[at:at+8], l) {
				shapes[fmt.Sprint(p.Rows, p.Len, p.Slots)] = true
				fed, real = fed+p.Rows*p.Len, real+p.Count
			}
		}
		if padding := 1 - float64(real)/float64(fed); padding > 0.2 || len(shapes) > 12 {
			t.Errorf("share %v: %.0f%% padding, %d shapes: want at most 20%% and 12", share, 100*padding, len(shapes))
		}
	}
}

func TestSplitOfEqualPairsWastesNothing(t *testing.T) {
	groups := make([]Group, 8)
	for i := range groups {
		groups[i] = Group{Prompt: make([]int32, 64), Answers: [][]int32{make([]int32, 64), make([]int32, 64)}}
	}
	for _, p := range Split(groups, Layout{Share: true, Pad: 8, Tokens: 1024}.Fit(groups)) {
		if p.Rows != 4 || p.Len != 192 {
			t.Errorf("a part of %d rows of %d tokens: want 4 of 192", p.Rows, p.Len)
		}
	}
}
