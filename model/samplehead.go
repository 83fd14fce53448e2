package model

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
)

// SampleBlock is how many neighbouring tokens of the vocabulary one block holds.
const SampleBlock = 64

// SampleBlocks is the number of blocks of the vocabulary; the last one may be short.
func (c *Config) SampleBlocks() int { return (c.VocabSize + SampleBlock - 1) / SampleBlock }

// SampleHead is what a token is drawn from, for B rows, all float32: whoever draws searches the blocks' sums first, and
// then one block of the logits, so that no row of the vocabulary is read whole.
type SampleHead struct {
	Logits      *Node // [B, V]
	BlockSums   *Node // [B, SampleBlocks], of exp((z - the row's maximum) * inverse temperature)
	BlockMaxima *Node // [B, SampleBlocks], of z
	LogSumExp   *Node // [B], at temperature 1: log p(token) = its logit - this
}

// nodes are the outputs in the order of their declaration.
func (h SampleHead) nodes() []*Node {
	return []*Node{h.Logits, h.BlockSums, h.BlockMaxima, h.LogSumExp}
}

// sampleHead builds the head for hidden states x [B, H] by the table [V, H]; inverse [B, 1] is 1/temperature.
func (c *Config) sampleHead(x, table, inverse *Node) SampleHead {
	z := ConvertDType(c.rowLogits(x, table), dtypes.Float32)
	blocks := c.blocks(z)
	maxima := ReduceMax(blocks, -1)
	top := ReduceAndKeep(maxima, ReduceMax, -1)
	below := Sub(blocks, Reshape(top, -1, 1, 1))
	sums := ReduceSum(Exp(Mul(below, Reshape(inverse, -1, 1, 1))), -1)
	total := ReduceAndKeep(ReduceSum(Exp(below), -1), ReduceSum, -1)
	return SampleHead{Logits: z, BlockSums: sums, BlockMaxima: maxima, LogSumExp: Reshape(Add(Log(total), top), -1)}
}

// rowLogits is logits for a few rows or many.
func (c *Config) rowLogits(x, table *Node) *Node {
	if !swapsOperands(x.Shape().Dim(0)) {
		return logits(x, table)
	}
	return Transpose(dot(ConvertDType(table, x.DType()), 1, x, 1, 0, wideType(x.DType())), 0, 1)
}

// blocks is z [B, V] as [B, SampleBlocks, SampleBlock], filled up with what is never drawn.
func (c *Config) blocks(z *Node) *Node {
	if missing := c.SampleBlocks()*SampleBlock - c.VocabSize; missing > 0 {
		never := MulScalar(Ones(z.Graph(), shapes.Make(z.DType(), z.Shape().Dim(0), missing)), hidden)
		z = Concatenate([]*Node{z, never}, -1)
	}
	return Reshape(z, -1, c.SampleBlocks(), SampleBlock)
}
