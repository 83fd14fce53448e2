package batch

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// allLayouts lays groups out by Pack, Split, Split in few shapes, and PackGroups, in blocks.
func allLayouts(groups []Group, share bool, blocks, tokens int) (all []*Packed, members [][]Group) {
	add := func(p *Packed, groups []Group) { all, members = append(all, p), append(members, groups) }
	add(Pack(groups, Layout{Share: share, Pad: len(groups), Blocks: blocks}), groups)
	times := max(1, blocks)
	for _, few := range []int{0, 6} {
		l := Layout{Share: share, Pad: 8 * times, Tokens: tokens * times, Few: few, Blocks: blocks}.Fit(groups)
		for _, p := range Split(groups, l) {
			m := make([]Group, len(p.Members))
			for k, i := range p.Members {
				m[k] = groups[i]
			}
			add(p.Packed, m)
		}
	}
	s := GroupLayout{Short: 96, Tokens: tokens * times, Apart: !share, Blocks: blocks}
	few := s.Few(4, []int{1, 40}, 30, 8, 16)
	few.Short = 0
	for _, s := range []GroupLayout{s, few.Fit(groups, 16)} {
		for _, p := range PackGroups(groups, s) {
			add(p.Packed, p.groups(groups))
		}
	}
	return all, members
}

// A slot is in the block of its row, whoever makes the layout, and its indices are local to the block.
func TestBlocksHoldTheirOwnSlots(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for trial := range 8 {
		groups, blocks := randomGroups(r, 1+r.IntN(24), 1+trial%4), 2+trial%3
		all, members := allLayouts(groups, trial%2 == 0, blocks, 256)
		for i, p := range all {
			if p.Blocks != blocks {
				t.Fatalf("a microbatch of %d blocks: want %d", p.Blocks, blocks)
			}
			checkSlots(t, p, members[i])
		}
	}
}

func TestOneBlockIsTheUsualLayout(t *testing.T) {
	groups := randomGroups(rand.New(rand.NewPCG(13, 14)), 30, 2)
	zero, _ := allLayouts(groups, true, 0, 256)
	one, _ := allLayouts(groups, true, 1, 256)
	for i := range one {
		if fmt.Sprint(*zero[i]) != fmt.Sprint(*one[i]) {
			t.Fatalf("layout %d of one block differs from that of none", i)
		}
	}
}

// Batches that grow with the blocks are fed with hardly more padding than batches of one block.
func TestBlocksCostLittlePadding(t *testing.T) {
	groups := skewedGroups(rand.New(rand.NewPCG(3, 4)), 960)
	for _, few := range []int{2, 8} {
		var alone [2]float64
		for _, blocks := range []int{1, 2, 4, 8} {
			l := Layout{Share: true, Pad: 8 * blocks, Tokens: 1024 * blocks, Few: few, Blocks: blocks}.Fit(groups)
			fed, real, slots, predicted := 0, 0, 0, 0
			for at := 0; at < len(groups); at += 8 * blocks {
				for _, p := range Split(groups[at:at+8*blocks], l) {
					fed, real, slots = fed+p.Rows*p.Len, real+p.Count, slots+p.Slots
					for _, n := range p.Lengths {
						predicted += int(n)
					}
				}
			}
			padding := [2]float64{1 - float64(real)/float64(fed), 1 - float64(predicted)/float64(slots)}
			t.Logf("%d blocks, few %d: %.1f%% of tokens and %.1f%% of slots are padding", blocks, few,
				100*padding[0], 100*padding[1])
			if blocks == 1 {
				alone = padding
			} else if padding[0] > alone[0]+0.1 || padding[1] > alone[1]+0.1 {
				t.Errorf("%d blocks: %.2f padding of tokens and slots: want at most 0.1 more than the %.2f of one",
					blocks, padding, alone)
			}
		}
	}
}
