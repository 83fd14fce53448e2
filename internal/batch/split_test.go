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
			l := Layout{Share: share, Pad: 1 + trial%9, Tokens: 128, Few: trial % 4}.Fit(groups)
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
					t.Fatalf("a microbatch holds %d groups: want %d at most", len(p.Members), l.Pad)
				}
				if p.Rows > max(answers, l.Tokens/p.Len) {
					t.Fatalf("found %d rows of %d tokens: want %d tokens at most, or one group", p.Rows, p.Len,
						l.Tokens)
				}
			}
			slices.Sort(seen)
			if !slices.Equal(seen, upTo(len(groups))) {
				t.Fatalf("the microbatches hold groups %v: want each of %d once", seen, len(groups))
			}
		}
	}
}

func TestSplitWithoutABudgetIsPack(t *testing.T) {
	groups := randomGroups(rand.New(rand.NewPCG(5, 6)), 9, 2)
	l := Layout{Share: true, Pad: 4}.Fit(groups)
	microbatches := Split(groups, l)
	if len(microbatches) != 3 {
		t.Fatalf("%d microbatches of 9 groups, 4 at once: want 3", len(microbatches))
	}
	for k, p := range microbatches {
		from, to := 4*k, min(4*k+4, 9)
		if fmt.Sprint(*p.Packed) != fmt.Sprint(*Pack(groups[from:to], l)) || !slices.Equal(p.Members,
			upTo(9)[from:to]) {
			t.Errorf("microbatch %d is not groups %d to %d as Pack lays them out", k, from, to)
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
		l := Layout{Share: share, Pad: 8, Tokens: 1024, Few: 6}.Fit(groups)
		shapes, fed, real := map[string]bool{}, 0, 0
		for at := 0; at < len(groups); at += 8 {
			for _, p := range Split(groups[at:at+8], l) {
				shapes[fmt.Sprint(p.Rows, p.Len, p.Slots)] = true
				fed, real = fed+p.Rows*p.Len, real+p.Count
			}
		}
		if padding := 1 - float64(real)/float64(fed); padding > 0.15 || len(shapes) > 6 {
			t.Errorf("share %v: %.0f%% padding, %d shapes: want at most 15%% and 6", share, 100*padding, len(shapes))
		}
	}
}

func TestSplitOfEqualPairsWastesNothing(t *testing.T) {
	groups := make([]Group, 8)
	for i := range groups {
		groups[i] = Group{Prompt: make([]int32, 64), Answers: [][]int32{make([]int32, 64), make([]int32, 64)}}
	}
	for _, p := range Split(groups, Layout{Share: true, Pad: 8, Tokens: 1024, Overhead: 64}.Fit(groups)) {
		if p.Rows != 4 || p.Len != 192 {
			t.Errorf("a microbatch of %d rows of %d tokens: want 4 of 192", p.Rows, p.Len)
		}
	}
}

// Where a layout has few shapes, all batches of a run keep to them.
func TestSplitKeepsToTheLayoutsShapes(t *testing.T) {
	for trial := range 12 {
		groups := skewedGroups(rand.New(rand.NewPCG(3, uint64(trial))), 400)
		share, most := trial%2 == 0, 2+trial%7
		l := Layout{Share: share, Pad: 1 + 3*(trial%3), Tokens: 2048, Few: most}.Fit(groups)
		if len(l.Shapes) > most {
			t.Fatalf("%d shapes: want %d at most: %v", len(l.Shapes), most, l.Shapes)
		}
		fed, real, seen := 0, 0, 0
		for at := 0; at < len(groups); at += 8 {
			for _, p := range Split(groups[at:at+8], l) {
				if !slices.Contains(l.Shapes, Shape{p.Rows, p.Len, p.Slots}) || p.Answers != 2*l.Pad {
					t.Fatalf("found %d rows × %d, %d slots, %d answers: want one of %v", p.Rows, p.Len, p.Slots,
						p.Answers, l.Shapes)
				}
				fed, real, seen = fed+p.Rows*p.Len, real+p.Count, seen+len(p.Members)
			}
		}
		if padding := 1 - float64(real)/float64(fed); seen != 400 || most == 8 && l.Pad > 1 && padding > 0.15 {
			t.Errorf("%d groups, %.0f%% padding in %v: want 400 and 15%% at most", seen, 100*padding, l.Shapes)
		}
	}
}

// A layout without a bound of groups in a microbatch can be fitted and split.
func TestSplitOfAnyNumberOfGroups(t *testing.T) {
	groups := randomGroups(rand.New(rand.NewPCG(5, 6)), 9, 2)
	seen := 0
	for _, p := range Split(groups, Layout{Share: true, Tokens: 128, Few: 4}.Fit(groups)) {
		seen += len(p.Members)
	}
	if seen != 9 {
		t.Errorf("%d groups in microbatches, want 9", seen)
	}
}

// A shape joins where it saves more than compiling for it costs.
func TestFewShapesPayForCompiling(t *testing.T) {
	groups, before := skewedGroups(rand.New(rand.NewPCG(3, 4)), 800), 9
	for _, compile := range []float64{0, 10000, 1e9} {
		l := Layout{Share: true, Pad: 8, Tokens: 1024, Few: 8, Compile: compile, Overhead: 64, Hidden: 512}.Fit(groups)
		if len(l.Shapes) >= before {
			t.Errorf("%d shapes where compiling costs %.0f tokens, want fewer than %d", len(l.Shapes), compile, before)
		}
		before = len(l.Shapes)
	}
	if before != 1 {
		t.Errorf("%d shapes where compiling costs more than all batches, want 1", before)
	}
}

// The shape for any group has slots for one that is nearly all answers, where the others have few.
func TestFewShapesHaveSlotsForAll(t *testing.T) {
	groups := make([]Group, 40)
	for i := range groups {
		groups[i] = Group{Prompt: make([]int32, 200), Answers: [][]int32{make([]int32, 10), make([]int32, 10)}}
	}
	groups[7] = Group{Prompt: make([]int32, 4), Answers: [][]int32{make([]int32, 120), make([]int32, 120)}}
	l := Layout{Share: true, Pad: 8, Tokens: 1024, Few: 3, Overhead: 64}.Fit(groups)
	for _, p := range Split(groups, l) {
		if s := (Shape{p.Rows, p.Len, p.Slots}); !slices.Contains(l.Shapes, s) {
			t.Errorf("a microbatch of shape %v: want one of %v", s, l.Shapes)
		}
	}
}

// A group that no shape of the layout holds gets one of its own.
func TestSplitOfALongerGroup(t *testing.T) {
	few := []Group{{Prompt: make([]int32, 20), Answers: [][]int32{make([]int32, 9), make([]int32, 30)}}}
	l := Layout{Pad: 2, Tokens: 256, Few: 4}.Fit(few)
	long := append(few, Group{Prompt: make([]int32, 50), Answers: [][]int32{make([]int32, 500), make([]int32, 2)}})
	seen := 0
	for _, p := range Split(long, l) {
		seen += len(p.Members)
	}
	if seen != 2 {
		t.Errorf("%d groups in microbatches, want 2", seen)
	}
}
