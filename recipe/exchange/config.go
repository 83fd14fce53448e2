package exchange

import (
	"fmt"
	"math"
	"slices"

	"github.com/posttrain/posttrain/internal/gguf"
	"github.com/posttrain/posttrain/model"
)

// architectures are llama.cpp's names of the model types. It runs mistral as a llama.
var architectures = map[string]string{"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}

// sizes are numbers of a model that a file must have.
var sizes = []struct {
	key string
	of  func(*model.Config) *int
}{
	{"context_length", func(c *model.Config) *int { return &c.MaxPositions }},
	{"embedding_length", func(c *model.Config) *int { return &c.HiddenSize }},
	{"block_count", func(c *model.Config) *int { return &c.Layers }},
	{"feed_forward_length", func(c *model.Config) *int { return &c.IntermediateSize }},
	{"attention.head_count", func(c *model.Config) *int { return &c.Heads }},
}

// readConfig makes a model's config of a file's metadata and of the tensors that it has.
func readConfig(f *gguf.File) (*model.Config, error) {
	x := &gguf.Fields{File: f}
	kind := x.Text("general.architecture", "")
	if architectures[kind] != kind || kind == "" {
		x.Fail("general.architecture", "found %q, want llama, qwen2 or qwen3", kind)
	}
	c := &model.Config{ModelType: kind, InitRange: 0.02}
	key := func(name string) string { return kind + "." + name }
	for _, size := range sizes {
		*size.of(c) = x.Need(key(size.key))
	}
	c.KVHeads = x.Whole(key("attention.head_count_kv"), c.Heads)
	c.HeadDim = x.Whole(key("attention.key_length"), c.HiddenSize/max(1, c.Heads))
	c.RMSNormEps = x.Float(key("attention.layer_norm_rms_epsilon"), 1e-6)
	c.RopeTheta = x.Float(key("rope.freq_base"), 10000)
	c.VocabSize = len(x.Texts("tokenizer.ggml.tokens"))
	c.SlidingWindow = x.Whole(key("attention.sliding_window"), 0)
	if c.SlidingWindow > 0 && kind == "llama" {
		c.ModelType = "mistral"
	}
	for _, part := range []struct {
		name, without string
		want          int
	}{{"attention.value_length", "values of another length than keys are", c.HeadDim},
		{"rope.dimension_count", "partial rotation is", c.HeadDim}, {"expert_count", "mixtures of experts are", 0}} {
		if n := x.Whole(key(part.name), part.want); n != part.want {
			x.Fail(key(part.name), "found %d, want %d: %s not supported", n, part.want, part.without)
		}
	}
	readScaling(x, c, key)
	readIDs(x, c)
	if x.Err != nil {
		return nil, x.Err
	}
	has := func(name string) bool { return f.Find(name) != nil }
	c.TieEmbeddings = !has("output.weight")
	c.QKVBias, c.OBias = has("blk.0.attn_q.bias"), has("blk.0.attn_output.bias")
	c.MLPBias, c.QKNorm = has("blk.0.ffn_up.bias"), kind == "qwen3"
	if table := f.Find("token_embd.weight"); table != nil && len(table.Shape) == 2 {
		c.VocabSize = max(c.VocabSize, table.Shape[0]) // tables may have rows that no token has
	}
	// The config of a folder has attention_bias, of all four, and of a qwen2 those of three.
	if qwen2 := c.ModelType == "qwen2"; c.OBias != (c.QKVBias && !qwen2) || qwen2 && !c.QKVBias {
		x.Fail("biases", "found blk.0.attn_q.bias %v and blk.0.attn_output.bias %v, want true and false in a qwen2, "+
			"and both or neither in others", c.QKVBias, c.OBias)
		return nil, x.Err
	}
	return c, c.Validate()
}

// readScaling reads how frequencies are stretched. Llama 3.1's factors are a tensor: the settings that give it are
// looked for among those of released models.
func readScaling(x *gguf.Fields, c *model.Config, key func(string) string) {
	switch kind := x.Text(key("rope.scaling.type"), "none"); kind {
	case "none":
	case "linear":
		c.RopeScaling = &model.RopeScaling{Type: "linear", Factor: x.Float(key("rope.scaling.factor"), 0)}
	default:
		x.Fail(key("rope.scaling.type"), "found %q, want none or linear", kind)
	}
	t := x.File.Find(ropeFactors)
	if t == nil || x.Err != nil {
		return
	}
	if t.Size() != c.HeadDim/2 {
		x.Fail(ropeFactors, "found %d factors, want %d, half of a head", t.Size(), c.HeadDim/2)
		return
	}
	factors := make([]float32, t.Size())
	if x.Err = x.File.Read(t, factors); x.Err != nil {
		return
	}
	if slices.Max(factors) == 1 && slices.Min(factors) == 1 {
		return
	}
	trained := []int{8192, x.Whole(key("rope.scaling.original_context_length"), 8192)}
	for _, positions := range trained {
		s := &model.RopeScaling{Type: "llama3", Factor: float64(slices.Max(factors)), LowFreqFactor: 1,
			HighFreqFactor: 4, OriginalMaxPositions: positions}
		if slices.EqualFunc(factors, llamaFactors(c, s), near) {
			c.RopeScaling = s
			return
		}
	}
	x.Fail(ropeFactors, "found factors up to %g that are not Llama 3.1's: want those of low_freq_factor 1, "+
		"high_freq_factor 4 and %d positions", slices.Max(factors), trained[0])
}

func near(a, b float32) bool { return math.Abs(float64(a)-float64(b)) <= 1e-5*math.Abs(float64(b)) }

// llamaFactors are the numbers that Llama 3.1's frequencies are divided by, [D/2].
func llamaFactors(c *model.Config, s *model.RopeScaling) []float32 {
	plain, stretched := *c, *c
	plain.RopeScaling, stretched.RopeScaling = nil, s
	a, b := plain.Frequencies(), stretched.Frequencies()
	out := make([]float32, len(a))
	for i := range out {
		out[i] = float32(a[i] / b[i])
	}
	return out
}

// endKeys are the keys of tokens that end a text, the tokenizer's own first.
var endKeys = []string{"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}

func readIDs(x *gguf.Fields, c *model.Config) {
	id := func(key string) *int {
		if n := x.Whole(key, -1); n >= 0 {
			return &n
		}
		return nil
	}
	c.BOS, c.Pad = id("tokenizer.ggml.bos_token_id"), id("tokenizer.ggml.padding_token_id")
	for _, key := range endKeys {
		if n := id(key); n != nil && !slices.Contains(c.EOS, *n) {
			c.EOS = append(c.EOS, *n)
		}
	}
}

// configEntries are the metadata of a model's config.
func configEntries(c *model.Config) ([]gguf.Entry, error) {
	kind := architectures[c.ModelType]
	switch {
	case kind == "":
		return nil, fmt.Errorf("model_type: %s cannot be exported, only llama, mistral, qwen2 and qwen3", c.ModelType)
	case c.Reward:
		return nil, fmt.Errorf("it is a reward model (%s), which llama.cpp does not run: want a language model",
			c.Class())
	case c.WindowLayers != nil:
		return nil, fmt.Errorf("layer_types: a sliding window in some layers has no place in a GGUF file of %s", kind)
	case c.RopeScaling != nil && !slices.Contains([]string{"linear", "llama3"}, c.RopeScaling.Type):
		return nil, fmt.Errorf("rope_scaling: %s cannot be exported, only linear and llama3", c.RopeScaling.Type)
	case kind == "qwen3" && c.QKVBias:
		return nil, fmt.Errorf("attention_bias: llama.cpp has no biases in qwen3")
	}
	var out []gguf.Entry
	add := func(name string, v any) { out = append(out, gguf.Entry{Key: kind + "." + name, Value: v}) }
	whole := func(name string, n int) { add(name, uint32(n)) }
	whole("vocab_size", c.VocabSize)
	for _, size := range sizes {
		whole(size.key, *size.of(c))
	}
	whole("attention.head_count_kv", c.KVHeads)
	for _, name := range []string{"attention.key_length", "attention.value_length", "rope.dimension_count"} {
		whole(name, c.HeadDim)
	}
	add("attention.layer_norm_rms_epsilon", float32(c.RMSNormEps))
	add("rope.freq_base", float32(c.RopeTheta))
	if c.SlidingWindow > 0 {
		whole("attention.sliding_window", c.SlidingWindow)
	}
	switch s := c.RopeScaling; {
	case s != nil && s.Type == "linear":
		add("rope.scaling.type", "linear")
		add("rope.scaling.factor", float32(s.Factor))
	case s != nil:
		whole("rope.scaling.original_context_length", s.OriginalMaxPositions)
	}
	return out, nil
}
