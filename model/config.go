package model

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Config is the shape of a decoder, from config.json and generation_config.json.
type Config struct {
	ModelType        string  // one of Types
	VocabSize        int     // V, rows of the embedding
	HiddenSize       int     // H
	IntermediateSize int     // width of the gated block
	Layers           int     // number of decoder layers
	Heads            int     // h, query heads
	KVHeads          int     // kv, key/value heads; Heads is a multiple of it
	HeadDim          int     // D, even; may differ from HiddenSize/Heads
	MaxPositions     int     // positions that the model was trained for; the graph does not check them
	RMSNormEps       float64 // added to the mean square before the root
	InitRange        float64 // standard deviation of random weights (initializer_range)

	RopeTheta   float64      // base of the rotary frequencies
	RopeScaling *RopeScaling // nil: no scaling ("default")
	RotaryDim   int          // R, the numbers at the head of every head that rotate, even; 0: all (D)
	LocalTheta  float64      // gemma3: base in the layers with the window, which have no scaling; 0: as in all layers

	SlidingWindow int    // a query sees keys less than this many positions back; 0: off
	WindowLayers  []bool // [Layers], the layers with the window; nil: all

	TieEmbeddings bool // the head is the embedding's table
	QKVBias       bool // biases on q, k, v (qwen2; llama and qwen3 with attention_bias)
	OBias         bool // a bias on the attention's output (llama and qwen3 with attention_bias)
	MLPBias       bool // biases on gate, up, down (llama with mlp_bias)
	QKNorm        bool // RMSNorm of every head's query and key before the rotation (qwen3)

	Experts       int  // E, of mixtures of experts; 0: one MLP
	ActiveExperts int  // k, that a token gets
	ExpertSize    int  // width of an expert
	NormExperts   bool // their weights add up to 1

	QueryScale float64 // scores of attention are divided by its root (gemma's query_pre_attn_scalar); 0: HeadDim
	ScoreCap   float64 // scores z of attention become cap*tanh(z/cap) (gemma2); 0: as they are
	LogitCap   float64 // the same for the head's logits

	Reward bool       // the head gives a text one score; false: a logit for each token
	Head   *ScoreHead // of a reward model; nil: score.weight [1, H]

	LoRA *LoRA // the adapter; nil: none

	BOS, Pad *int   // nil: not given. Pad ids behind a text do not count where it is scored
	EOS      []int  // ids that end a text
	DType    string // of the folder's weights: float32, bfloat16 or float16; "": unknown

	joined   bool // q, k, v are one matrix, and gate, up ([Config.Joined])
	textPart bool // it is the text part of a model that also sees, whose tensors have longer names

	Raw        map[string]any // config.json as read, so that saving keeps keys that the decoder does not use
	Generation map[string]any // generation_config.json as read; nil: no such file
}

// DiffersFrom names the first property in which two configs of models compute or end texts differently, with both
// values; "" if they do not differ. What weights are stored in, and how many positions they were trained for, does not
// count.
func (c *Config) DiffersFrom(d *Config) string {
	a, b := reflect.ValueOf(c.computing()), reflect.ValueOf(d.computing())
	for i := range a.NumField() {
		f := a.Type().Field(i)
		if f.IsExported() && !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			return fmt.Sprintf("%s %+v, not %+v", f.Name, reflect.Indirect(a.Field(i)), reflect.Indirect(b.Field(i)))
		}
	}
	return ""
}

// computing is the config without what neither the graph nor a sampler uses.
func (c *Config) computing() Config {
	d := *c
	d.DType, d.InitRange, d.MaxPositions, d.BOS, d.Pad, d.LoRA, d.Raw, d.Generation = "", 0, 0, nil, nil, nil, nil, nil
	if d.RotaryDim == d.HeadDim {
		d.RotaryDim = 0
	}
	return d
}

// Window is a layer's sliding window in positions, 0 if it sees all positions before it.
func (c *Config) Window(layer int) int {
	if c.WindowLayers == nil || c.WindowLayers[layer] {
		return c.SlidingWindow
	}
	return 0
}

// maxDim limits the sizes in a config, so that products of them fit an int64.
const maxDim = 1 << 24

// Validate reports the first impossible value by its name in config.json.
func (c *Config) Validate() error {
	return cmp.Or(c.validateType(), c.validateSizes(), c.validateNumbers(), c.RopeScaling.validate(),
		c.validateFactors(), c.validateIDs())
}

// want is the error of a value that is not ok.
func want(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func (c *Config) validateType() error {
	last := len(Types) - 1
	return want(slices.Contains(Types, c.ModelType), "model_type: found %q, supported are %s and %s", c.ModelType,
		strings.Join(Types[:last], ", "), Types[last])
}

// size is a whole number above 0 of config.json.
type size struct {
	key      string
	value    *int
	limit    int
	required bool // there is no default
}

func (c *Config) sizes() []size {
	return []size{
		{"vocab_size", &c.VocabSize, maxDim, true}, {"hidden_size", &c.HiddenSize, 1 << 20, true},
		{"intermediate_size", &c.IntermediateSize, 1 << 20, true}, {"num_hidden_layers", &c.Layers, 4096, true},
		{"num_attention_heads", &c.Heads, 4096, true}, {"num_key_value_heads", &c.KVHeads, 4096, false},
		{"head_dim", &c.HeadDim, 1 << 14, false}, {"max_position_embeddings", &c.MaxPositions, 1 << 30, false},
	}
}

func (c *Config) validateSizes() error {
	for _, s := range c.sizes() {
		if *s.value < 1 || *s.value > s.limit {
			return fmt.Errorf("%s: found %d, want 1 to %d", s.key, *s.value, s.limit)
		}
	}
	return cmp.Or(
		want(c.Heads%c.KVHeads == 0, "num_key_value_heads: found %d, want a divisor of num_attention_heads (%d)",
			c.KVHeads, c.Heads),
		want(c.HeadDim%2 == 0, "head_dim: found %d, want an even number (rotary embedding rotates pairs)", c.HeadDim),
		want(c.RotaryDim >= 0 && c.RotaryDim <= c.HeadDim && c.RotaryDim%2 == 0,
			"partial_rotary_factor: found %d of %d numbers of a head, want an even number", c.RotaryDim, c.HeadDim),
		want(c.SlidingWindow >= 0, "sliding_window: found %d, want 1 or more, or null for off", c.SlidingWindow),
		want(c.WindowLayers == nil || len(c.WindowLayers) == c.Layers,
			"layer_types: found %d entries, want one for each of %d layers", len(c.WindowLayers), c.Layers))
}

func (c *Config) validateNumbers() error {
	return cmp.Or(
		want(c.RMSNormEps >= 0 && c.RMSNormEps < 1, "rms_norm_eps: found %g, want 0 to 1", c.RMSNormEps),
		want(c.RopeTheta > 1 && c.RopeTheta < 1e18, "rope_theta: found %g, want more than 1", c.RopeTheta),
		want(c.LocalTheta == 0 || c.LocalTheta > 1 && c.LocalTheta < 1e18,
			"rope_local_base_freq: found %g, want more than 1", c.LocalTheta),
		want(c.QueryScale >= 0 && c.QueryScale < 1e9, "query_pre_attn_scalar: found %g, want more than 0",
			c.QueryScale),
		want(c.ScoreCap >= 0 && c.ScoreCap < 1e9, "attn_logit_softcapping: found %g, want more than 0, or null for off",
			c.ScoreCap),
		want(c.LogitCap >= 0 && c.LogitCap < 1e9,
			"final_logit_softcapping: found %g, want more than 0, or null for off", c.LogitCap),
		want(c.InitRange >= 0 && c.InitRange < 100, "initializer_range: found %g, want 0 or more", c.InitRange),
		want(c.DType == "" || fileDTypes[c.DType] != "",
			"torch_dtype: found %q, supported are float32, bfloat16 and float16", c.DType))
}

// validateIDs leaves out Pad: published models have pad ids of -1 or beyond the vocabulary, and the graph never reads
// them.
func (c *Config) validateIDs() error {
	check := func(field string, id int) error {
		return want(id >= 0 && id < c.VocabSize, "%s: found %d, want an id below vocab_size (%d)", field, id,
			c.VocabSize)
	}
	for _, id := range c.EOS {
		if err := check("eos_token_id", id); err != nil {
			return err
		}
	}
	if c.BOS == nil {
		return nil
	}
	return check("bos_token_id", *c.BOS)
}
