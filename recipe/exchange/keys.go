package exchange

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/gguf"
	"github.com/posttrain/posttrain/model"
)

// A keyRule says what an import does about keys of a file. An architecture's keys begin with a dot here, and * stands
// for any text.
type keyRule struct {
	keys string
	does treatment
	why  string // of idle and refused
	only []any  // the values that say nothing, of only
}

type treatment int

const (
	read    treatment = iota // by readConfig, readTokenizer or the package gguf
	idle                     // the value changes neither tokens nor logits
	only                     // the value must be one that says nothing
	refused                  // whatever the value
)

// Values that say nothing: no such part, a factor of one, a switch.
var (
	none = []any{0.0, "", false}
	one  = []any{0.0, 1.0}
	no   = []any{false, 0.0}
	yes  = []any{true, 1.0}
)

// keyRules has every key that llama.cpp and gguf-py write. Of an architecture or the tokenizer, no other key is
// accepted; what else a file has, such as general.*, is about the file.
var keyRules = []keyRule{
	{keys: "general.architecture general.alignment general.name split.*"},
	{"general.type", only, "the file is no model", []any{"model"}},
	{"general.quantization_version", only, "blocks of another version have another form", []any{0.0, 2.0}},
	{keys: "general.*", does: idle, why: "it is about the file, or advice for sampling"},
	{"adapter.* imatrix.*", refused, "the file is no model", nil},
	{keys: "clip.*", does: idle, why: "it is of pictures or sound"},

	{keys: ".context_length .embedding_length .block_count .feed_forward_length .expert_feed_forward_length " +
		".expert_count .expert_used_count .final_logit_softcapping .attn_logit_softcapping"},
	{keys: ".vocab_size", does: idle, why: "tokens and embedding have the number"},
	{keys: ".features_length .posnet.* .convnext.*", does: only, why: "the model is of sound", only: none},
	{".embedding_length_out .*_feat_in .*_feat_out .classifier.output_labels .pooling_type", only,
		"the model gives embeddings or scores", none},
	{".decoder_start_token_id .decoder_block_count .attention.relative_buckets_count", refused,
		"the model has an encoder", nil},
	{".leading_dense_block_count .expert_shared_feed_forward_length .expert_shared_count .expert_group_scale " +
		".expert_chunk_feed_forward_length .experts_per_group .moe_every_n_layers .moe_latent_size " +
		".router_logit_softcapping .swiglu_clamp_exp .swiglu_clamp_shexp", only,
		"experts of this kind are not supported", none},
	{".expert_group_count .expert_group_used_count .expert_weights_scale .expert_gating_func " +
		".interleave_moe_layer_step", only, "experts of this kind are not supported", one},
	{".expert_weights_norm", only, "weights of experts add up to 1", yes},
	{".nextn_predict_layers .n_deepstack_layers .altup.* .embedding_length_per_layer_input " +
		".activation_sparsity_scale .rescale_every_n_layers .time_mix_extra_dim .time_decay_extra_dim " +
		".token_shift_count .ssm.* .kda.* .wkv.* .shortconv.* xielu.* .xielu.* diffusion.* .diffusion.*", only,
		"layers of this kind are not supported", none},
	{".use_parallel_residual .swin_norm", only, "layers of this kind are not supported", no},
	{".full_attention_interval", only, "layers of this kind are not supported", one},
	{".tensor_data_layout", only, "weights in another order are not supported", []any{"Meta AI original pth"}},
	{".logit_scale .residual_scale .embedding_scale", only, "a scale is not supported", one},

	{keys: ".attention.head_count .attention.head_count_kv .attention.key_length .attention.value_length " +
		".attention.layer_norm_rms_epsilon .attention.sliding_window .attention.sliding_window_pattern " +
		".attention.scale .attention.key_length_swa .attention.value_length_swa"},
	{keys: ".attention.layer_norm_epsilon", does: idle, why: "norms of these models are RMS norms"},
	{".attention.causal", only, "a token sees the ones before it only", yes},
	{".attention.output_scale", only, "a scale is not supported", one},
	{".attention.max_alibi_bias .attention.clamp_kqv .attention.group_norm_* .attention.*_lora_rank " +
		".attention.temperature_length .attention.temperature_scale .attention.key_length_mla " +
		".attention.value_length_mla .attention.shared_kv_layers .attention.indexer.*", only,
		"attention of this kind is not supported", none},

	{keys: ".rope.dimension_count .rope.dimension_count_swa .rope.freq_base .rope.freq_base_swa " +
		".rope.scaling.type .rope.scaling.factor .rope.scale_linear .rope.scaling.attn_factor " +
		".rope.scaling.original_context_length"},
	{keys: ".rope.scaling.finetuned", does: idle, why: "llama.cpp prints it"},
	{keys: ".rope.scaling.yarn_*", does: idle, why: "it is of the type yarn, which is refused"},
	{".rope.dimension_sections .rope.scaling.alpha", only, "rotation of this kind is not supported", none},

	{keys: "tokenizer.ggml.model tokenizer.ggml.pre tokenizer.ggml.tokens tokenizer.ggml.token_type " +
		"tokenizer.ggml.scores tokenizer.ggml.merges tokenizer.ggml.bos_token_id tokenizer.ggml.eos_token_id " +
		"tokenizer.ggml.eot_token_id tokenizer.ggml.eom_token_id tokenizer.ggml.unknown_token_id " +
		"tokenizer.ggml.padding_token_id tokenizer.ggml.add_bos_token tokenizer.ggml.add_eos_token " +
		"tokenizer.ggml.add_space_prefix tokenizer.chat_template tokenizer.chat_template.* tokenizer.chat_templates"},
	{keys: "tokenizer.ggml.seperator_token_id tokenizer.ggml.cls_token_id tokenizer.ggml.mask_token_id " +
		"tokenizer.ggml.fim_*_token_id tokenizer.ggml.prefix_token_id tokenizer.ggml.suffix_token_id " +
		"tokenizer.ggml.middle_token_id", does: idle, why: "it names a token that no text gets by itself"},
	{keys: "tokenizer.huggingface.json", does: idle, why: "llama.cpp does not read it"},
	{"tokenizer.ggml.token_type_count", only, "texts have one type", one},
	{"tokenizer.ggml.add_sep_token tokenizer.ggml.remove_extra_whitespaces", only,
		"the tokenizer does not do that", no},
	{"tokenizer.ggml.precompiled_charsmap tokenizer.rwkv.world tokenizer.ggml.normalizer.*", refused,
		"the tokenizer does not do that", nil},
}

// ruleOf finds the first rule of a key, whose architecture is taken off.
func ruleOf(key string) (keyRule, bool) {
	for _, rule := range keyRules {
		for pattern := range strings.FieldsSeq(rule.keys) {
			if ok, err := path.Match(pattern, key); ok && err == nil {
				return rule, true
			}
		}
	}
	return keyRule{}, false
}

// checkKeys refuses a key that changes tokens or logits in a way that an import does not know.
func checkKeys(x *gguf.Fields, architecture string) {
	for _, e := range x.File.Meta {
		rest, own := strings.CutPrefix(e.Key, architecture+".")
		key := e.Key
		if own {
			key = "." + rest
		}
		rule, known := ruleOf(key)
		switch {
		case !known && (own || strings.HasPrefix(key, "tokenizer.")):
			x.Fail(e.Key, "found %.60s: the key is unknown, and may change the model", shown(e.Value))
		case rule.does == refused:
			x.Fail(e.Key, "found %.60s, want none: %s", shown(e.Value), rule.why)
		case rule.does == only && !saysNothing(e.Value, rule.only):
			x.Fail(e.Key, "found %.60s, want %v or nothing: %s", shown(e.Value), rule.only[len(rule.only)-1], rule.why)
		}
	}
}

func shown(v any) string {
	if of := reflect.ValueOf(v); of.Kind() == reflect.Slice {
		return fmt.Sprintf("a list of %d values", of.Len())
	}
	return fmt.Sprintf("%v", v)
}

// saysNothing compares a value, or all values of a list, with those that say nothing.
func saysNothing(v any, nothing []any) bool {
	of := reflect.ValueOf(v)
	switch {
	case of.Kind() == reflect.Slice:
		for i := range of.Len() {
			if !saysNothing(of.Index(i).Interface(), nothing) {
				return false
			}
		}
		return true
	case of.CanInt():
		v = float64(of.Int())
	case of.CanUint():
		v = float64(of.Uint())
	case of.CanFloat():
		v = of.Float()
	}
	return slices.Contains(nothing, v)
}

// checkSame refuses a number that is given twice in another way.
func checkSame(x *gguf.Fields, key string, want float64) {
	if got := x.Float(key, 0); got != 0 && math.Abs(got-want) > 1e-5*math.Abs(want) {
		x.Fail(key, "found %g, want %g", got, want)
	}
}

// checkTwice compares numbers that a file gives again with those that the model has.
func checkTwice(x *gguf.Fields, c *model.Config, key func(string) string) {
	scale := float64(c.HeadDim)
	if gemma(c) {
		scale = c.QueryScale
	}
	checkSame(x, key("attention.scale"), 1/math.Sqrt(scale))
	checkSame(x, key("attention.key_length_swa"), float64(c.HeadDim))
	checkSame(x, key("attention.value_length_swa"), float64(c.HeadDim))
	checkSame(x, key("rope.dimension_count_swa"), float64(cmp.Or(c.RotaryDim, c.HeadDim)))
	if c.ModelType != "gemma3_text" {
		checkSame(x, key("rope.freq_base_swa"), c.RopeTheta)
		checkSame(x, key("final_logit_softcapping"), c.LogitCap)
	}
	checkSame(x, key("attn_logit_softcapping"), c.ScoreCap)
	if !gemma(c) {
		if n := x.Whole(key("attention.sliding_window_pattern"), 1); n > 1 {
			x.Fail(key("attention.sliding_window_pattern"), "found %d, want 1: a %s has the same window in all layers", n,
				c.ModelType)
		}
	}
	if s := c.RopeScaling; s == nil || s.Type != "longrope" {
		checkSame(x, key("rope.scaling.attn_factor"), 1)
	}
}
