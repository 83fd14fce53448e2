package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Class is the name of transformers' class.
func (c *Config) Class() string {
	if c.Head != nil {
		return c.Head.Class
	}
	if c.Reward && c.ModelType == gemma3 {
		return "Gemma3Text" + classifier
	}
	if c.Reward {
		return c.family().class + classifier
	}
	return c.family().class + "ForCausalLM"
}

// JSON writes config.json as transformers 4 does, which every tool reads, with the keys of Raw that the decoder does
// not use. dtype is the type of the stored weights.
func (c *Config) JSON(dtype string) ([]byte, error) {
	m := maps.Clone(c.Raw)
	if m == nil {
		m = map[string]any{}
	}
	for _, newer := range []string{"rope_parameters", "dtype"} {
		delete(m, newer)
	}
	c.writeShape(m)
	c.writeRope(m)
	c.writeWindow(m)
	if write := c.family().write; write != nil {
		write(c, m)
	}
	c.writeIDs(m)
	m["torch_dtype"] = dtype
	if _, ok := m["architectures"]; !ok || c.Reward {
		m["architectures"] = []string{c.Class()}
	}
	if c.Reward && c.Head == nil {
		delete(m, "num_labels")
		m["id2label"], m["label2id"] = map[string]string{"0": "LABEL_0"}, map[string]int{"LABEL_0": 0}
	}
	return marshalIndented(m)
}

// GenerationJSON writes generation_config.json: the one that was read, with the config's token ids.
func (c *Config) GenerationJSON() ([]byte, error) {
	m := maps.Clone(c.Generation)
	if m == nil {
		m = map[string]any{"_from_model_config": true}
	}
	c.writeIDs(m)
	for k, v := range m { // generation_config.json has no nulls
		if v == nil {
			delete(m, k)
		}
	}
	return marshalIndented(m)
}

func marshalIndented(m map[string]any) ([]byte, error) {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("cannot write config.json: %w", err)
	}
	return append(b, '\n'), nil
}

func (c *Config) writeShape(m map[string]any) {
	for _, s := range c.sizes() {
		m[s.key] = *s.value
	}
	m["model_type"], m["tie_word_embeddings"] = c.ModelType, c.TieEmbeddings
	if !c.gemma() {
		m["hidden_act"] = "silu"
	}
	m["rms_norm_eps"], m["initializer_range"] = c.RMSNormEps, c.InitRange
	if c.family().bias == biasAsked {
		m["attention_bias"] = c.QKVBias
	}
	if c.family().mlpBias {
		m["mlp_bias"] = c.MLPBias
	}
	if c.Experts > 0 {
		m["num_experts_per_tok"], m[c.family().experts.key] = c.ActiveExperts, c.Experts
	}
}

func (c *Config) writeRope(m map[string]any) {
	m["rope_theta"] = c.RopeTheta
	if c.RotaryDim > 0 {
		share := float64(c.RotaryDim) / float64(c.HeadDim)
		if int(share*float64(c.HeadDim)) < c.RotaryDim { // as it is read
			share = math.Nextafter(share, 1)
		}
		m["partial_rotary_factor"] = share
	}
	m["rope_scaling"] = nil
	if c.RopeScaling == nil {
		return
	}
	m["rope_scaling"] = c.RopeScaling.write(c.phi())
	if c.RopeScaling.LongPositions > 0 {
		m["max_position_embeddings"] = c.RopeScaling.LongPositions
	}
	if c.phi() {
		m["original_max_position_embeddings"] = c.RopeScaling.OriginalMaxPositions
	}
}

// decimal writes a whole number with its point: transformers 5 wants no integer where it has a float.
func decimal(x float64) json.Number {
	s := strconv.FormatFloat(x, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return json.Number(s)
}

// writeWindow writes the sliding window with the keys of the model type. layer_types can say more than
// max_window_layers.
func (c *Config) writeWindow(m map[string]any) {
	delete(m, "layer_types")
	rule := c.family().window
	if rule == noWindow {
		return
	}
	m["sliding_window"] = nil
	if c.SlidingWindow > 0 {
		m["sliding_window"] = c.SlidingWindow
	}
	if rule != windowIfUsed {
		return
	}
	m["use_sliding_window"] = c.SlidingWindow > 0
	if c.family().windowLayers != nil {
		types := c.layerTypes()
		m["max_window_layers"] = c.Layers
		if first := slices.Index(types, "sliding_attention"); first >= 0 {
			m["max_window_layers"] = first
		}
		if c.WindowLayers != nil {
			m["layer_types"] = types
		}
	}
}

func (c *Config) layerTypes() []string {
	types := make([]string, c.Layers)
	for i := range types {
		types[i] = "full_attention"
		if c.Window(i) > 0 {
			types[i] = "sliding_attention"
		}
	}
	return types
}

func (c *Config) writeIDs(m map[string]any) {
	set := func(key string, id *int) {
		if id != nil {
			m[key] = *id
		} else if _, there := m[key]; there {
			m[key] = nil
		}
	}
	set("bos_token_id", c.BOS)
	set("pad_token_id", c.Pad)
	switch len(c.EOS) {
	case 0:
		m["eos_token_id"] = nil
	case 1:
		m["eos_token_id"] = c.EOS[0]
	default:
		m["eos_token_id"] = c.EOS
	}
}
