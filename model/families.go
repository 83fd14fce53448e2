package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// family is what a model_type has of its own. A model is otherwise a decoder of llama's form: RMSNorm, rotations, grouped
// queries and a gated block, with the keys of config.json that readShape reads. A new model_type is a row of families,
// and a function where it reads or writes a key that no other has.
type family struct {
	name  string
	class string // begins the names of transformers' classes

	// transformers' defaults of keys that folders leave out: sizes, and where they are not 1e-6 and 1e4
	sizes      map[string]int
	eps, theta float64
	headDim    int // of an absent head_dim, but not of null

	bias    biasRule // of q, k, v and o
	mlpBias bool     // mlp_bias may be true
	qkNorm  bool     // every head's query and key are normalised before they rotate
	window  windowRule
	// gives the window to layers where layer_types does not; nil: all layers are alike
	windowLayers func(c *Config, f *fields)

	phi   bool // one layer for q, k and v and one for gate and up; part of a head rotates; longrope's keys lie apart
	gemma bool // norms multiply by 1 + weight, the embedding is times √H, GELU
	outer bool // the blocks' outputs have norms

	experts *expertNames // nil: no mixture of experts

	read  func(c *Config, f *fields)        // further keys; may be nil
	write func(c *Config, m map[string]any) // what read reads; may be nil
}

type biasRule int

const (
	noBias    biasRule = iota
	biasAsked          // attention_bias adds them
	biasOfQKV          // q, k and v always have them
)

// windowRule says when sliding_window is a model's.
type windowRule int

const (
	noWindow         windowRule = iota
	windowUnlessNull            // transformers has a default
	windowIfGiven
	windowIfUsed // use_sliding_window says so
	windowAlways
)

// Names of families that other code asks for. A folder of type gemma3, which also sees, has a model of type gemma3_text
// in it.
const gemma3 = "gemma3_text"

// families is filled by init, since its functions look into it.
var families []family

// Types lists the values of model_type that the decoder supports.
var Types []string

func init() {
	families = []family{
		{name: "llama", class: "Llama", bias: biasAsked, mlpBias: true},
		{name: "mistral", class: "Mistral", sizes: map[string]int{"num_key_value_heads": 8}, window: windowUnlessNull},
		{name: "qwen2", class: "Qwen2", sizes: map[string]int{"num_key_value_heads": 32}, bias: biasOfQKV,
			window: windowIfUsed, windowLayers: (*Config).windowFromLayer},
		{name: "qwen3", class: "Qwen3", sizes: map[string]int{"num_key_value_heads": 32}, headDim: 128, bias: biasAsked,
			qkNorm: true, window: windowIfUsed, windowLayers: (*Config).windowFromLayer},
		{name: "gemma", class: "Gemma", sizes: map[string]int{"num_key_value_heads": 16, "head_dim": 256,
			"max_position_embeddings": 8192}, gemma: true, read: (*Config).readGemma1,
			write: func(c *Config, m map[string]any) { m["hidden_act"], m["head_dim"] = geluTanh, c.HeadDim }},
		{name: "gemma2", class: "Gemma2", sizes: map[string]int{"num_key_value_heads": 4, "head_dim": 256,
			"max_position_embeddings": 8192}, window: windowAlways,
			windowLayers: func(c *Config, f *fields) { c.windowPattern(f, 2) }, gemma: true, outer: true,
			read: (*Config).readGemma, write: (*Config).writeGemma},
		{name: gemma3, class: "Gemma3", sizes: map[string]int{"vocab_size": 262208, "hidden_size": 2304,
			"intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
			"head_dim": 256, "max_position_embeddings": 131072}, qkNorm: true, window: windowAlways,
			windowLayers: func(c *Config, f *fields) { c.windowPattern(f, f.whole("sliding_window_pattern", 6)) },
			gemma:        true, outer: true, read: (*Config).readGemma, write: (*Config).writeGemma},
		{name: "phi3", class: "Phi3", sizes: map[string]int{"max_position_embeddings": 4096}, eps: 1e-5,
			window: windowIfGiven, phi: true},
		{name: "mixtral", class: "Mixtral", sizes: map[string]int{"num_key_value_heads": 8,
			"max_position_embeddings": 131072}, eps: 1e-5, theta: 1e6, window: windowIfGiven,
			experts: &expertNames{"num_local_experts", "block_sparse_moe", "w1", "w3", "w2"}, read: (*Config).readMixtral},
		{name: "qwen3_moe", class: "Qwen3Moe", sizes: map[string]int{"num_key_value_heads": 4,
			"max_position_embeddings": 32768}, bias: biasAsked, qkNorm: true, window: windowIfUsed,
			experts: &expertNames{"num_experts", "mlp", "gate_proj", "up_proj", "down_proj"}, read: (*Config).readQwen3MoE,
			write: func(c *Config, m map[string]any) {
				delete(m, "num_local_experts")
				m["moe_intermediate_size"], m["norm_topk_prob"] = c.ExpertSize, c.NormExperts
			}},
	}
	for _, f := range families {
		Types = append(Types, f.name)
	}
}

// family is the family of the model_type; an unknown model_type's is empty.
func (c *Config) family() family {
	if i := slices.Index(Types, c.ModelType); i >= 0 {
		return families[i]
	}
	return family{}
}

func (c *Config) gemma() bool      { return c.family().gemma }
func (c *Config) outerNorms() bool { return c.family().outer }
func (c *Config) phi() bool        { return c.family().phi }

// windowFromLayer gives the window to the layers from max_window_layers on (qwen).
func (c *Config) windowFromLayer(f *fields) {
	if c.SlidingWindow == 0 {
		return
	}
	first := f.whole("max_window_layers", 28)
	if first <= 0 || c.Layers < 1 || c.Layers > 4096 {
		return
	}
	if first >= c.Layers {
		c.SlidingWindow = 0
		return
	}
	c.WindowLayers = make([]bool, c.Layers)
	for i := first; i < c.Layers; i++ {
		c.WindowLayers[i] = true
	}
}

// windowPattern gives the window to all layers but each every-th one (gemma).
func (c *Config) windowPattern(f *fields, every int) {
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

// readGemma1 reads the first gemma. Its hidden_act says gelu in early folders, which means the same as the other name.
func (c *Config) readGemma1(f *fields) {
	c.BOS, c.EOS, c.Pad = new(2), []int{1}, new(0)
	if f.boolean("use_bidirectional_attention", false) {
		f.fail("use_bidirectional_attention", "true", "false: a decoder sees earlier tokens only")
	}
	if act := f.text("hidden_act", geluTanh); c.ModelType == "gemma" && act != geluTanh && act != "gelu" {
		f.fail("hidden_act", fmt.Sprintf("%q", act), fmt.Sprintf("%q: others are not supported", geluTanh))
	}
}

func (c *Config) readGemma(f *fields) {
	c.readGemma1(f)
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
// rope_scaling and rope_local_base_freq (transformers 4). Of both, the keys of rope_scaling count, as in transformers 5.
func (c *Config) readGemmaRope(f *fields) {
	c.RopeTheta, c.LocalTheta = f.float("rope_theta", 1e6), f.float("rope_local_base_freq", 1e4)
	all := f.object("rope_parameters")
	if all == nil {
		all = &fields{}
	}
	full := all.object("full_attention")
	if r := f.object("rope_scaling"); full == nil {
		full = r
	} else if r != nil {
		full.values = maps.Clone(full.values)
		maps.Copy(full.values, r.values)
	}
	if full != nil {
		c.takeRope(f, full)
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
	m["layer_types"] = c.layerTypes()
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

// textPrefixes are what names of the text part begin with in the whole model: from transformers 4.52 on, and before.
var textPrefixes = []string{"model.language_model.", "language_model.model."}

// textName is a tensor's name in the text part alone: "" if it is of another part.
func textName(name string) string {
	for _, whole := range textPrefixes {
		if rest, ok := strings.CutPrefix(name, whole); ok {
			return "model." + rest
		}
	}
	if strings.TrimPrefix(name, "language_model.") == headName {
		return headName
	}
	return ""
}

func (c *Config) readMixtral(f *fields) {
	c.Experts, c.ActiveExperts = f.whole("num_local_experts", 8), f.whole("num_experts_per_tok", 2)
	c.ExpertSize, c.NormExperts = c.IntermediateSize, true // Validate looks at its bounds
	if x := f.float("router_jitter_noise", 0); x != 0 {
		f.fail("router_jitter_noise", fmt.Sprint(x), "0: noise is not supported")
	}
	c.checkExperts(f)
}

func (c *Config) readQwen3MoE(f *fields) {
	c.Experts = f.whole("num_experts", f.whole("num_local_experts", 128))
	c.ActiveExperts, c.ExpertSize = f.whole("num_experts_per_tok", 8), f.whole("moe_intermediate_size", 768)
	c.NormExperts = f.boolean("norm_topk_prob", false)
	if n := f.whole("decoder_sparse_step", 1); n != 1 {
		f.fail("decoder_sparse_step", fmt.Sprint(n), "1: experts in every layer")
	}
	if list, _ := f.get("mlp_only_layers"); list != nil && show(list) != "[]" {
		f.fail("mlp_only_layers", show(list), "no layers: experts in every layer")
	}
	c.checkExperts(f)
	if c.ExpertSize < 1 || c.ExpertSize > 1<<20 {
		f.fail("moe_intermediate_size", fmt.Sprint(c.ExpertSize), fmt.Sprintf("1 to %d", 1<<20))
	}
}

func (c *Config) checkExperts(f *fields) {
	if f.boolean("output_router_logits", false) {
		f.fail("output_router_logits", "true", "false: the routers' auxiliary loss is not supported")
	}
	if c.Experts < 1 || c.Experts > 4096 {
		f.fail(c.family().experts.key, fmt.Sprint(c.Experts), "1 to 4096")
	}
	if c.ActiveExperts < 1 || c.ActiveExperts > c.Experts {
		f.fail("num_experts_per_tok", fmt.Sprint(c.ActiveExperts), fmt.Sprintf("1 to %d, the experts", c.Experts))
	}
}
