package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// base is a small valid config as transformers 4 writes it.
func base(modelType string) map[string]any {
	return map[string]any{
		"model_type": modelType, "vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3,
		"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
		"rope_theta": 50000.0, "rope_scaling": nil, "torch_dtype": "bfloat16", "tie_word_embeddings": false,
		"hidden_act":   map[bool]string{true: geluTanh, false: "silu"}[modelType == "gemma"],
		"eos_token_id": 2,
	}
}

// with returns m with changed values, given as pairs of key and value. The value drop removes the key.
func with(m map[string]any, pairs ...any) map[string]any {
	m = maps.Clone(m)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == drop {
			delete(m, pairs[i].(string))
		} else {
			m[pairs[i].(string)] = pairs[i+1]
		}
	}
	return m
}

const drop = "\x00drop"

func text(t testing.TB, m map[string]any) []byte {
	t.Helper()
	return expect.Must(json.Marshal(m))(t)
}

func parse(t *testing.T, m map[string]any) *Config {
	t.Helper()
	return expect.Must(ParseConfig(text(t, m), nil))(t)
}

func TestGenerationsReadAlike(t *testing.T) {
	scaling := map[string]any{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
		"original_max_position_embeddings": 32}
	older := parse(t, with(base("llama"), "rope_scaling", scaling))
	newer := parse(t, with(base("llama"), "rope_theta", drop, "rope_scaling", drop, "torch_dtype", drop, "dtype",
		"bfloat16",
		"rope_parameters", with(scaling, "rope_theta", 50000.0)))
	older.Raw, newer.Raw = nil, nil
	if !reflect.DeepEqual(older, newer) {
		t.Errorf("older %+v\nnewer %+v", older, newer)
	}
	want := &RopeScaling{Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 32}
	if older.RopeTheta != 50000 || !reflect.DeepEqual(older.RopeScaling, want) || older.DType != "bfloat16" {
		t.Errorf("theta %v scaling %+v dtype %q", older.RopeTheta, older.RopeScaling, older.DType)
	}
}

func TestConfigReads(t *testing.T) {
	qwen := with(base("qwen2"), "use_sliding_window", true, "sliding_window", 8, "max_window_layers", 2)
	cases := []struct {
		name string
		m    map[string]any
		ok   func(c *Config) bool
	}{
		{"head_dim absent", base("llama"), func(c *Config) bool { return c.HeadDim == 4 }},
		{"head_dim null", with(base("qwen3"), "head_dim", nil), func(c *Config) bool { return c.HeadDim == 4 }},
		{"head_dim given", with(base("llama"), "head_dim", 10), func(c *Config) bool { return c.HeadDim == 10 }},
		{"qwen3 head_dim absent is its class's", base("qwen3"),
			func(c *Config) bool { return c.HeadDim == 128 && c.QKNorm && !c.QKVBias }},
		{"kv heads null", with(base("mistral"), "num_key_value_heads", nil),
			func(c *Config) bool { return c.KVHeads == 4 }},
		{"kv heads absent, llama", with(base("llama"), "num_key_value_heads", drop),
			func(c *Config) bool { return c.KVHeads == 4 }},
		{"tie absent", with(base("llama"), "tie_word_embeddings", drop),
			func(c *Config) bool { return !c.TieEmbeddings }},
		{"eos number", base("llama"), func(c *Config) bool { return reflect.DeepEqual(c.EOS, []int{2}) }},
		{"eos list", with(base("llama"), "eos_token_id", []int{3, 5}),
			func(c *Config) bool { return reflect.DeepEqual(c.EOS, []int{3, 5}) }},
		{"qwen2 biases", base("qwen2"), func(c *Config) bool { return c.QKVBias && !c.OBias && !c.MLPBias }},
		{"llama biases", with(base("llama"), "attention_bias", true, "mlp_bias", true),
			func(c *Config) bool { return c.QKVBias && c.OBias && c.MLPBias }},
		{"mistral window null", with(base("mistral"), "sliding_window", nil),
			func(c *Config) bool { return c.SlidingWindow == 0 }},
		{"mistral window absent is its class's", base("mistral"), func(c *Config) bool { return c.Window(0) == 4096 }},
		{"mistral window", with(base("mistral"), "sliding_window", 6),
			func(c *Config) bool { return c.Window(0) == 6 && c.Window(2) == 6 }},
		{"qwen2 window off", with(qwen, "use_sliding_window", false),
			func(c *Config) bool { return c.SlidingWindow == 0 && c.Window(2) == 0 }},
		{"qwen2 window from a layer on", qwen, func(c *Config) bool { return c.Window(1) == 0 && c.Window(2) == 8 }},
		{"qwen2 window beyond the layers", with(qwen, "max_window_layers", 28),
			func(c *Config) bool { return c.SlidingWindow == 0 }},
		{"layer_types win", with(qwen, "layer_types", []string{"sliding_attention", "full_attention",
			"full_attention"}),
			func(c *Config) bool { return c.Window(0) == 8 && c.Window(2) == 0 }},
		{"linear rope under its old name", with(base("llama"), "rope_scaling",
			map[string]any{"type": "linear", "factor": 4.0}),
			func(c *Config) bool { return c.RopeScaling.Type == "linear" && c.RopeScaling.Factor == 4 }},
		{"default rope", with(base("llama"), "rope_scaling", map[string]any{"rope_type": "default"}),
			func(c *Config) bool { return c.RopeScaling == nil }},
	}
	for _, k := range cases {
		t.Run(k.name, func(t *testing.T) {
			if c := parse(t, k.m); !k.ok(c) {
				t.Errorf("%+v", c)
			}
		})
	}
}

func TestConfigRefuses(t *testing.T) {
	cases := []struct {
		name string
		m    map[string]any
		want string
	}{
		{"type", base("gpt2"), `model_type: found "gpt2", supported are llama, mistral, qwen2, qwen3, gemma, gemma2, ` +
			"gemma3_text, phi3, mixtral and qwen3_moe"},
		{"no type", with(base("llama"), "model_type", drop), `model_type: found ""`},
		{"activation", with(base("llama"), "hidden_act", "gelu"), `hidden_act: found "gelu", want "silu"`},
		{"rope type", with(base("llama"), "rope_scaling", map[string]any{"rope_type": "ntk", "factor": 4.0}),
			`rope_scaling.rope_type: found "ntk", supported are default, linear, llama3, dynamic, yarn and longrope`},
		{"newer rope type", with(base("llama"), "rope_parameters",
			map[string]any{"rope_type": "proportional", "factor": 4.0}),
			`rope_parameters.rope_type: found "proportional"`},
		{"yarn's bounds", with(base("llama"), "rope_scaling",
			map[string]any{"rope_type": "yarn", "factor": 4.0, "beta_fast": 1, "beta_slow": 2}),
			"rope_scaling: found beta_slow 2 and beta_fast 1, want 0 < slow < fast"},
		{"longrope's factors", with(base("phi3"), "original_max_position_embeddings", 64, "rope_scaling",
			map[string]any{"type": "longrope", "short_factor": []int{1}, "long_factor": []int{1, 2}}),
			"rope_scaling.short_factor: found 1 numbers, want 2, half of a head's rotated part"},
		{"a factor", with(base("phi3"), "original_max_position_embeddings", 64, "rope_scaling",
			map[string]any{"type": "longrope", "short_factor": []any{1, "2"}, "long_factor": []int{1, 2}}),
			`rope_scaling.short_factor: found [1,"2"], want a list of numbers`},
		{"partial rotation", with(base("llama"), "partial_rotary_factor", 0.5),
			"partial_rotary_factor: found 0.5, want 1 for llama"},
		{"auxiliary loss", with(base("mixtral"), "output_router_logits", true),
			"output_router_logits: found true, want false: the routers' auxiliary loss is not supported"},
		{"experts", with(base("qwen3_moe"), "num_experts", 4, "num_experts_per_tok", 5),
			"num_experts_per_tok: found 5, want 1 to 4, the experts"},
		{"no experts", with(base("mixtral"), "num_local_experts", 0), "num_local_experts: found 0, want 1 to 4096"},
		{"no layers of gemma", with(base("gemma2"), "num_hidden_layers", 0),
			"num_hidden_layers: found 0, want 1 to 4096"},
		{"layers without experts", with(base("qwen3_moe"), "mlp_only_layers", []int{1}),
			"mlp_only_layers: found [1], want no layers"},
		{"phi3 dropout", with(base("phi3"), "resid_pdrop", 0.1), "resid_pdrop: found 0.1, want 0"},
		{"both directions", with(base("gemma3_text"), "use_bidirectional_attention", true),
			"use_bidirectional_attention: found true, want false"},
		{"both directions in qwen2", with(base("qwen2"), "is_causal", false), "is_causal: found false, want true"},
		{"gemma's activation", with(base("gemma2"), "hidden_activation", "gelu"),
			`hidden_activation: found "gelu", want "gelu_pytorch_tanh"`},
		{"first gemma's activation", with(base("gemma"), "hidden_act", "silu"),
			`hidden_act: found "silu", want "gelu_pytorch_tanh"`},
		{"gemma's cap", with(base("gemma2"), "attn_logit_softcapping", -1),
			"attn_logit_softcapping: found -1, want more than 0, or null for off"},
		{"a model that sees, without text", map[string]any{"model_type": "gemma3"}, "text_config: found nothing"},
		{"in the text part", map[string]any{"model_type": "gemma3", "text_config": map[string]any{"head_dim": "a"}},
			`text_config.head_dim: found "a", want a whole number`},
		{"nested rope", with(base("llama"), "rope_parameters", map[string]any{"full_attention": map[string]any{}}),
			"rope_parameters.full_attention"},
		{"rope factor", with(base("llama"), "rope_scaling", map[string]any{"type": "linear"}),
			"rope_scaling.factor: found 0"},
		{"heads", with(base("llama"), "num_key_value_heads", 3),
			"num_key_value_heads: found 3, want a divisor of num_attention_heads (4)"},
		{"odd heads", with(base("llama"), "hidden_size", 18),
			"hidden_size: found 18, want a multiple of num_attention_heads (4)"},
		{"odd head_dim", with(base("llama"), "head_dim", 5), "head_dim: found 5, want an even number"},
		{"no layers", with(base("llama"), "num_hidden_layers", drop),
			"num_hidden_layers: found nothing, want a whole number"},
		{"wrong kind", with(base("llama"), "vocab_size", "many"), `vocab_size: found "many", want a whole number`},
		{"fraction", with(base("llama"), "vocab_size", 10.5), "vocab_size: found 10.5"},
		{"quantised", with(base("llama"), "quantization_config", map[string]any{"bits": 4}), "quantization_config"},
		{"dropout", with(base("qwen2"), "attention_dropout", 0.1), "attention_dropout: found 0.1, want 0"},
		{"mistral bias", with(base("mistral"), "attention_bias", true),
			"attention_bias: found true, want false for mistral"},
		{"dtype", with(base("llama"), "torch_dtype", "int8"), `torch_dtype: found "int8"`},
		{"eos beyond", with(base("llama"), "eos_token_id", 64),
			"eos_token_id: found 64, want an id below vocab_size (64)"},
		{"window", with(base("mistral"), "sliding_window", 0), "sliding_window: found 0, want 1 or more"},
		{"layer types", with(base("qwen2"), "layer_types", []string{"full_attention"}), "layer_types"},
		{"chunked layers", with(base("llama"), "layer_types",
			[]string{"full_attention", "chunked_attention", "full_attention"}),
			`layer_types: found "chunked_attention"`},
	}
	for _, k := range cases {
		t.Run(k.name, func(t *testing.T) {
			_, err := ParseConfig(text(t, k.m), nil)
			if err == nil || !strings.Contains(err.Error(), "config.json: "+k.want) {
				t.Errorf("got %v, want %q", err, k.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one line", err)
			}
		})
	}
}

func TestGenerationConfigHasPrecedence(t *testing.T) {
	c := expect.Must(ParseConfig(text(t, base("llama")),
		[]byte(`{"eos_token_id": [7, 8], "bos_token_id": 1, "temperature": 0.6}`)))(t)
	if !reflect.DeepEqual(c.EOS, []int{7, 8}) || *c.BOS != 1 {
		t.Errorf("eos %v bos %v", c.EOS, c.BOS)
	}
	b, err := c.GenerationJSON()
	if err != nil || !strings.Contains(string(b), `"temperature": 0.6`) {
		t.Errorf("generation_config.json: %s %v, want all keys kept", b, err)
	}
}

// TestBothRopes: of both spellings transformers 5.24 reads rope_scaling, and theta beside it; of gemma3 rope_scaling's
// keys come over full_attention's (AutoConfig.from_pretrained(...).rope_parameters).
func TestBothRopes(t *testing.T) {
	linear := map[string]any{"rope_type": "linear", "factor": 2.0}
	newer := map[string]any{"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5}
	gemma := map[string]any{"full_attention": map[string]any{"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
		"sliding_attention": map[string]any{"rope_type": "default", "rope_theta": 1e4}}
	plain := map[string]any{"full_attention": map[string]any{"rope_type": "default", "rope_theta": 3e6}}
	for _, c := range []struct {
		kind                 string
		scaling, parameters  any
		theta, factor, local float64
	}{
		{"llama", linear, newer, 2e6, 2, 0},
		{"llama", linear, map[string]any{"rope_type": "default", "rope_theta": 5e5}, 2e6, 2, 0},
		{"llama", nil, newer, 5e5, 4, 0},
		{"llama", map[string]any{}, newer, 5e5, 4, 0},
		{"gemma3_text", linear, gemma, 1e6, 2, 1e4},
		{"gemma3_text", linear, plain, 3e6, 2, 2e4},
		{"gemma3_text", nil, gemma, 1e6, 8, 1e4},
		{"gemma3_text", linear, drop, 2e6, 2, 2e4},
	} {
		m := with(base(c.kind), "rope_theta", 2e6, "rope_scaling", c.scaling, "rope_parameters", c.parameters)
		if c.local > 0 {
			m["rope_local_base_freq"] = 2e4
		}
		got := parse(t, m)
		if got.RopeScaling == nil || got.RopeTheta != c.theta || got.RopeScaling.Factor != c.factor ||
			got.LocalTheta != c.local {
			t.Errorf("%s %v %v: theta %v, %+v, local %v", c.kind, c.scaling, c.parameters, got.RopeTheta, got.RopeScaling,
				got.LocalTheta)
		}
	}
}

// A config that is written and read again is the same, with the keys that the decoder does not use.
func TestConfigRoundTrip(t *testing.T) {
	scaling := map[string]any{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
		"original_max_position_embeddings": 32}
	for name, m := range map[string]map[string]any{
		"llama": with(base("llama"), "rope_scaling", scaling, "attention_bias", true, "eos_token_id", []int{3, 5},
			"summary_type", "first"),
		"newer": with(base("qwen3"), "rope_theta", drop, "rope_scaling", drop, "torch_dtype", drop, "dtype",
			"float16", "rope_parameters", map[string]any{"rope_type": "linear", "factor": 2.0, "rope_theta": 1e6}),
		"mistral": with(base("mistral"), "sliding_window", 6),
		"qwen2":   with(base("qwen2"), "use_sliding_window", true, "sliding_window", 8, "max_window_layers", 2),
		"types": with(base("qwen3"), "use_sliding_window", true, "sliding_window", 8, "layer_types",
			[]string{"sliding_attention", "full_attention", "sliding_attention"}),
		"yarn": with(base("qwen2"), "rope_scaling", map[string]any{"type": "yarn", "factor": 4.0,
			"original_max_position_embeddings": 32, "truncate": false, "mscale": 1.5}),
		"dynamic": with(base("llama"), "rope_scaling", map[string]any{"type": "dynamic", "factor": 2.0}),
		"phi3": with(base("phi3"), "original_max_position_embeddings", 64, "hidden_size", 64,
			"partial_rotary_factor", 0.75, "rope_scaling", map[string]any{"type": "su",
				"short_factor": []float64{1, 1, 1, 2, 2, 3}, "long_factor": []float64{2, 2, 2, 3, 3, 4}}),
		"mixtral":   base("mixtral"),
		"qwen3_moe": with(base("qwen3_moe"), "num_experts", 6, "num_experts_per_tok", 2, "norm_topk_prob", true),
		"gemma2":    with(base("gemma2"), "final_logit_softcapping", nil),
		"gemma3": with(base("gemma3_text"), "rope_theta", drop, "rope_scaling", drop, "rope_parameters",
			map[string]any{"full_attention": map[string]any{"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
				"sliding_attention": map[string]any{"rope_type": "default", "rope_theta": 1e4}}),
	} {
		t.Run(name, func(t *testing.T) {
			c := parse(t, m)
			b := expect.Must(c.JSON("float16"))(t)
			again, err := ParseConfig(b, nil)
			if err != nil {
				t.Fatalf("%v in %s", err, b)
			}
			if again.DType != "float16" {
				t.Errorf("dtype %q", again.DType)
			}
			for _, newer := range []string{"rope_parameters", `"dtype"`} {
				if strings.Contains(string(b), newer) {
					t.Errorf("want no key of transformers 5 in %s", b)
				}
			}
			if name == "llama" && again.Raw["summary_type"] != "first" {
				t.Error("an unknown key is missing")
			}
			c.Raw, again.Raw, c.DType = nil, nil, "float16"
			if !reflect.DeepEqual(c, again) {
				t.Errorf("\n%+v\n%+v", c, again)
			}
		})
	}
}

// transformers 5 refuses 3 for a float.
func TestLimitsAreWrittenAsFloats(t *testing.T) {
	b, err := parse(t, with(base("gemma2"), "attn_logit_softcapping", 3.0)).JSON("float32")
	if err != nil || !strings.Contains(string(b), `"attn_logit_softcapping": 3.0`) {
		t.Errorf("%s (%v)", b, err)
	}
}

func TestConfigLike(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.json")
	if _, err := ConfigLike(path); err == nil {
		t.Error("a missing file: got no error")
	}
	expect.Write(t, path, text(t, base("llama")))
	for _, p := range []string{dir, path} {
		if c, err := ConfigLike(p); err != nil || c.HiddenSize != 16 {
			t.Errorf("%s: %+v %v", p, c, err)
		}
	}
}

// TestLargeConfigs: read, a list of numbers takes forty times its text, and an index may name very many files.
func TestLargeConfigs(t *testing.T) {
	large := fstest.MapFS{"config.json": {Data: []byte(`{"a": [` + strings.Repeat("0,", maxJSON/2) + `0]}`)}}
	_, err := ReadConfig(large, "dir")
	expect.Error(t, err, "dir: cannot read config.json: longer than 4 MiB")
	var index strings.Builder
	index.WriteString(`{"weight_map": {`)
	for i := range 200_000 {
		fmt.Fprintf(&index, `"%d": "f%d",`, i, i)
	}
	shardOf, err := parseIndex([]byte(index.String() + `"a": "f1"}}`))
	if err != nil || len(shardOf) != 200_001 {
		t.Errorf("%d tensors, %v", len(shardOf), err)
	}
	_, err = parseIndex([]byte(strings.Repeat(",", maxIndexed+1)))
	expect.Error(t, err, "found 1048577 commas, want at most 1048576")
}

func FuzzParseConfig(f *testing.F) {
	for _, kind := range Types {
		f.Add(text(f, base(kind)), []byte(`{"eos_token_id": [1]}`))
	}
	f.Add(text(f, with(base("llama"), "rope_parameters", map[string]any{"rope_type": "llama3", "factor": 2})),
		[]byte(nil))
	f.Fuzz(func(t *testing.T, config, generation []byte) {
		c, err := ParseConfig(config, generation)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			return
		}
		if c.ParamCount() < 1 {
			t.Errorf("%d parameters", c.ParamCount())
		}
		b := expect.Must(c.JSON("float32"))(t)
		again, err := ParseConfig(b, nil)
		if err != nil {
			t.Fatalf("%v in %s", err, b)
		}
		c.Raw, again.Raw, c.Generation, c.DType = nil, nil, nil, "float32"
		c.textPart = false
		if !reflect.DeepEqual(c, again) {
			t.Errorf("\n%+v\n%+v", c, again)
		}
	})
}

// TestDiffersFrom: what changes the function of the weights is named, what does not is not.
func TestDiffersFrom(t *testing.T) {
	c := Config{ModelType: "llama", RMSNormEps: 1e-5, RopeTheta: 1e4, HeadDim: 4, EOS: []int{2}}
	for want, change := range map[string]func(d *Config){
		"":                               func(d *Config) { d.DType, d.MaxPositions, d.RotaryDim = "float16", 9, 4 },
		"RMSNormEps 0.01, not 1e-05":     func(d *Config) { d.RMSNormEps = 0.01 },
		"RopeTheta 5000, not 10000":      func(d *Config) { d.RopeTheta = 5e3 },
		"LocalTheta 10, not 0":           func(d *Config) { d.LocalTheta = 10 },
		"SlidingWindow 8, not 0":         func(d *Config) { d.SlidingWindow = 8 },
		"WindowLayers [true], not []":    func(d *Config) { d.WindowLayers = []bool{true} },
		"ScoreCap 50, not 0":             func(d *Config) { d.ScoreCap = 50 },
		"NormExperts true, not false":    func(d *Config) { d.NormExperts = true },
		"ModelType gemma2, not llama":    func(d *Config) { d.ModelType = "gemma2" },
		"EOS [3], not [2]":               func(d *Config) { d.EOS = []int{3} },
		"RopeScaling {Type:linear Facto": func(d *Config) { d.RopeScaling = &RopeScaling{Type: "linear", Factor: 2} },
	} {
		d := c
		change(&d)
		if got := d.DiffersFrom(&c); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
