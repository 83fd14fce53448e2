package exchange

import (
	"strings"

	"github.com/posttrain/posttrain/model"
)

// layerNames are the names of a layer's tensors: Hugging Face's behind model.layers.N, llama.cpp's behind blk.N.
var layerNames = map[string]string{
	"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
	"self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
	"self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
	"mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}

var singleNames = map[string]string{
	"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
	"lm_head.weight": "output.weight",
}

// ropeFactors has what the frequencies of Llama 3.1 are divided by.
const ropeFactors = "rope_freqs.weight"

// ggufName is llama.cpp's name of a tensor.
func ggufName(name string) string {
	if single := singleNames[name]; single != "" {
		return single
	}
	layer, part, _ := strings.Cut(strings.TrimPrefix(name, "model.layers."), ".")
	dot := strings.LastIndexByte(part, '.')
	return "blk." + layer + "." + layerNames[part[:dot]] + part[dot:]
}

// permuted says how many heads of a tensor are stored in another order: llama.cpp rotates neighbouring numbers of a
// llama's head, Hugging Face's models number i with number i+D/2. 0: none.
func permuted(c *model.Config, name string) int {
	if c.ModelType != "llama" && c.ModelType != "mistral" {
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
