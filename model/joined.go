package model

import "strings"

// Joined is the model with one matrix for q, k, v and one for gate, up, as phi has them: fewer and larger products. It is
// for sampling: no file has its weights. An adapter has layers of its own, so that a model with one stays as it is.
func (c *Config) Joined() *Config {
	if c.LoRA != nil {
		return c
	}
	joined := *c
	joined.joined = true
	return &joined
}

func (c *Config) joins() bool { return c.joined || c.phi() }

// JoinedFrom gives for each weight in [Config.Held] of the model's Joined the indices of those whose rows it has.
func (c *Config) JoinedFrom() (from [][]int) {
	at := map[string]int{}
	for i, h := range c.Held() {
		at[h.Name] = i
	}
	for _, h := range c.Joined().Held() {
		var own []int
		for _, name := range c.partsOf(h.Name) {
			own = append(own, at[name])
		}
		from = append(from, own)
	}
	return from
}

// partsOf names the weights that one of the model's Joined has the rows of: itself, or several.
func (c *Config) partsOf(name string) (parts []string) {
	for whole, all := range map[string][]string{".qkv_": {".q_", ".k_", ".v_"}, ".gate_up_": {".gate_", ".up_"}} {
		for _, part := range all {
			if strings.Contains(name, whole) && !c.phi() {
				parts = append(parts, strings.Replace(name, whole, part, 1))
			}
		}
	}
	if parts == nil {
		return []string{name}
	}
	return parts
}
