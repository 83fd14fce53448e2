package model

import (
	"math"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/internal/backend"
)

// inBlocks is the batch with its slots in blocks of rows, and for each of the batch's slots that is no padding its new
// place.
func (p packed) inBlocks(n int) (q packed, place []int) {
	q, tokens, slots := p, len(p.ids)/n, 0
	own := make([][]int, n) // slots of every block
	for s, from := range p.source {
		if p.answer[s] >= 0 {
			b := int(from) / tokens
			own[b] = append(own[b], s)
			slots = max(slots, len(own[b])+1)
		}
	}
	q.blocks, place = n, make([]int, len(p.source))
	q.source, q.target, q.answer = make([]int32, n*slots), make([]int32, n*slots), slices.Repeat([]int32{-1}, n*slots)
	q.inverse = slices.Repeat([]int32{int32(slots)}, len(p.ids))
	for b := range own {
		for k, s := range own[b] {
			to := b*slots + k
			q.source[to], q.target[to], q.answer[to] = p.source[s]%int32(tokens), p.target[s], p.answer[s]
			q.inverse[p.source[s]], place[s] = int32(k), to
		}
	}
	return q, place
}

// Slots in blocks have the log-probs and gradients that they have otherwise, whatever else the graph does.
func TestSlotsInBlocks(t *testing.T) {
	prompt := []int32{5, 8, 6, 5, 7, 12, 7, 5, 9, 5}
	p := pack([]group{
		{prompt, [][]int32{{3, 30, 5, 3, 2}, {4, 31, 3, 4, 8, 4, 2}, {10, 2}}},
		{prompt[3:6], [][]int32{{5, 6, 5, 6, 2}, {6, 6, 2}}},
		{prompt[:2], [][]int32{{1, 2}, {2}}},
		{prompt[4:], [][]int32{{7, 2}}},
	}, true, 2)
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		for name, m := range variedModels(t) {
			for _, o := range []GraphOptions{{}, {HeadChunk: 3, Checkpoint: true}, {DType: dtypes.Float64, HeadChunk: 2}} {
				logps, grads := 5e-5, 2e-4
				if o.DType == dtypes.Float64 {
					logps, grads = 1e-6, 1e-6 // the test reads float32
				}
				counts := []int{2, 4}
				if e.Name != "go" { // programs are compiled for long
					if o.HeadChunk != 3 || name != "qwen3" {
						continue
					}
					counts = counts[:1]
				}
				want := gradientsOf(t, e, m, p, o, 1)[0]
				for _, n := range counts {
					blocked, place := p.inBlocks(n)
					got := gradientsOf(t, e, m, blocked, o, 1)[0]
					for s, a := range p.answer {
						if d := math.Abs(float64(got.logps[place[s]] - want.logps[s])); a >= 0 && d > logps {
							t.Errorf("%s %+v, %d blocks: slot %d: log-prob off by %.1e", name, o, n, s, d)
						}
					}
					sameStep(t, m, step{grads: got.grads}, want, 0, grads)
				}
			}
		}
	})
}
