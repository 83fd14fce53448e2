package model

import (
	"fmt"
	"maps"
	"strings"
)

// Model types of Google's family. A folder of type gemma3, which also sees, has a model of type gemma3_text in it.
const gemma2, gemma3 = "gemma2", "gemma3_text"

// gemma says that the model is of that family: RMSNorm multiplies by 1 + weight, the outputs of attention and MLP are
// normalised too, the embedding is multiplied by √H, and the gate is GELU.
func (c *Config) gemma() bool { return c.ModelType == gemma2 || c.ModelType == gemma3 }

// defaultSizes are those of transformers' classes where released folders leave them out.
var defaultSizes = map[string]map[string]int{
	gemma2: {"num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 8192},
	gemma3: {"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
		"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072},
	phi3:     {"max_position_embeddings": 4096},
	mixtral:  {"num_key_value_heads": 8, "max_position_embeddings": 131072},
	qwen3MoE: {"num_key_value_heads": 4, "max_position_embeddings": 32768},
}

// takeTextPart reads on in the text part of a config of type gemma3 (Gemma3ForConditionalGeneration), which becomes a
// model of its own, Gemma3ForCausalLM.
func (c *Config) takeTextPart(f *fields) {
	if f.values["model_type"] != "gemma3" {
		return
	}
	part := f.object("text_config")
	if part == nil {
		f.fail("text_config", "nothing", "the config of the text part")
		return
	}
	whole := f.values
	f.values, f.prefix, c.textPart = maps.Clone(part.values), part.prefix, true
	f.values["model_type"] = gemma3
	for _, key := range []string{"bos_token_id", "eos_token_id", "pad_token_id", "dtype", "torch_dtype",
		"tie_word_embeddings", "quantization_config"} {
		if v, ok := whole[key]; ok && f.values[key] == nil {
			f.values[key] = v
		}
	}
}

// textName is a tensor's name in the text part alone: "" if it is of another part.
func textName(name string) string {
	for _, whole := range []string{"language_model.model.", "model.language_model."} {
		if rest, ok := strings.CutPrefix(name, whole); ok {
			return "model." + rest
		}
	}
	if strings.TrimPrefix(name, "language_model.") == headName {
		return headName
	}
	return ""
}

// takeTextPart drops the tensors of other parts, and shortens the names of the others.
func (s *Stored) takeTextPart() {
	for _, f := range s.files {
		part := map[string]tensorInfo{}
		for name, info := range f.Tensors {
			if short := textName(name); short != "" {
				part[short] = info
			}
		}
		header := *f.tensorHeader
		header.Tensors, f.tensorHeader = part, &header
	}
}

// readGemma reads what the family alone has.
func (c *Config) readGemma(f *fields) {
	if !c.gemma() {
		return
	}
	c.BOS, c.EOS, c.Pad = new(int), []int{1}, new(int)
	*c.BOS = 2
	if f.boolean("use_bidirectional_attention", false) {
		f.fail("use_bidirectional_attention", "true", "false: a decoder sees earlier tokens only")
	}
	if act := f.text("hidden_activation", geluTanh); act != geluTanh {
		f.fail("hidden_activation", fmt.Sprintf("%q", act), fmt.Sprintf("%q: others are not supported", geluTanh))
	}
	if c.QueryScale = f.float("query_pre_attn_scalar", 256); c.QueryScale == 0 {
		f.fail("query_pre_attn_scalar", "0", "more than 0")
	}
	c.ScoreCap, c.LogitCap = c.readCap(f, "attn_logit_softcapping", 50), c.readCap(f, "final_logit_softcapping", 30)
	if c.ModelType == gemma3 && c.ScoreCap > 0 {
		f.fail("attn_logit_softcapping", fmt.Sprint(c.ScoreCap), "null for "+gemma3)
	}
}

const geluTanh = "gelu_pytorch_tanh"

// readCap reads a limit of scores or logits. gemma2 has a default for an absent one.
func (c *Config) readCap(f *fields, key string, def float64) float64 {
	if c.ModelType == gemma3 || f.isNull(key) {
		def = 0
	}
	limit := f.float(key, def)
	if _, given := f.get(key); given && limit == 0 {
		f.fail(key, "0", "more than 0, or null for off")
	}
	return limit
}

// readGemmaRope reads the two ropes of gemma3: rope_parameters by type of layer (transformers 5), or rope_theta,
// rope_scaling and rope_local_base_freq (transformers 4).
func (c *Config) readGemmaRope(f *fields) {
	c.RopeTheta, c.LocalTheta = f.float("rope_theta", 1e6), f.float("rope_local_base_freq", 1e4)
	if r := f.object("rope_scaling"); r != nil {
		c.takeRope(f, r)
	}
	all := f.object("rope_parameters")
	if all == nil {
		return
	}
	if r := all.object("full_attention"); r != nil {
		c.takeRope(f, r)
	}
	if r := all.object("sliding_attention"); r != nil {
		c.LocalTheta = r.float("rope_theta", c.LocalTheta)
		if kind := r.text("rope_type", "default"); kind != "default" {
			r.fail("rope_type", fmt.Sprintf("%q", kind), `"default" in layers with the window`)
		}
		f.take(r)
	}
	f.take(all)
}

// setWindowPattern gives the layers the window that have it without layer_types: every second one of gemma2, all but
// every sixth of gemma3.
func (c *Config) setWindowPattern(f *fields) {
	every := 2
	if c.ModelType == gemma3 {
		every = f.whole("sliding_window_pattern", 6)
	}
	if every < 1 {
		f.fail("sliding_window_pattern", fmt.Sprint(every), "1 or more")
	}
	if every < 1 || c.Layers < 1 || c.Layers > 4096 { // Validate reports the layers
		return
	}
	layers := make([]bool, c.Layers)
	for i := range layers {
		layers[i] = (i+1)%every != 0
	}
	c.setLayers(f, layers, true)
}

// writeGemma writes what the family alone has.
func (c *Config) writeGemma(m map[string]any) {
	m["hidden_activation"], m["query_pre_attn_scalar"] = geluTanh, c.QueryScale
	for key, limit := range map[string]float64{"attn_logit_softcapping": c.ScoreCap,
		"final_logit_softcapping": c.LogitCap} {
		if m[key] = nil; limit > 0 {
			m[key] = decimal(limit)
		}
	}
	if c.ModelType == gemma3 {
		m["rope_local_base_freq"] = c.LocalTheta
	}
}
