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

// Model types that are mixtures of experts.
const mixtral, qwen3MoE = "mixtral", "qwen3_moe"

// expertNames are a model type's names of the block and of an expert's layers: gate, up, down.
type expertNames struct{ block, gate, up, down string }

var expertsOf = map[string]expertNames{
	mixtral:  {"block_sparse_moe", "w1", "w3", "w2"},
	qwen3MoE: {"mlp", "gate_proj", "up_proj", "down_proj"},
}

func (e expertNames) router() string { return e.block + ".gate" }

// of gives the names of an expert's layers.
func (e expertNames) of(expert int) (gate, up, down string) {
	prefix := fmt.Sprintf("%s.experts.%d.", e.block, expert)
	return prefix + e.gate, prefix + e.up, prefix + e.down
}

// readExperts reads what mixtures of experts have.
func (c *Config) readExperts(f *fields) {
	switch c.ModelType {
	case mixtral:
		c.Experts, c.ActiveExperts = f.whole("num_local_experts", 8), f.whole("num_experts_per_tok", 2)
		c.ExpertSize, c.NormExperts = c.IntermediateSize, true
		if x := f.float("router_jitter_noise", 0); x != 0 {
			f.fail("router_jitter_noise", fmt.Sprint(x), "0: noise is not supported")
		}
	case qwen3MoE:
		c.Experts = f.whole("num_experts", f.whole("num_local_experts", 128))
		c.ActiveExperts, c.ExpertSize = f.whole("num_experts_per_tok", 8), f.whole("moe_intermediate_size", 768)
		c.NormExperts = f.boolean("norm_topk_prob", false)
		if n := f.whole("decoder_sparse_step", 1); n != 1 {
			f.fail("decoder_sparse_step", fmt.Sprint(n), "1: experts in every layer")
		}
		if list, _ := f.get("mlp_only_layers"); list != nil && show(list) != "[]" {
			f.fail("mlp_only_layers", show(list), "no layers: experts in every layer")
		}
	default:
		return
	}
	if f.boolean("output_router_logits", false) {
		f.fail("output_router_logits", "true", "false: the routers' auxiliary loss is not supported")
	}
	c.validateExperts(f)
}

// validateExperts leaves intermediate_size, which is the width of mixtral's experts, to Validate.
func (c *Config) validateExperts(f *fields) {
	number := "num_experts"
	if c.ModelType == mixtral {
		number = "num_local_experts"
	}
	if c.Experts < 1 || c.Experts > 4096 {
		f.fail(number, fmt.Sprint(c.Experts), "1 to 4096")
	}
	if c.ActiveExperts < 1 || c.ActiveExperts > c.Experts {
		f.fail("num_experts_per_tok", fmt.Sprint(c.ActiveExperts), fmt.Sprintf("1 to %d, the experts", c.Experts))
	}
	if c.ModelType != mixtral && (c.ExpertSize < 1 || c.ExpertSize > 1<<20) {
		f.fail("moe_intermediate_size", fmt.Sprint(c.ExpertSize), fmt.Sprintf("1 to %d", 1<<20))
	}
}

// writeExperts writes what readExperts reads.
func (c *Config) writeExperts(m map[string]any) {
	m["num_experts_per_tok"] = c.ActiveExperts
	if c.ModelType == mixtral {
		m["num_local_experts"] = c.Experts
		return
	}
	delete(m, "num_local_experts")
	m["num_experts"], m["moe_intermediate_size"], m["norm_topk_prob"] = c.Experts, c.ExpertSize, c.NormExperts
}

// isExpert says that a module is a part of an expert; isRouter that it chooses them.
func isExpert(module string) bool { return strings.Contains(module, ".experts.") }
func isRouter(module string) bool { return strings.HasSuffix(module, ".gate") }

// mixture is the block of experts for x [..., H]. layer applies the linear layer of a name.
func (c *Config) mixture(x *Node, layer func(x *Node, name string) *Node) *Node {
	names := expertsOf[c.ModelType]
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
		hit := Equal(places(p), firstOf(left, ReduceAndKeep(left, ReduceMax, -1)))
		chosen = addTo(chosen, ConvertDType(hit, p.DType()))
		left = Where(hit, Neg(OnesLike(p)), left)
	}
	return StopGradient(chosen)
}
