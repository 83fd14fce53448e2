package model

import (
	"fmt"
	"strings"

	. "github.com/gomlx/gomlx/core/graph"
)

// Mixtures of experts: a router gives every token a weight for each of E experts, MLPs of their own, and the token gets
// the weighted sum of the k likeliest. The graph computes every expert for every token and multiplies those that were
// not chosen by 0. This is the same on every engine and has exact gradients, but costs E/k times as much as the chosen
// experts would.

// expertNames are a family's key of the number of experts, and its names of the block and of an expert's layers: gate,
// up, down.
type expertNames struct{ key, block, gate, up, down string }

func (e expertNames) router() string { return e.block + ".gate" }

// of gives the names of an expert's layers.
func (e expertNames) of(expert int) (gate, up, down string) {
	prefix := fmt.Sprintf("%s.experts.%d.", e.block, expert)
	return prefix + e.gate, prefix + e.up, prefix + e.down
}

// isExpert says that a module is a part of an expert; isRouter that it chooses them.
func isExpert(module string) bool { return strings.Contains(module, ".experts.") }
func isRouter(module string) bool { return strings.HasSuffix(module, ".gate") }

// mixture is the block of experts for x [..., H]. layer applies the linear layer of a name.
func (c *Config) mixture(x *Node, layer func(x *Node, name string) *Node) *Node {
	names := c.family().experts
	weights := c.route(layer(x, names.router()))
	var sum *Node
	for e := range c.Experts {
		gate, up, down := names.of(e)
		y := layer(c.gate(layer(x, gate), layer(x, up)), down)
		share := sliceAxis(weights, weights.Rank()-1, e, e+1)
		sum = addTo(sum, Mul(y, ConvertDType(share, y.DType())))
	}
	return sum
}

// route gives the weights of the experts [..., E] for a router's logits, 0 for those that are not chosen.
func (c *Config) route(logits *Node) *Node {
	dims := logits.Shape().Dimensions
	z := widen(Reshape(logits, -1, c.Experts))
	e := Exp(Sub(z, StopGradient(ReduceAndKeep(z, ReduceMax, -1))))
	p := Div(e, ReduceAndKeep(e, ReduceSum, -1))
	p = Mul(p, likeliest(StopGradient(p), c.ActiveExperts))
	if c.NormExperts {
		p = Div(p, ReduceAndKeep(p, ReduceSum, -1))
	}
	return Reshape(p, dims...)
}

// likeliest is 1 at the k largest of each row of p [N, E], the first of equal ones, and 0 elsewhere.
func likeliest(p *Node, k int) *Node {
	left, chosen := p, (*Node)(nil)
	for range k {
		hit := Equal(positions(p), firstOf(left, ReduceAndKeep(left, ReduceMax, -1)))
		chosen = addTo(chosen, ConvertDType(hit, p.DType()))
		left = Where(hit, Neg(OnesLike(p)), left)
	}
	return StopGradient(chosen)
}
