package exchange

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/model"
)

// layerNames are the names of a layer's tensors: Hugging Face's behind model.layers.N, llama.cpp's behind blk.N.
var layerNames = map[string]string{
	"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
	"self_attn.v_proj": "attn_v", "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output",
	"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
	"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
	"block_sparse_moe.gate": "ffn_gate_inp", "mlp.gate": "ffn_gate_inp",
}

// gemmaNames are the file's names of the norms around a gemma's blocks.
var gemmaNames = map[string]string{"post_attention_layernorm": "post_attention_norm",
	"pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}

// expertNames are the file's names of an expert's matrices: of mixtral's, and of qwen's.
var expertNames = map[string]string{"w1": "ffn_gate", "w3": "ffn_up", "w2": "ffn_down", "gate_proj": "ffn_gate",
	"up_proj": "ffn_up", "down_proj": "ffn_down"}

var singleNames = map[string]string{
	"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
	"lm_head.weight": "output.weight",
}

// Names of tensors with what frequencies are divided by: Llama 3.1's, and longrope's in short and long texts.
const (
	ropeFactors  = "rope_freqs.weight"
	shortFactors = "rope_factors_short.weight"
	longFactors  = "rope_factors_long.weight"
)

// place is where a file has a tensor of a folder.
type place struct {
	name   string // llama.cpp's
	expert int    // the tensor has all experts, and this is the number of one; -1: it is one matrix or vector
	alone  string // the name that older files have for the expert alone
}

var expertForm = regexp.MustCompile(`^(?:block_sparse_moe|mlp)\.experts\.(\d+)\.(\w+)$`)

// placeOf finds a tensor by its name in a folder.
func placeOf(c *model.Config, name string) place {
	if single := singleNames[name]; single != "" {
		return place{name: single, expert: -1}
	}
	layer, rest, _ := strings.Cut(strings.TrimPrefix(name, "model.layers."), ".")
	dot := strings.LastIndexByte(rest, '.')
	part, ending := rest[:dot], rest[dot:]
	in := func(name string) string { return "blk." + layer + "." + name + ending }
	if m := expertForm.FindStringSubmatch(part); m != nil {
		expert, _ := strconv.Atoi(m[1]) // digits, and few
		of := expertNames[m[2]]
		return place{in(of + "_exps"), expert, in(of + "." + m[1])}
	}
	if of := gemmaNames[part]; gemma(c) && of != "" {
		return place{name: in(of), expert: -1}
	}
	return place{name: in(layerNames[part]), expert: -1}
}

// lift is what llama.cpp adds to the weights of a norm: a gemma multiplies by 1 + weight.
func lift(c *model.Config, p *model.Param) float32 {
	if gemma(c) && p.NoDecay {
		return 1
	}
	return 0
}

// permuted says how many heads of a tensor are stored in another order: llama.cpp rotates neighbouring numbers of a
// llama's head, Hugging Face's models number i with number i+D/2. 0: none.
func permuted(c *model.Config, name string) int {
	if architectures[c.ModelType] != "llama" {
		return 0
	}
	switch {
	case strings.Contains(name, ".q_proj."):
		return c.Heads
	case strings.Contains(name, ".k_proj."):
		return c.KVHeads
	}
	return 0
}

// reorder writes x with the rows of each head in the other order: toPairs is llama.cpp's. The rows of a head are its
// numbers: row j*D/2+i in Hugging Face's order is row 2i+j in pairs.
func reorder(x []float32, heads int, rows int, toPairs bool) []float32 {
	out, width, head := make([]float32, len(x)), len(x)/rows, rows/heads
	for row := range rows {
		at, first := row%head, row-row%head
		pair := first + at%(head/2)*2 + at/(head/2)
		from, to := row, pair
		if !toPairs {
			from, to = pair, row
		}
		copy(out[to*width:][:width], x[from*width:][:width])
	}
	return out
}
