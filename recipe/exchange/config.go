package exchange

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/gguf"
	"github.com/posttrain/posttrain/model"
)

// architectures are llama.cpp's names of the model types. It runs mistral and mixtral as a llama.
var architectures = map[string]string{"llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2",
	"qwen3": "qwen3", "qwen3_moe": "qwen3moe", "gemma2": "gemma2", "gemma3_text": "gemma3", "phi3": "phi3"}

// typeOf is the model type of an architecture: of llama, the first.
func typeOf(architecture string) string {
	for _, kind := range model.Types {
		if own := architectures[kind]; own == architecture && own != "" {
			return kind
		}
	}
	return ""
}

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
	c := &model.Config{ModelType: typeOf(kind), InitRange: 0.02}
	if c.ModelType == "" {
		x.Fail("general.architecture", "found %q, want %s", kind,
			strings.Join(slices.Compact(slices.Sorted(maps.Values(architectures))), ", "))
	}
	key := func(name string) string { return kind + "." + name }
	for _, size := range sizes {
		*size.of(c) = x.Need(key(size.key))
	}
	c.KVHeads = x.Whole(key("attention.head_count_kv"), c.Heads)
	c.HeadDim = x.Whole(key("attention.key_length"), c.HiddenSize/max(1, c.Heads))
	const epsilon = "attention.layer_norm_rms_epsilon"
	if c.RMSNormEps = x.Float(key(epsilon), 0); !x.Has(key(epsilon)) {
		x.Fail(key(epsilon), "found nothing, want a number")
	}
	c.RopeTheta = x.Float(key("rope.freq_base"), 10000)
	c.VocabSize = len(x.Texts("tokenizer.ggml.tokens"))
	window := 0
	if kind == "gemma2" {
		window = 4096 // where llama.cpp finds none
	}
	c.SlidingWindow = x.Whole(key("attention.sliding_window"), window)
	readExperts(x, c, key)
	if c.SlidingWindow > 0 && c.ModelType == "llama" {
		c.ModelType = "mistral"
	}
	readGemma(x, c, key)
	if n := x.Whole(key("attention.value_length"), c.HeadDim); n != c.HeadDim {
		x.Fail(key("attention.value_length"), "found %d, want %d: values of another length than keys are not supported",
			n, c.HeadDim)
	}
	switch n := x.Whole(key("rope.dimension_count"), c.HeadDim); {
	case n != c.HeadDim && kind != "phi3":
		x.Fail(key("rope.dimension_count"), "found %d, want %d: partial rotation is not supported", n, c.HeadDim)
	case n != c.HeadDim:
		c.RotaryDim = n
	}
	readScaling(x, c, key)
	readIDs(x, c)
	checkTwice(x, c, key)
	checkKeys(x, kind)
	if x.Err != nil {
		return nil, x.Err
	}
	has := func(name string) bool { return f.Find(name) != nil }
	c.TieEmbeddings = !has("output.weight")
	c.QKVBias, c.OBias = has("blk.0.attn_q.bias"), has("blk.0.attn_output.bias")
	c.MLPBias = has("blk.0.ffn_up.bias")
	if table := f.Find("token_embd.weight"); table != nil && len(table.Shape) == 2 {
		c.VocabSize = max(c.VocabSize, table.Shape[0]) // tables may have rows that no token has
	}
	// A folder's config has attention_bias, for all four projections; a qwen2 has the biases of three.
	if qwen2 := c.ModelType == "qwen2"; c.OBias != (c.QKVBias && !qwen2) || qwen2 && !c.QKVBias {
		x.Fail("biases", "found blk.0.attn_q.bias %v and blk.0.attn_output.bias %v, want true and false in a qwen2, "+
			"and both or neither in others", c.QKVBias, c.OBias)
		return nil, x.Err
	}
	return c, c.Validate()
}

// readExperts reads mixtures of experts, of which a llama is a mixtral. llama.cpp lets their weights add up to 1.
func readExperts(x *gguf.Fields, c *model.Config, key func(string) string) {
	c.Experts = x.Whole(key("expert_count"), 0)
	c.QKNorm = slices.Contains([]string{"qwen3", "qwen3_moe", "gemma3_text"}, c.ModelType)
	switch {
	case c.Experts == 0 && c.ModelType != "qwen3_moe":
		return
	case c.ModelType == "llama":
		c.ModelType = "mixtral"
	case c.ModelType != "qwen3_moe" || c.Experts == 0:
		x.Fail(key("expert_count"), "found %d, which a %s does not have", c.Experts, c.ModelType)
	}
	c.NormExperts, c.ActiveExperts = true, x.Need(key("expert_used_count"))
	c.ExpertSize = x.Whole(key("expert_feed_forward_length"), c.IntermediateSize)
}

// gemma says what llama.cpp does for a gemma without asking the file.
func gemma(c *model.Config) bool { return c.ModelType == "gemma2" || c.ModelType == "gemma3_text" }

// queryScale is what llama.cpp divides a gemma's scores by the root of: the largest model of each has another one.
func queryScale(c *model.Config) float64 {
	if largest := map[string]int{"gemma2": 46, "gemma3_text": 62}; c.Layers == largest[c.ModelType] {
		return float64(c.HiddenSize) / float64(max(1, c.Heads))
	}
	return float64(c.HeadDim)
}

// windowEvery is the number of layers of a gemma of which the last has no window.
func windowEvery(c *model.Config) int {
	if c.ModelType == "gemma2" {
		return 2
	}
	return 6
}

func windowLayers(layers, every int) []bool {
	out := make([]bool, layers)
	for i := range out {
		out[i] = (i+1)%every != 0
	}
	return out
}

// windowsAsUsual says whether the layers have the window that llama.cpp gives them.
func windowsAsUsual(c *model.Config) bool {
	for i, has := range windowLayers(c.Layers, windowEvery(c)) {
		if has != (c.Window(i) > 0) {
			return false
		}
	}
	return true
}

// readGemma reads a gemma's keys. A limit that a gemma2's file leaves out is Google's.
func readGemma(x *gguf.Fields, c *model.Config, key func(string) string) {
	if !gemma(c) || x.Err != nil {
		return
	}
	const pattern = "attention.sliding_window_pattern"
	c.QueryScale = queryScale(c)
	flags, _ := x.File.Get(key(pattern))
	c.WindowLayers, _ = flags.([]bool)
	every := windowEvery(c)
	if c.WindowLayers == nil {
		every = x.Whole(key(pattern), every)
	} else if len(c.WindowLayers) != c.Layers {
		x.Fail(key(pattern), "found %d values, want one for each of %d layers", len(c.WindowLayers), c.Layers)
	}
	if every < 1 || c.Layers > 4096 { // Validate reports the layers
		x.Fail(key(pattern), "found %d, want 1 or more", every)
		return
	}
	if c.WindowLayers == nil {
		c.WindowLayers = windowLayers(c.Layers, every)
	}
	if c.ModelType == "gemma2" {
		c.ScoreCap = x.Float(key("attn_logit_softcapping"), 50)
		c.LogitCap = x.Float(key("final_logit_softcapping"), 30)
		return
	}
	c.LogitCap, c.LocalTheta = x.Float(key("final_logit_softcapping"), 0), x.Float(key("rope.freq_base_swa"), 10000)
}

// readScaling reads how frequencies are stretched. Llama 3.1's factors are a tensor: the settings that give it are
// looked for among released models'.
func readScaling(x *gguf.Fields, c *model.Config, key func(string) string) {
	const older = "rope.scale_linear"
	factor := x.Float(key("rope.scaling.factor"), x.Float(key(older), 0))
	stretched := factor != 0 && factor != 1
	kind := x.Text(key("rope.scaling.type"), "linear") // llama.cpp's default
	switch longer := x.File.Find(ropeFactors) != nil || x.File.Find(shortFactors) != nil; {
	case kind == "none":
	case stretched && (longer || kind == "longrope"):
		x.Fail(key("rope.scaling.factor"), "found %g beside factors of frequencies, want 1", factor)
	case kind == "linear" && stretched:
		c.RopeScaling = &model.RopeScaling{Type: "linear", Factor: factor}
	case kind == "linear", kind == "longrope":
	default:
		x.Fail(key("rope.scaling.type"), "found %q, want none, linear or longrope", kind)
	}
	if x.File.Find(shortFactors) != nil {
		readLongRope(x, c, key)
		return
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

// readLongRope reads a phi3's factors for short and for long texts.
func readLongRope(x *gguf.Fields, c *model.Config, key func(string) string) {
	s := &model.RopeScaling{Type: "longrope", LongPositions: c.MaxPositions,
		OriginalMaxPositions: x.Need(key("rope.scaling.original_context_length"))}
	for name, to := range map[string]*[]float64{shortFactors: &s.Short, longFactors: &s.Long} {
		t := x.File.Find(name)
		if t == nil || t.Size() > c.HeadDim {
			x.Fail(name, "found nothing or too much, want a factor for each of %d frequencies", c.HeadDim/2)
			return
		}
		factors := make([]float32, t.Size())
		if err := x.File.Read(t, factors); err != nil {
			x.Err = err
			return
		}
		for _, f := range factors {
			*to = append(*to, gguf.Decimal(f))
		}
	}
	s.Factor = float64(s.LongPositions) / float64(max(1, s.OriginalMaxPositions))
	given := x.Float(key("rope.scaling.attn_factor"), 0)
	if given > 0 && !near(float32(given), float32(s.AttentionFactor())) {
		s.Attention = given
	}
	c.RopeScaling, c.MaxPositions = s, min(c.MaxPositions, s.OriginalMaxPositions)
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

// endNames are tokens that end a text in llama.cpp wherever a vocabulary has them: most files of Gemma 2 and Phi 3 have
// no key for the end of a turn.
var endNames = []string{"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<EOT>", "_<EOT>",
	"<end_of_utterance>", "<|endoftext|>", "<|end_of_text|>"}

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
	for n, text := range x.Texts("tokenizer.ggml.tokens") {
		if slices.Contains(endNames, text) && !slices.Contains(c.EOS, n) {
			c.EOS = append(c.EOS, n)
		}
	}
}

// checkExport refuses what llama.cpp has no keys for.
func checkExport(c *model.Config) error {
	kind := architectures[c.ModelType]
	switch {
	case c.Reward:
		return fmt.Errorf("it is a reward model (%s), which llama.cpp does not run: want a language model",
			c.Class())
	case kind == "":
		return fmt.Errorf("model_type: found %s, want one of %s", c.ModelType,
			strings.Join(slices.Sorted(maps.Keys(architectures)), ", "))
	case gemma(c) && !windowsAsUsual(c):
		return fmt.Errorf("layer_types: want every layer but each %d-th with the window: a GGUF file of %s has no "+
			"place for others", windowEvery(c), kind)
	case gemma(c) && c.QueryScale != queryScale(c):
		return fmt.Errorf("query_pre_attn_scalar: found %g, want %g, which llama.cpp takes in a %s of these sizes",
			c.QueryScale, queryScale(c), kind)
	case c.ModelType == "gemma2" && (c.ScoreCap == 0 || c.LogitCap == 0):
		return fmt.Errorf("attn_logit_softcapping, final_logit_softcapping: found null, want numbers: llama.cpp has " +
			"limits in every gemma2")
	case !gemma(c) && c.WindowLayers != nil:
		return fmt.Errorf("layer_types: a sliding window in some layers has no place in a GGUF file of %s", kind)
	case c.RopeScaling != nil && !slices.Contains([]string{"linear", "llama3", "longrope"}, c.RopeScaling.Type):
		return fmt.Errorf("rope_scaling: %s cannot be exported, only linear, llama3 and longrope", c.RopeScaling.Type)
	case c.QKVBias && (kind == "qwen3" || kind == "qwen3moe"):
		return fmt.Errorf("attention_bias: llama.cpp has no biases in %s", kind)
	case c.Experts > 0 && !c.NormExperts:
		return fmt.Errorf("norm_topk_prob: found false, want true, which llama.cpp takes in every %s", kind)
	}
	return nil
}

// configEntries are the metadata of a model's config.
func configEntries(c *model.Config) ([]gguf.Entry, error) {
	if err := checkExport(c); err != nil {
		return nil, err
	}
	kind := architectures[c.ModelType]
	var out []gguf.Entry
	add := func(name string, v any) { out = append(out, gguf.Entry{Key: kind + "." + name, Value: v}) }
	float := func(name string, x float64) { add(name, float32(x)) }
	whole := func(name string, n int) { add(name, uint32(n)) }
	whole("vocab_size", c.VocabSize)
	for _, size := range sizes {
		n := *size.of(c)
		if s := c.RopeScaling; size.key == "context_length" && s != nil && s.Type == "longrope" {
			n = s.LongPositions
		}
		whole(size.key, n)
	}
	whole("attention.head_count_kv", c.KVHeads)
	for _, name := range []string{"attention.key_length", "attention.value_length"} {
		whole(name, c.HeadDim)
	}
	whole("rope.dimension_count", cmp.Or(c.RotaryDim, c.HeadDim))
	float("attention.layer_norm_rms_epsilon", c.RMSNormEps)
	float("rope.freq_base", c.RopeTheta)
	if c.SlidingWindow > 0 {
		whole("attention.sliding_window", c.SlidingWindow)
	}
	if c.Experts > 0 {
		whole("expert_count", c.Experts)
		whole("expert_used_count", c.ActiveExperts)
		whole("expert_feed_forward_length", c.ExpertSize)
	}
	for _, of := range []struct {
		name string
		x    float64
	}{{"attn_logit_softcapping", c.ScoreCap}, {"final_logit_softcapping", c.LogitCap},
		{"rope.freq_base_swa", c.LocalTheta}} {
		if of.x > 0 {
			float(of.name, of.x)
		}
	}
	switch s := c.RopeScaling; {
	case s == nil:
	case s.Type == "linear":
		add("rope.scaling.type", "linear")
		float("rope.scaling.factor", s.Factor)
	case s.Type == "longrope":
		float("rope.scaling.attn_factor", s.AttentionFactor())
		whole("rope.scaling.original_context_length", s.OriginalMaxPositions)
	default:
		whole("rope.scaling.original_context_length", s.OriginalMaxPositions)
	}
	return out, nil
}
