package main

import (
	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/model"
)

// flops counts the floating-point operations that a step on a packed batch needs: those of the products of matrices,
// forward and twice that for backward. Attention counts the half of the scores that are not masked; the head, and what
// follows attention in the last layer, count for the positions that predict something only.
//
// peer_gpu.py counts its own side in the same way, with the head on all positions, which it does compute.
func flops(c *model.Config, p *batch.Packed) float64 {
	tokens, slots := float64(p.Rows*p.Len), float64(p.Slots)
	heads, width := float64(c.Heads*c.HeadDim), float64(c.HiddenSize)
	before := width * float64((c.Heads+2*c.KVHeads)*c.HeadDim) // q, k, v
	after := width*heads + 3*width*float64(c.IntermediateSize) // o, gate, up, down
	scores := 2 * heads * float64(p.Len) / 2 * tokens          // q k' and p v, half of each masked
	layers := float64(c.Layers)*(before*tokens+scores) + after*(float64(c.Layers-1)*tokens+slots)
	return 6 * (layers + width*float64(c.VocabSize)*slots)
}
