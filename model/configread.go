package model

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/files"
)

// Bounds in bytes. A config has a few thousand, and read it takes forty times that; an index has a hundred a tensor.
const (
	maxJSON  = 4 << 20 // config.json, generation_config.json and adapter_config.json
	maxIndex = 64 << 20

	maxIndexed = 1 << 20 // tensors in an index
)

// ReadConfig reads a model folder's config.json and, if there is one, generation_config.json. Errors call the folder
// name.
func ReadConfig(fsys fs.FS, name string) (*Config, error) {
	data, err := files.Read(fsys, "config.json", maxJSON)
	if _, none := fs.Stat(fsys, adapterConfigFile); err != nil && none == nil {
		return nil, fmt.Errorf("%s holds an adapter, not a model: want the folder of its model, and this one as the "+
			"adapter", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: cannot read config.json: %w", name, files.Cause(err))
	}
	gen, err := files.Read(fsys, "generation_config.json", maxJSON)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s/generation_config.json: %w", name, files.Cause(err))
	}
	c, err := ParseConfig(data, gen)
	if err != nil {
		return nil, fmt.Errorf("%s/%w", name, err)
	}
	return c, nil
}

// ConfigLike reads the shape of a model from a config.json or from a folder that holds one. It reads no weights.
func ConfigLike(path string) (*Config, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, files.Cause(err))
	}
	if info.IsDir() {
		return ReadConfig(os.DirFS(path), path)
	}
	f, err := os.Open(path) // perhaps a pipe
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, files.Cause(err))
	}
	defer f.Close()
	data, err := files.ReadAll(f, maxJSON)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, files.Cause(err))
	}
	c, err := ParseConfig(data, nil)
	if err != nil {
		return nil, fmt.Errorf("%s/%w", filepath.Dir(path), err)
	}
	return c, nil
}

// ParseConfig parses the text of a config.json, as transformers 4 or 5 writes it, and of a generation_config.json,
// which may be empty and whose token ids have precedence, but for a reward model. Errors start with the file's name and
// the field.
func ParseConfig(config, generation []byte) (*Config, error) {
	raw, err := parseObject(config)
	if err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	f := &fields{values: raw}
	c := &Config{}
	c.takeTextPart(f)
	c.Raw = f.values
	c.readShape(f)
	c.readRope(f)
	c.readBiases(f)
	c.readWindow(f)
	if read := c.family().read; read != nil {
		read(c, f)
	}
	c.readHead(f)
	c.refuse(f)
	c.readIDs(f)
	if f.err == nil {
		f.err = c.Validate()
	}
	if f.err != nil {
		return nil, fmt.Errorf("config.json: %w", f.err)
	}
	if len(generation) == 0 || c.Reward {
		return c, nil
	}
	if c.Generation, err = parseObject(generation); err == nil { // its token ids replace config.json's
		f = &fields{values: c.Generation}
		c.readIDs(f)
		err = cmp.Or(f.err, c.validateIDs())
	}
	if err != nil {
		return nil, fmt.Errorf("generation_config.json: %w", err)
	}
	return c, nil
}

func (c *Config) readShape(f *fields) {
	c.ModelType = f.text("model_type", "")
	f.err = cmp.Or(f.err, c.validateType())
	for _, s := range c.sizes() {
		if def := c.family().sizes[s.key]; def > 0 {
			*s.value = f.whole(s.key, def)
		} else if s.required {
			*s.value = f.requireWhole(s.key)
		}
	}
	if f.isNull("num_key_value_heads") { // one for each query head
		c.KVHeads = c.Heads
	}
	c.KVHeads = f.whole("num_key_value_heads", cmp.Or(c.KVHeads, c.Heads))
	c.HeadDim = f.whole("head_dim", c.defaultHeadDim(f))
	c.MaxPositions = f.whole("max_position_embeddings", cmp.Or(c.MaxPositions, 2048))
	c.RMSNormEps = f.float("rms_norm_eps", cmp.Or(c.family().eps, 1e-6))
	c.InitRange = f.float("initializer_range", 0.02)
	c.TieEmbeddings = f.boolean("tie_word_embeddings", c.gemma())
	c.DType = f.text("dtype", f.text("torch_dtype", ""))
}

// defaultHeadDim is HiddenSize/Heads, but for families with another default.
func (c *Config) defaultHeadDim(f *fields) int {
	if c.HeadDim > 0 {
		return c.HeadDim
	}
	if def := c.family().headDim; def > 0 && !f.isNull("head_dim") {
		return def
	}
	if c.Heads < 1 {
		return 0
	}
	if _, given := f.get("head_dim"); !given && c.HiddenSize%c.Heads != 0 {
		f.fail("hidden_size", fmt.Sprint(c.HiddenSize),
			fmt.Sprintf("a multiple of num_attention_heads (%d), or a head_dim", c.Heads))
	}
	return c.HiddenSize / c.Heads
}

// readRope reads rope_parameters (transformers 5), or rope_theta and rope_scaling (transformers 4). Of both, rope_scaling
// counts, as in transformers 5.
func (c *Config) readRope(f *fields) {
	c.RopeTheta = f.float("rope_theta", cmp.Or(c.family().theta, 1e4))
	c.rotatePart(f)
	if c.ModelType == gemma3 {
		c.readGemmaRope(f)
		return
	}
	r := f.object("rope_scaling")
	if r == nil || len(r.values) == 0 {
		r = f.object("rope_parameters")
	}
	if r == nil {
		return
	}
	for k, v := range r.values {
		if _, nested := v.(map[string]any); nested {
			r.fail(k, "an object", "one set of rope parameters for all layers")
		}
	}
	c.takeRope(f, r)
}

// takeRope reads one set of rope parameters.
func (c *Config) takeRope(f, r *fields) {
	c.RopeTheta = r.float("rope_theta", c.RopeTheta)
	c.rotatePart(r)
	c.RopeScaling = c.readScaling(f, r)
	f.take(r)
}

// rotatePart reads which part of a head rotates.
func (c *Config) rotatePart(r *fields) {
	share := r.float("partial_rotary_factor", 1)
	switch {
	case share == 1:
	case !c.phi():
		r.fail("partial_rotary_factor", show(r.values["partial_rotary_factor"]), "1 for "+c.ModelType)
	case !(share > 0 && share < 1) || c.HeadDim > 1<<14:
		r.fail("partial_rotary_factor", show(r.values["partial_rotary_factor"]), "more than 0, at most 1")
	default:
		c.RotaryDim = max(1, int(float64(c.HeadDim)*share))
	}
}

func (c *Config) readBiases(f *fields) {
	family, attention := c.family(), f.boolean("attention_bias", false)
	c.QKVBias = family.bias == biasOfQKV || family.bias == biasAsked && attention
	c.OBias = family.bias == biasAsked && attention
	if attention && family.bias == noBias {
		f.fail("attention_bias", "true", "false for "+c.ModelType)
	}
	c.QKNorm = family.qkNorm
	c.MLPBias = f.boolean("mlp_bias", false)
	if c.MLPBias && !family.mlpBias {
		f.fail("mlp_bias", "true", "false for "+c.ModelType)
	}
}

func (c *Config) readWindow(f *fields) {
	_, given := f.get("sliding_window")
	has := false
	switch c.family().window {
	case windowUnlessNull:
		has = !f.isNull("sliding_window")
	case windowIfGiven:
		has = given
	case windowIfUsed:
		has = f.boolean("use_sliding_window", false) && !f.isNull("sliding_window")
	case windowAlways:
		has = true
	}
	if has {
		if c.SlidingWindow = f.whole("sliding_window", 4096); c.SlidingWindow < 1 { // transformers' default
			f.fail("sliding_window", fmt.Sprint(c.SlidingWindow), "1 or more, or null for off")
		}
	}
	c.readLayerTypes(f)
}

// readLayerTypes reads which layers have the window: layer_types if given, else by the family's own rule.
func (c *Config) readLayerTypes(f *fields) {
	v, given := f.get("layer_types")
	rule := c.family().windowLayers
	if !given {
		if rule != nil {
			rule(c, f)
		}
		return
	}
	list, isList := v.([]any)
	if !isList || len(list) != c.Layers {
		f.fail("layer_types", show(v), fmt.Sprintf("a list of %d names", c.Layers))
		return
	}
	layers := make([]bool, len(list))
	for i, e := range list {
		if e != "full_attention" && e != "sliding_attention" {
			f.fail("layer_types", show(e), "full_attention or sliding_attention")
		}
		layers[i] = e == "sliding_attention"
	}
	c.setLayers(f, layers, rule != nil)
}

func (c *Config) setLayers(f *fields, layers []bool, mixed bool) {
	any, all := slices.Contains(layers, true), !slices.Contains(layers, false)
	switch {
	case mixed && c.SlidingWindow > 0 && !any:
		c.SlidingWindow = 0
	case mixed && c.SlidingWindow > 0 && !all:
		c.WindowLayers = layers
	case !mixed && c.SlidingWindow > 0 && !all, !mixed && c.SlidingWindow == 0 && any:
		f.fail("layer_types", "a mixture that "+c.ModelType+" does not have",
			"the same for all layers, as in sliding_window")
	}
}

// classifier is the end of the names of transformers' classes with a head that scores texts.
const classifier = "ForSequenceClassification"

// readHead reads which head the model has.
func (c *Config) readHead(f *fields) {
	names, _ := f.values["architectures"].([]any)
	plain := false
	for _, n := range names {
		name, _ := n.(string)
		plain = plain || strings.HasSuffix(name, classifier)
		if c.Head = cmp.Or(c.Head, c.readScoreHead(f, name)); c.Head == nil && strings.Contains(name, "Reward") {
			f.fail("architectures", name, "…"+classifier+" with one label, "+armoClass+" (ArmoRM) or "+urmClass+
				" (URM): other heads that score are not supported")
		}
	}
	if c.Reward = plain || c.Head != nil; !c.Reward {
		return
	}
	c.TieEmbeddings = false
	if labels := labelsOf(f); labels != 1 && c.Head == nil {
		key := "num_labels"
		if f.object("id2label") != nil {
			key = "id2label"
		}
		f.fail(key, fmt.Sprintf("%d labels", labels), "1: the head of a reward model gives one number")
	}
}

// labelsOf is the number of labels; transformers' classes have two where nothing says it.
func labelsOf(f *fields) int {
	if names := f.object("id2label"); names != nil {
		return len(names.values)
	}
	return f.whole("num_labels", 2)
}

// refuse reports options that change the computation and that the decoder does not support.
func (c *Config) refuse(f *fields) {
	if act := f.text("hidden_act", "silu"); act != "silu" && act != "swish" && !c.gemma() {
		f.fail("hidden_act", fmt.Sprintf("%q", act), `"silu": other activations are not supported`)
	}
	for _, key := range []string{"attention_dropout", "resid_pdrop", "embd_pdrop"} {
		if p := f.float(key, 0); p != 0 {
			f.fail(key, fmt.Sprint(p), "0: dropout is not supported")
		}
	}
	if !f.boolean("is_causal", true) { // embedding models, such as gte-Qwen2
		f.fail("is_causal", "false", "true: a decoder sees earlier tokens only")
	}
	if f.boolean("use_mrope", false) {
		f.fail("use_mrope", "true", "false: only text models are supported")
	}
	if v, ok := f.get("quantization_config"); ok {
		f.fail("quantization_config", show(v),
			"no such key: quantised weights are not supported, use the float32, bfloat16 or float16 folder")
	}
}

// readIDs replaces the token ids by those that a file has.
func (c *Config) readIDs(f *fields) {
	c.BOS, c.Pad = cmp.Or(f.id("bos_token_id"), c.BOS), cmp.Or(f.id("pad_token_id"), c.Pad)
	if ids := f.ids("eos_token_id"); len(ids) > 0 {
		c.EOS = ids
	}
}
