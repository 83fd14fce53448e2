package model

// Tiny is the config of a model of two small layers with the vocabulary, the token ids and the options of c, such as
// its norms and windows: what can be learnt in seconds.
func (c *Config) Tiny() *Config {
	t := *c
	t.Raw, t.LoRA, t.RopeScaling, t.textPart = nil, nil, nil, false
	t.HiddenSize, t.IntermediateSize, t.Layers, t.Heads, t.HeadDim = 64, 128, 2, 4, 16
	t.KVHeads, t.RotaryDim, t.DType, t.InitRange = 2, min(c.RotaryDim, 16), "float32", 0.05
	if c.QueryScale > 0 {
		t.QueryScale = float64(t.HeadDim)
	}
	if c.Experts > 0 {
		t.Experts, t.ActiveExperts, t.ExpertSize = min(c.Experts, 4), min(c.ActiveExperts, 2), 64
		if c.ExpertSize == c.IntermediateSize { // its experts are as wide as intermediate_size says
			t.ExpertSize = t.IntermediateSize
		}
	}
	if c.SlidingWindow > 0 { // a tiny window hides the question from the answer
		t.SlidingWindow = max(c.SlidingWindow, 4096)
	}
	if c.WindowLayers != nil {
		t.WindowLayers = []bool{c.WindowLayers[0], c.WindowLayers[c.Layers-1]}
	}
	return &t
}
