package model

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
)

// headBytes limits the logits that exist at once, in float32.
const headBytes = 64 << 20

// Logits builds the float32 logits [S, V] of the token after each source position.
func (c *Config) Logits(params []*Node, in Inputs, o GraphOptions) *Node {
	z, _ := c.capOfLogits().apply(logits(c.Hidden(params, in, o), params[c.HeadTable()]))
	return z
}

// LogProbs builds log p(target) [S] in float32: the target's logit minus the log-sum-exp of all logits.
func (c *Config) LogProbs(params []*Node, in Inputs, o GraphOptions) *Node {
	x := c.Hidden(params, in, o)
	table := params[c.HeadTable()]
	rows := in.TargetRows
	if rows == nil {
		rows = Gather(table, Reshape(in.Target, -1, 1))
	}
	blocks := max(1, in.Blocks)
	h := head{table: table, blocks: blocks, chunk: c.headChunk(x.Shape().Dim(0)/blocks, o), frozen: c.LoRA != nil,
		cap: c.capOfLogits()}
	own, _ := h.cap.apply(rowDot(x, rows))
	return Sub(own, h.logSumExp(x))
}

// Scores builds a reward model's scores [S] in float32, each of the text that ends at a source position.
func (c *Config) Scores(params []*Node, in Inputs, o GraphOptions) *Node {
	x := c.Hidden(params, in, o)
	if c.Head != nil {
		return c.Head.scores(x, c.headParams(params))
	}
	at := c.HeadTable()
	if c.trainsScore() { // it is behind the scales, see Held
		at += c.Layers * c.quantizedOfLayer()
	}
	return rowDot(x, params[at])
}

// headChunk is the number of slots of a block whose logits exist at once.
func (c *Config) headChunk(slots int, o GraphOptions) int {
	if o.HeadChunk > 0 {
		return min(o.HeadChunk, slots)
	}
	most := max(o.Room, headBytes) / 4
	pieces := (slots*c.VocabSize + most - 1) / most
	return max(1, (slots+pieces-1)/pieces)
}

// head computes log-sum-exps of logits in chunks.
type head struct {
	table  *Node // [V, H]
	blocks int   // of the slots
	chunk  int   // slots of each block whose logits exist at once
	frozen bool  // the table has no gradient
	cap    softCap
}

// rowDot is the sum over the last axis of x [S, H] times float32 rows [S, H], or one row [1, H] for all, which are
// rounded to x's dtype as in the logits.
func rowDot(x, rows *Node) *Node {
	return ReduceSum(Mul(widen(x), widen(ConvertDType(rows, x.DType()))), -1)
}

// logits is x [S, H] times the transposed table [V, H], in the wideType.
func logits(x, table *Node) *Node {
	return dot(x, 1, ConvertDType(table, x.DType()), 1, 0, wideType(x.DType()))
}

// logSumExp is the log-sum-exp [S] of the logits of x [S, H].
func (h head) logSumExp(x *Node) *Node {
	if h.chunk*h.blocks >= x.Shape().Dim(0) {
		return h.wholeLogSumExp(x)
	}
	return h.chunkedLogSumExp(x)
}

// wholeLogSumExp keeps the exponentials e for the backward pass: the logits' adjoint is e·v/sum, times the cap's slope.
func (h head) wholeLogSumExp(x *Node) *Node {
	z, slope := h.cap.apply(logits(x, h.table))
	y, e, sum := rowLogSumExp(z)
	return ownGradient(y, []*Node{x, h.table}, func(v *Node) []*Node {
		d := ConvertDType(multiply(Mul(e, Div(asColumn(v), sum)), slope), x.DType())
		return []*Node{rowGradient(d, h.table), weightGradient(d, x, h.table)}
	})
}

// chunkedLogSumExp computes every chunk's logits twice, forward and backward. Each chunk waits for the one before it,
// so that only one chunk's logits exist at a time.
func (h head) chunkedLogSumExp(x *Node) *Node {
	var parts []*Node
	last := (*Node)(nil)
	for _, cut := range h.cuts(x.Shape().Dim(0)) {
		piece := cut(x)
		if last != nil {
			piece = computeAfter(piece, last)
		}
		z, _ := h.cap.apply(logits(piece, h.table))
		last, _, _ = rowLogSumExp(z)
		parts = append(parts, last)
	}
	y := h.join(parts)
	return ownGradient(y, []*Node{x, h.table}, func(v *Node) []*Node { return h.chunkedGradients(x, y, v) })
}

// cuts gives for each chunk a function that takes its slots from [S, …], as many from each block.
func (h head) cuts(slots int) (cuts []func(x *Node) *Node) {
	for at := 0; at < slots/h.blocks; at += h.chunk {
		part := AxisRange(at, min(at+h.chunk, slots/h.blocks))
		cuts = append(cuts, func(x *Node) *Node {
			if h.blocks == 1 {
				return SliceAxis(x, 0, part)
			}
			return joinBlocks(SliceAxis(h.split(x), 1, part))
		})
	}
	return cuts
}

// join puts the chunks' slots in order.
func (h head) join(chunks []*Node) *Node {
	if h.blocks == 1 {
		return Concatenate(chunks, 0)
	}
	for i, c := range chunks {
		chunks[i] = h.split(c)
	}
	return joinBlocks(Concatenate(chunks, 1))
}

// split turns [n, …] into [blocks, n/blocks, …], and joinBlocks turns it back.
func (h head) split(x *Node) *Node {
	dims := x.Shape().Dimensions
	return Reshape(x, slices.Concat([]int{h.blocks, dims[0] / h.blocks}, dims[1:])...)
}

func joinBlocks(x *Node) *Node {
	dims := x.Shape().Dimensions
	return Reshape(x, slices.Concat([]int{dims[0] * dims[1]}, dims[2:])...)
}

// rowLogSumExp is the log-sum-exp y [S] of the rows of z [S, V], with the exponentials and their sums.
func rowLogSumExp(z *Node) (y, e, sum *Node) {
	top := ReduceAndKeep(z, ReduceMax, -1)
	e = Exp(Sub(z, top))
	sum = ReduceAndKeep(e, ReduceSum, -1)
	return Reshape(Add(Log(sum), top), -1), e, sum
}

// chunkedGradients gives the adjoints of x and table for the log-sum-exp y [S] with adjoint v [S]. No chunk waits for
// the adjoint of a frozen table, which nobody asks for.
func (h head) chunkedGradients(x, y, v *Node) []*Node {
	var parts []*Node
	var dTable *Node
	last := v
	for _, cut := range h.cuts(x.Shape().Dim(0)) {
		piece := computeAfter(cut(x), last)
		z, slope := h.cap.apply(logits(piece, h.table))
		p := Exp(Sub(z, asColumn(cut(y))))
		d := ConvertDType(multiply(Mul(p, asColumn(cut(v))), slope), x.DType())
		dx := rowGradient(d, h.table)
		parts, dTable = append(parts, dx), accumulate(dTable, h.tableGradient(d, piece))
		if last = dTable; h.frozen {
			last = dx
		}
	}
	if h.blocks > 1 {
		dTable = ReduceSum(dTable, 0)
	}
	return []*Node{h.join(parts), dTable}
}

// accumulate adds to a sum, now. XLA would keep all that is added, and add it up at the end: 25 GB of a vocabulary of
// 152,000 in 54 chunks.
func accumulate(sum, x *Node) *Node {
	if sum = addTo(sum, x); hasLoops(x.Graph()) {
		return OptimizationBarrier(sum)
	}
	return sum
}

// rowGradient gives the adjoint of x [S, H] for logits with adjoint d [S, V].
func rowGradient(d, table *Node) *Node {
	return dot(d, 1, ConvertDType(table, d.DType()), 0, 0, d.DType())
}

// tableGradient gives the adjoint of the table for logits of x with adjoint d: [V, H], or [blocks, V, H], so that the
// shards of a mesh add up their tables once, not after every chunk.
func (h head) tableGradient(d, x *Node) *Node {
	if h.blocks == 1 {
		return weightGradient(d, x, h.table)
	}
	return ConvertDType(dot(h.split(d), 1, h.split(x), 1, 1, x.DType()), h.table.DType())
}

func asColumn(x *Node) *Node { return Reshape(x, -1, 1) }

// withRows is x's shape [n, ...] with n rows.
func withRows(x *Node, n int) shapes.Shape {
	s := x.Shape().Clone()
	s.Dimensions[0] = n
	return s
}

// SampleBlock is how many neighbouring tokens of the vocabulary one block holds.
const SampleBlock = 64

// SampleBlocks is the number of blocks of the vocabulary; the last one may be short.
func (c *Config) SampleBlocks() int { return (c.VocabSize + SampleBlock - 1) / SampleBlock }

// SampleHead holds what the next tokens of B rows are drawn from, all float32 but Token. The host searches the blocks'
// sums first and then one block of the logits, so that it never reads all logits of a row. With draws, in [0, 1) or -1
// for the first likeliest token, the graph does the same in float32.
type SampleHead struct {
	Logits      *Node // [B, V]
	BlockSums   *Node // [B, SampleBlocks], of exp((z - the row's maximum) * inverse temperature)
	BlockMaxima *Node // [B, SampleBlocks], of z
	LogSumExp   *Node // [B], at temperature 1: log p(token) = its logit - LogSumExp
	Token       *Node // int32 [B]; nil without draws
	LogProb     *Node // [B], of the token; nil without draws
}

// nodes gives the fields in the order of their declaration.
func (h SampleHead) nodes() []*Node {
	nodes := []*Node{h.Logits, h.BlockSums, h.BlockMaxima, h.LogSumExp}
	if h.Token != nil {
		nodes = append(nodes, h.Token, h.LogProb)
	}
	return nodes
}

// sampleHead builds the head for hidden states x [B, H] by the table [V, H]; inverse [B, 1] is 1/temperature, and draw
// [B, 1] may be nil.
func (c *Config) sampleHead(x, table, inverse, draw *Node) SampleHead {
	z, _ := c.capOfLogits().apply(ConvertDType(c.rowLogits(x, table), dtypes.Float32))
	blocks := c.splitBlocks(z)
	maxima := ReduceMax(blocks, -1)
	top := ReduceAndKeep(maxima, ReduceMax, -1)
	below := Sub(blocks, Reshape(top, -1, 1, 1))
	sums := ReduceSum(Exp(Mul(below, Reshape(inverse, -1, 1, 1))), -1)
	total := ReduceAndKeep(ReduceSum(Exp(below), -1), ReduceSum, -1)
	h := SampleHead{Logits: z, BlockSums: sums, BlockMaxima: maxima, LogSumExp: Reshape(Add(Log(total), top), -1)}
	if draw != nil {
		h.draw(blocks, top, inverse, draw)
	}
	return h
}

// rowLogits is logits in the faster form for the number of rows. From 32 rows on, turning all logits of the vocabulary
// back into rows costs more than packing the table: a fifth of the product at 64 rows, in one thread.
func (c *Config) rowLogits(x, table *Node) *Node {
	if rows := x.Shape().Dim(0); rows >= 32 || !swapsOperands(rows, x.DType()) {
		return dotRows(x, table, wideType(x.DType()))
	}
	return Transpose(dot(ConvertDType(table, x.DType()), 1, x, 1, 0, wideType(x.DType())), 0, 1)
}

// splitBlocks turns z [B, V] into [B, SampleBlocks, SampleBlock], padded with logits that are never drawn.
func (c *Config) splitBlocks(z *Node) *Node {
	if missing := c.SampleBlocks()*SampleBlock - c.VocabSize; missing > 0 {
		never := MulScalar(Ones(z.Graph(), shapes.Make(z.DType(), z.Shape().Dim(0), missing)), maskedScore)
		z = Concatenate([]*Node{z, never}, -1)
	}
	return Reshape(z, -1, c.SampleBlocks(), SampleBlock)
}
