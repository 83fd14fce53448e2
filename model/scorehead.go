package model

import (
	"fmt"
	"slices"

	. "github.com/gomlx/gomlx/core/graph"
)

// ScoreHead is a published reward model's head that scores a text under K aspects and weighs these by the text itself.
// It is for scoring, not for training. With hidden states x at the text's last token and g at Gate's first, which begins
// the answer:
//
//   - ArmoRM (arXiv:2406.12845): the score is s Σ_k softmax(f(g)/T)_k (M' R x)_k, with f of ReLU layers, R [K, H] and a
//     matrix M [K, K] that takes the length out of the aspects;
//   - URM (arXiv:2410.00847): Σ_k f(x)_k (R x)_2k, with f of SELU layers; the odd rows of R [2K, H] are the deviations'.
//
// Everything behind the hidden states is float32, where URM's own code has float16.
type ScoreHead struct {
	Class       string  // of its own code
	Aspects     int     // K
	Layers      int     // hidden ones of f
	Hidden      int     // their width
	Temperature float64 // T; 0: URM
}

// Gate is the text of ArmoRM's template whose last occurrence begins the answer.
const Gate = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"

// Gated says that the head looks at Gate.
func (h *ScoreHead) Gated() bool { return h != nil && h.Temperature > 0 }

const (
	armoClass = "LlamaForRewardModelWithGating"
	urmClass  = "LlamaForSequenceClassificationWithNormal_Weights"
)

// readScoreHead reads the head that one of the classes has; nil: none of them.
func (c *Config) readScoreHead(f *fields, class string) *ScoreHead {
	h := &ScoreHead{Class: class}
	switch class {
	case armoClass:
		h.Aspects, h.Hidden = f.whole("num_objectives", 19), f.whole("gating_hidden_dim", 1024)
		h.Layers, h.Temperature = f.whole("gating_n_hidden", 3), f.float("gating_temperature", 10)
		if !(h.Temperature > 0) {
			f.fail("gating_temperature", fmt.Sprint(h.Temperature), "more than 0")
		}
	case urmClass:
		labels := labelsOf(f)
		h.Aspects, h.Hidden, h.Layers = labels/2, c.HiddenSize, 2
		if labels%2 == 1 {
			f.fail("num_labels", fmt.Sprint(labels), "an even number: a mean and a deviation for each aspect")
		}
	default:
		return nil
	}
	if c.ModelType != "llama" {
		f.fail("architectures", class, "a class of "+c.ModelType)
	}
	for key, n := range map[string]int{"num_objectives": h.Aspects, "gating_hidden_dim": h.Hidden,
		"gating_n_hidden": h.Layers} {
		if n < 1 || n > 1<<20 || n > 64 && key == "gating_n_hidden" {
			f.fail(key, fmt.Sprint(n), "1 or more, and fewer")
		}
	}
	return h
}

// headSpecs are the tensors behind the last norm.
func (c *Config) headSpecs() []ParamSpec {
	switch {
	case c.Head != nil:
		return c.Head.specs(c.HiddenSize)
	case c.Reward:
		return []ParamSpec{{Name: scoreName, Shape: []int{1, c.HiddenSize}}}
	case c.TieEmbeddings:
		return nil
	}
	return []ParamSpec{{Name: headName, Shape: []int{c.VocabSize, c.HiddenSize}}}
}

// specs lists the tensors of R, then of f, each weight before its bias, and ArmoRM's M and s.
func (h *ScoreHead) specs(hidden int) []ParamSpec {
	rows, layer, step := ParamSpec{Name: scoreName, Shape: []int{2 * h.Aspects, hidden}}, "weights.fc.", 2
	var more []ParamSpec
	if h.Gated() {
		rows, layer, step = ParamSpec{Name: "regression_layer.weight", Shape: []int{h.Aspects, hidden}}, "gating.layers.", 1
		more = []ParamSpec{{Name: "reward_transform_matrix", Shape: []int{h.Aspects, h.Aspects}},
			{Name: "gating.logit_scale", Shape: []int{1}, NoDecay: true}}
	}
	specs := []ParamSpec{rows}
	for i, in := 0, hidden; i <= h.Layers; i, in = i+1, h.Hidden {
		out := h.Hidden
		if i == h.Layers {
			out = h.Aspects
		}
		name := layer + fmt.Sprint(step*i)
		specs = append(specs, ParamSpec{Name: name + ".weight", Shape: []int{out, in}},
			ParamSpec{Name: name + ".bias", Shape: []int{out}, NoDecay: true})
	}
	return append(specs, more...)
}

// scores builds the scores [S] of hidden states x [S, H]. With a gate, a text has two slots one after the other, of
// which the second gets the score.
func (h *ScoreHead) scores(x *Node, params []*Node) *Node {
	rows, weights := logits(x, params[0]), x
	for i := range h.Layers + 1 {
		weights = Add(logits(weights, params[1+2*i]), Reshape(params[2+2*i], 1, -1))
		if i < h.Layers {
			weights = h.activate(weights)
		}
	}
	if !h.Gated() {
		even := Reshape(SliceAxis(Reshape(rows, -1, h.Aspects, 2), 2, AxisElem(0)), -1, h.Aspects)
		return ReduceSum(Mul(even, weights), -1)
	}
	matrix, scale := params[len(params)-2], params[len(params)-1]
	z := MulScalar(weights, 1/h.Temperature)
	_, e, sum := rowLogSumExp(z)
	weights = Mul(Div(e, sum), Reshape(ConvertDType(scale, e.DType()), 1, 1))
	if n := weights.Shape().Dim(0); n > 1 { // of the slot before
		weights = Concatenate([]*Node{SliceAxis(weights, 0, AxisRange(0, 1)), SliceAxis(weights, 0, AxisRange(0, n-1))}, 0)
	}
	return ReduceSum(Mul(weights, dot(rows, 1, ConvertDType(matrix, rows.DType()), 0, 0, rows.DType())), -1)
}

// activate is ReLU, or URM's SELU.
func (h *ScoreHead) activate(x *Node) *Node {
	zero := ScalarZero(x.Graph(), x.DType())
	above := Max(x, zero)
	if h.Gated() {
		return above
	}
	const scale, alpha = 1.0507009873554805, 1.6732632423543772
	return MulScalar(Add(above, MulScalar(AddScalar(Exp(Min(x, zero)), -1), alpha)), scale)
}

// headParams picks the parameters of headSpecs from all parameters.
func (c *Config) headParams(params []*Node) []*Node {
	first := c.normIndex() + 1
	return slices.Clone(params[first : first+len(c.headSpecs())])
}
